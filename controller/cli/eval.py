"""`flagstaff eval`: one answer from a repository, without serving it, and why."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.cli.arguments import add_build_arguments, local_options
from controller.runtime.setbacks import Setback
from controller.wiring import build_once, now
from evaluator.explain import explain
from evaluator.flags import ABSENT, Severity
from evaluator.resolve import Resolution, compile_flag_set, resolve

if TYPE_CHECKING:
    import argparse

    from evaluator.explain import Explanation


class ContextError(ValueError):
    """An evaluation context that cannot be read."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(parser)
    parser.add_argument("key", metavar="KEY", help="the flag's key")
    given = parser.add_mutually_exclusive_group()
    given.add_argument(
        "--context", nargs="+", action="extend", default=[], metavar="K=V",
        help="the evaluation context; V is JSON or else a string, and a dot in K nests (user.name=jack)",
    )  # fmt: skip
    given.add_argument(
        "--context-file", type=Path, metavar="F", help="the evaluation context as a JSON object"
    )
    parser.add_argument(
        "--explain", action="store_true", help="also print how the answer came about"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one answer as JSON; exit 0, 1 where it is an error, 2 for wrong usage, 3 where there is no source."""
    try:
        context = _context(arguments)
    except (ValueError, OSError) as error:
        print(f"flagstaff eval: {error}", file=sys.stderr)
        return 2
    options = local_options(arguments)
    try:
        built = asyncio.run(build_once(options))
    except Setback as setback:
        print(f"flagstaff eval: {setback.message}", file=sys.stderr)
        return 3
    for problem in built.composition.problems:
        if problem.severity is Severity.ERROR or not options.lenient:
            print(problem, file=sys.stderr)
    flags = compile_flag_set(built.composition.flag_set, bucketing=options.bucketing)
    moment = int(now().timestamp())
    if arguments.explain:
        explanation = explain(flags, arguments.key, None, context, moment)
        resolution = explanation.resolution
    else:
        explanation, resolution = None, resolve(flags, arguments.key, None, context, moment)
    print(json.dumps(_answer(arguments.key, resolution), indent=2, ensure_ascii=False))
    if explanation is not None:
        print(_trace(explanation))
    return 1 if resolution.error_code else 0


def _context(arguments: argparse.Namespace) -> dict[str, Any]:
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


def _answer(key: str, resolution: Resolution) -> dict[str, Any]:
    answer: dict[str, Any] = {"key": key}
    if resolution.value is not ABSENT:
        answer["value"] = resolution.value
    if resolution.variant is not None:
        answer["variant"] = resolution.variant
    answer["reason"] = resolution.reason.value
    if resolution.error_code is not None:
        answer["errorCode"] = resolution.error_code.value
        answer["errorDetails"] = resolution.error_message
    answer["metadata"] = dict(resolution.metadata)
    return answer


def _trace(explanation: Explanation) -> str:
    return "\n".join(f"  {step}" for step in explanation.steps)
