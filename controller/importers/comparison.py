"""Compares imported flags with values that the old system gave, one call a line. Pure."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.importers.model import ONLY
from controller.importers.moves import moved_shares
from controller.importers.writer import definitions
from evaluator.flags.diff import same
from evaluator.flags.merge import parse
from evaluator.flags.text import Bounds
from evaluator.resolving.resolve import CompiledFlagSet, compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.importers.model import Imported
    from evaluator.flags.model import Json

MOST_CALLS: Final = 1_000_000
_LONGEST: Final = 1024 * 1024
"""Longest line, in bytes."""
_UNBOUNDED: Final = Bounds(document_bytes=sys.maxsize, nodes=sys.maxsize)
"""Of flags that were judged in portions."""
_FIELDS: Final = {"flag": str, "context": dict, "environment": str, "time": int}


class BadCall(ValueError):
    """A line is no call of the old system."""


@dataclass(frozen=True, slots=True)
class OldCall:
    """One value that the old system gave. `time` is in Unix seconds."""

    flag: str
    context: dict[str, Json]
    value: Json
    environment: str
    time: int


@dataclass(slots=True)
class FlagComparison:
    """What came of the calls of one flag in one environment."""

    flag: str
    environment: str
    agree: int = 0
    differ: int = 0
    divides: bool = False
    """Whether users of the flag are divided by a hash, so that some have to differ."""
    first: str = ""
    """The first call that differs, in words."""
    missing: int = 0
    """Calls of a flag that was not imported."""


@dataclass(slots=True)
class _Compared:
    imported: Imported
    flags: dict[str, CompiledFlagSet] = field(default_factory=dict)

    def of(self, environment: str) -> CompiledFlagSet:
        if environment not in self.flags:
            document = orjson.dumps(definitions(self.imported, environment))
            parsed = parse(document, file="imported.json", bounds=_UNBOUNDED)
            self.flags[environment] = compile_flag_set(parsed.flag_set)
        return self.flags[environment]


def read_calls(lines: Iterable[bytes], now: int) -> Iterator[OldCall]:
    """Read calls: a JSON object a line with `flag`, `context`, `value`, and if need be `environment` and
    `time`. Raises BadCall with the number of the line.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if number > MOST_CALLS or len(line) > _LONGEST:
            raise BadCall(f"line {number}: at most {MOST_CALLS} lines of {_LONGEST} bytes are compared")
        try:
            call = orjson.loads(line)
        except ValueError as error:
            raise BadCall(f"line {number}: is no JSON: {error}") from None
        if not isinstance(call, dict) or not {"flag", "value"} <= call.keys():
            raise BadCall(f"line {number}: needs an object with flag, context and value")
        for name, kind in _FIELDS.items():
            if name in call and (not isinstance(call[name], kind) or isinstance(call[name], bool)):
                raise BadCall(f"line {number}: {name} has another type")
        time = call.get("time", now)
        yield OldCall(
            call["flag"], call.get("context", {}), call["value"], call.get("environment", ONLY), time
        )


def compare(imported: Imported, calls: Iterable[OldCall]) -> list[FlagComparison]:
    """Evaluate each call by the imported flags, and count by flag and environment, in order of the calls.
    Calls without an environment belong to the only one. Raises BadCall where there are several.
    """
    environments = sorted({name for flag in imported.flags for name in flag.targeting})
    moved = moved_shares(imported)
    compared = _Compared(imported)
    results: dict[tuple[str, str], FlagComparison] = {}
    for call in calls:
        environment = call.environment or (environments[0] if len(environments) == 1 else ONLY)
        if environments and environment not in environments:
            names = ", ".join(environments)
            raise BadCall(f"a call of {call.flag} has the environment {environment!r}; there are {names}")
        result = results.setdefault((call.flag, environment), FlagComparison(call.flag, environment))
        result.divides = moved.get(call.flag, {}).get(environment, 0.0) > 0
        flags = compared.of(environment)
        if call.flag not in flags.flag_set.flags:
            result.missing += 1
            continue
        answer = resolve(flags, call.flag, None, call.context, call.time)
        came: Any = answer.value if answer.variant is not None else None
        if same(came, call.value):
            result.agree += 1
        else:
            result.differ += 1
            result.first = result.first or (
                f"{json.dumps(call.context, ensure_ascii=False)} gave {json.dumps(call.value)}, "
                f"and gives {json.dumps(came)} here"
            )
    return list(results.values())
