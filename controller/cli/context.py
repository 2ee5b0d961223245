"""The evaluation context as verbs take it: pairs, or a file. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.printing import USAGE, Exit, exit_on

if TYPE_CHECKING:
    import argparse


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    """--context and --context-file."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--context", nargs="+", action="extend", default=[], metavar="K=V",
        help="the evaluation context: V is JSON or a string; a dot in K makes an object (user.name=jack)",
    )  # fmt: skip
    given.add_argument(
        "--context-file", type=Path, metavar="F", help="the evaluation context as a JSON object"
    )


def read_context(arguments: argparse.Namespace) -> dict[str, Any]:
    """The context that a verb with `add_context_arguments` was given. Raises Exit."""
    if arguments.context_file is not None:
        context = _read_json(arguments.context_file)
        if not isinstance(context, dict):
            raise Exit(f"{arguments.context_file}: the context must be a JSON object", USAGE)
        return context
    context = {}
    for pair in arguments.context:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise Exit(f"--context needs KEY=VALUE, got {pair!r}", USAGE)
        _put(context, key.split("."), _value(text))
    return context


def _read_json(file: Path) -> object:
    try:
        with exit_on(USAGE, OSError):
            return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Exit(f"{file}: not JSON: {error}", USAGE) from error


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(context: dict[str, Any], path: list[str], value: object) -> None:
    for name in path[:-1]:
        inner = context.setdefault(name, {})
        if not isinstance(inner, dict):
            raise Exit(
                f"--context sets {name} both to a value and to an object ({'.'.join(path)}); "
                "remove one of the two",
                USAGE,
            )
        context = inner
    context[path[-1]] = value
