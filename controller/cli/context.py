"""The evaluation context as verbs take it: pairs, or a file. Imports nothing of the controller's, so any image can use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


class ContextError(ValueError):
    """An evaluation context that cannot be read."""


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    """--context and --context-file."""
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--context", nargs="+", action="extend", default=[], metavar="K=V",
        help="the evaluation context; V is JSON or else a string, and a dot in K nests (user.name=jack)",
    )  # fmt: skip
    given.add_argument(
        "--context-file", type=Path, metavar="F", help="the evaluation context as a JSON object"
    )


def read_context(arguments: argparse.Namespace) -> dict[str, Any]:
    """The context that a verb with `add_context_arguments` was given. Raises ValueError or OSError."""
    if arguments.context_file is not None:
        context = json.loads(arguments.context_file.read_text(encoding="utf-8"))
        if not isinstance(context, dict):
            raise ContextError(f"{arguments.context_file}: the context must be a JSON object")
        return context
    context = {}
    for pair in arguments.context:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ContextError(f"{pair!r} is no context; write KEY=VALUE")
        _put(context, key.split("."), _value(text))
    return context


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(context: dict[str, Any], path: list[str], value: object) -> None:
    for name in path[:-1]:
        inner = context.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ContextError(f"{'.'.join(path)} nests below a value; give {name} only once")
        context = inner
    context[path[-1]] = value
