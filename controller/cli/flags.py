"""`flagstaff flags` and `flagstaff explain`: what a running evaluator serves, and why."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from controller.cli.context import add_context_arguments, read_context
from controller.cli.printing import (
    OK,
    PROBLEM,
    UNREACHABLE,
    Exit,
    add_steps_argument,
    columns,
    did_you_mean,
    format_answer,
    printable,
    short,
)
from controller.cli.remote import Remote, add_address_argument, remote
from evaluator.flags.marks import override_mark, rollout_mark

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator


MOST_FLAGS: Final = 1_000_000
TRIES: Final = 3

_COLUMNS: Final = {
    "key": "KEY", "state": "STATE", "type": "TYPE", "defaultVariant": "DEFAULT",
    "targeting": "TARGETING", "source": "SOURCE", "flagSetId": "FLAG SET", "revision": "REVISION",
}  # fmt: skip
"""Headings by the fields of a flag."""


def configure_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_address_argument(parser)
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="a table (default), or JSON"
    )
    parser.set_defaults(run=run_flags)


def run_flags(arguments: argparse.Namespace) -> int:
    """Print what is served; exit with 0, 2 for wrong usage, 3 where no evaluator serves anything yet."""
    served = everything(remote(arguments.to))
    if arguments.output == "json":
        print(printable(json.dumps(served, indent=2, ensure_ascii=False)))
    else:
        print(printable("\n".join(lines(served))))
    return UNREACHABLE if served.get("digest") is None else OK


def everything(evaluator: Remote) -> dict[str, Any]:
    """Return all pages of /flags as one, all of the same digest. Raises Exit."""
    for _ in range(TRIES):
        served = evaluator.get("/flags")
        flags, following = list(served.get("flags", ())), served.get("next")
        while following is not None and len(flags) < MOST_FLAGS:
            page = evaluator.get(f"/flags?after={quote(str(following), safe='')}")
            if page.get("digest") != served.get("digest") or not page.get("flags"):
                break
            flags += page["flags"]
            following = page.get("next")
        else:
            return {name: value for name, value in served.items() if name != "next"} | {"flags": flags}
    raise Exit("the flags changed while they were being listed; try again")


def lines(served: dict[str, Any]) -> Iterator[str]:
    """The table, below a summary."""
    yield f"revision  {short(served.get('revision') or '-')}"
    yield f"digest    {served.get('digest') or '-'}"
    yield f"age       {_age(served.get('ageSeconds'))}"
    for source in served.get("sources", ()):
        yield f"source    {_source(source)}"
    yield from _marks(served.get("flags", ()))
    yield ""
    rows = ([_cell(flag.get(name)) for name in _COLUMNS] for flag in served.get("flags", ()))
    yield from columns([list(_COLUMNS.values()), *rows])


def _marks(flags: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A line for each flag that is not for everybody as its definition says."""
    for flag in flags:
        key, metadata = flag.get("key"), flag.get("metadata") or {}
        if (override := override_mark(metadata)) is not None:
            end = f" until {override.until}" if override.until else ""
            yield f"override  {key}: by {override.name}{end}: {override.reason}".replace("\n", " ")
        if (rollout := rollout_mark(metadata)) is not None:
            candidate = f" ({short(rollout.candidate)})" if rollout.candidate else ""
            hidden = ", which the override hides" if override is not None else ""
            text = f"rollout   {key}: by {rollout.name}{candidate}: {rollout.position}{hidden}"
            yield text.replace("\n", " ")


def _source(source: dict[str, Any]) -> str:
    text = (
        f"{source.get('name') or '-'}: {_flags(source.get('flags', 0))}, "
        f"last confirmed {_age(source.get('ageSeconds'))} ago"
    )
    if source.get("digest") is None:
        text = f"{source.get('name') or '-'}: nothing received yet"
    if source.get("fromDisk"):
        text += ", from disk"
    if source.get("stale"):
        text += f", {source.get('state', 'stale')}: {source['stale'].get('reason')}"
    return text


def _flags(number: int) -> str:
    return "1 flag" if number == 1 else f"{number} flags"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else short(str(value))


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"


def configure_explain(parser: argparse.ArgumentParser) -> None:
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
    parser.set_defaults(run=run_explain)


def run_explain(arguments: argparse.Namespace) -> int:
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
