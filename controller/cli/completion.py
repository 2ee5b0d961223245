"""`flagstaff completion`: a script by which a shell completes verbs, options and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.cli.printing import OK

if TYPE_CHECKING:
    import argparse

SHELLS: Final = ("bash", "zsh", "fish")


def configure_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 printed; 2 wrong usage."""
    import shtab

    from controller.cli import whole_parser

    print(shtab.complete(whole_parser(), options.shell))
    return OK
