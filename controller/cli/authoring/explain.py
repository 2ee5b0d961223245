"""`flagstaff explain`: how a running evaluator comes to an answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from controller.cli.authoring.flags import everything
from controller.cli.shared.context import add_context_arguments, read_context
from controller.cli.shared.ending import OK, PROBLEM
from controller.cli.shared.printing import add_steps_argument, did_you_mean, format_answer, printable
from controller.cli.shared.remote import add_address_argument, remote

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("key", metavar="KEY", help="the flag's key")
    add_address_argument(parser)
    add_context_arguments(parser)
    parser.add_argument(
        "--type", choices=["boolean", "string", "integer", "float", "object"],
        help="ask for a value of this type (default: whatever it is)",
    )  # fmt: skip
    parser.add_argument(
        "--at", metavar="DIGEST|TIME",
        help="explain what was served then: a digest (sha256:…), or a time such as 2026-01-02T03:04:05Z",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true", help="show the conditions of rollouts and overrides, too"
    )
    add_steps_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print answer and trace; exit with 0, 1 if it is an error, 2 for wrong usage, 3 without evaluator."""
    context = read_context(arguments)
    question: dict[str, Any] = {"flagKey": arguments.key, "context": context}
    if arguments.type is not None:
        question["type"] = arguments.type
    if arguments.at is not None:
        question["at"] = arguments.at
    evaluator = remote(arguments.to)
    answer = evaluator.post("/explain", question)
    steps = [
        str(step.get("text", ""))
        for step in answer.pop("steps", [])
        if isinstance(step, dict) and (arguments.verbose or not step.get("layer"))
    ]
    print(format_answer(answer, steps, as_json=arguments.output == "json"))
    if answer.get("errorCode") == "FLAG_NOT_FOUND":
        keys = [str(flag.get("key")) for flag in everything(evaluator)["flags"]]
        hint = did_you_mean(arguments.key, keys)
        print(printable(f"flagstaff explain: there is no flag {arguments.key!r}{hint}"), file=sys.stderr)
    return PROBLEM if "errorCode" in answer else OK
