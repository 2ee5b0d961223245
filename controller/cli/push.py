"""`flagstaff push`: a folder of definitions as an artifact in a container registry."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.arguments import add_registry_arguments, login_of
from controller.cli.printing import OK, UNREACHABLE, USAGE, exit_on, printable
from controller.local.registries import PushOptions, push
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    import argparse


def configure_push(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("target", metavar="TARGET", help="oci://HOST/REPOSITORY:TAG")
    parser.add_argument(
        "--path", type=Path, default=Path(), metavar="DIR",
        help="the folder that is pushed, without what its .sourceignore names (default: this one)",
    )  # fmt: skip
    for name, what in (
        ("--source", "URL of the repository that the folder belongs to"),
        ("--revision", "its revision, such as main@sha1:COMMIT"),
        ("--author", "the revision's author, as 'Name <mail>'"),
    ):
        parser.add_argument(
            name, metavar="TEXT", help=f"{what} (default: what the folder's Git repository says)"
        )
    parser.add_argument(
        "--sign", type=Path, metavar="KEY",
        help="a private key in PEM to sign the artifact with, as cosign does (default: it is not signed)",
    )  # fmt: skip
    add_registry_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what was pushed; exit with 0, 2 for wrong usage or a bad folder, 3 if the registry refuses."""
    with exit_on(USAGE, ValueError), exit_on(UNREACHABLE, Setback):
        options = PushOptions(
            arguments.target,
            arguments.path,
            arguments.insecure,
            login_of(arguments),
            arguments.source,
            arguments.revision,
            arguments.author,
            arguments.sign,
        )
        pushed = asyncio.run(push(options))
    if pushed.changed:
        text = f"{arguments.path} has changes that are not committed: its revision gets the suffix -dirty"
        print(printable(f"flagstaff push: {text}"), file=sys.stderr)
    print(printable(pushed.reference))
    return OK
