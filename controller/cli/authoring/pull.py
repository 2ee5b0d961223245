"""`flagstaff pull`: the files of an artifact in a container registry."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.shared.arguments import add_registry_arguments, login_of
from controller.cli.shared.ending import OK, UNREACHABLE, USAGE, ending
from controller.local.publishing import pull
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("target", metavar="SOURCE", help="oci://HOST/REPOSITORY:TAG, or …@sha256:DIGEST")
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="an empty folder; it is made if it does not exist",
    )
    add_registry_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the revision; exit with 0, 2 for wrong usage or a bad folder, 3 if the registry refuses."""
    with ending(USAGE, ValueError), ending(UNREACHABLE, Setback):
        login = login_of(arguments)
        target, output = arguments.target, arguments.output
        fetched = asyncio.run(pull(target, output, insecure=arguments.insecure, login=login))
    for each in fetched.skipped:
        print(f"flagstaff pull: left out {each}", file=sys.stderr)
    print(fetched.revision)
    return OK
