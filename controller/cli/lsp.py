"""`flagstaff lsp`: a language server for definitions, on standard input and output."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from controller.cli.printing import OK

if TYPE_CHECKING:
    import argparse


def configure_lsp(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a layer of the flag set, base first, in the folder that is open in the editor (default: the "
        "folder of the file, over the folder base beside overlays)",
    )  # fmt: skip
    parser.add_argument(
        "--depends-on", action="append", default=[], metavar="PATH", dest="depends_on",
        help="definitions of another flag set whose flags these may need; may be repeated",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 when the editor ends it."""
    from controller.cli.language_server import language_server

    # The library closes its stream; and what anything prints would be no message.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output, contextlib.redirect_stdout(sys.stderr):
        language_server(options.paths, options.depends_on).start_io(sys.stdin.buffer, output)
    return OK
