"""Reads the login for a registry where Docker's configuration has none."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from controller.sources.oci.credentials import Login

if TYPE_CHECKING:
    import argparse

PASSWORD: Final = "FLAGSTAFF_REGISTRY_PASSWORD"  # noqa: S105 - the variable's name
_LONGEST: Final = 64 * 1024


def add_login_arguments(parser: argparse.ArgumentParser) -> None:
    """--username."""
    parser.add_argument(
        "--username", metavar="NAME",
        help=f"log in so, with the password of the variable {PASSWORD}, or else of standard input "
        "(default: as Docker's configuration says)",
    )  # fmt: skip


def login_of(arguments: argparse.Namespace) -> Login | None:
    """None where no name was given. Raises ValueError where there is no password."""
    if arguments.username is None:
        return None
    password = os.environ.get(PASSWORD) or sys.stdin.readline(_LONGEST).rstrip("\r\n")
    if not arguments.username or not password:
        raise ValueError(f"--username needs a password, in {PASSWORD} or on standard input")
    return Login(arguments.username, password)
