"""`flagstaff sign`: a manifest of a folder's files and a signature of it, for a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.shared.ending import OK, USAGE, ending
from controller.local.publishing import FolderRefusedError, sign_folder
from controller.runtime.clock import now

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder that is put into the bucket")
    parser.add_argument(
        "--key", type=Path, required=True, metavar="KEY", help="a private key in PEM that is not encrypted"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the two files and name them; exit 0, 2 for a folder or a key that cannot be used."""
    with ending(USAGE, FolderRefusedError):
        manifest, signature, signed = sign_folder(arguments.folder, arguments.key, now())
    print(f"{manifest} and {signature} sign {signed} file{'' if signed == 1 else 's'}")
    return OK
