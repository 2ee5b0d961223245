"""`flagstaff init`: writes a repository to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from controller.api.parsing.names import OBJECT_NAME
from controller.cli.shared.ending import OK, PROBLEM, USAGE, Exit, exit_on

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", type=Path, default=Path(), help="where (default: here)"
    )
    parser.add_argument("--name", default="shop", metavar="NAME", help="the application (default shop)")
    parser.add_argument(
        "--url", default="https://git.example.com/shop/flags.git", metavar="URL",
        help="the URL under which a cluster will find the repository",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 written; 1 a file is there already; 2 wrong usage."""
    # Imported here: it takes a second.
    from controller.cli.authoring.starter import starter_files
    from controller.cli.published.json_schemas import json_schemas

    if not OBJECT_NAME.fullmatch(options.name):
        raise Exit(f"--name {options.name!r}: use lower-case letters, digits and -", USAGE)
    files = starter_files(options.name, options.url, json_schemas())
    there = [name for name in files if (options.folder / name).exists()]
    if there:
        raise Exit(f"{options.folder / there[0]} is there already; nothing was written", PROBLEM)
    with exit_on(USAGE, OSError):
        for name, content in files.items():
            file = options.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            print(file)
    return OK
