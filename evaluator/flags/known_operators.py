"""The language of rules: the operators, their numbers of arguments, and the bounds of a rule.

The table follows flagd's published schema (https://flagd.dev/schema/v0/targeting.json, draft-07).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.text import visible
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Json

DEPTH: Final = 50
"""Most levels of a rule: each object is one, and each array that is not an operator's argument list."""
NODES: Final = 10_000
"""Most objects, arrays and scalars of a rule, with its `$ref`s expanded. The items of a list of scalars in
which `in` looks for something do not count: a look-up takes as long in a list of any length.
"""
MEMBERSHIP: Final = "in"
FILE: Final = "file"
"""Names a list in a file where `in` looks for something: the build replaces it by the list."""

REFERENCE: Final = "$ref"
PREREQUISITE: Final = "flag"
"""An operator of our definitions alone: the build replaces it by the rule of the flag that it names."""
SCHEDULE: Final = "between"
"""An operator of our definitions alone: the build replaces it by comparisons of the time."""
MOST_WEIGHT: Final = 2_147_483_647
"""Largest weight of one bucket of `fractional`, and of all together; flagd serves no variant beyond it."""


@dataclass(frozen=True, slots=True)
class Arity:
    """The number of arguments of an operator."""

    least: int
    most: int | None
    """Most arguments; None: any number."""

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def admits(self, count: int) -> bool:
        """Return whether the operator accepts this number of arguments."""
        return count >= self.least and (self.most is None or count <= self.most)


_TWO: Final = Arity(2, 2)
_TWO_OR_THREE: Final = Arity(2, 3)
_SOME: Final = Arity(1, None)

OPERATORS: Final[Mapping[str, Arity]] = MappingProxyType(
    {
        **dict.fromkeys(("==", "===", "!=", "!==", ">", ">=", "%", "/"), _TWO),
        **dict.fromkeys(("map", "filter", "all", "none", "some", "in"), _TWO),
        **dict.fromkeys(("starts_with", "ends_with", "missing_some"), _TWO),
        **dict.fromkeys(("<", "<=", "substr"), _TWO_OR_THREE),
        **dict.fromkeys(("if", "or", "and", "+", "-", "max", "min", "merge", "cat"), _SOME),
        **dict.fromkeys(("!", "!!"), Arity(1, 1)),
        **dict.fromkeys(("reduce", "sem_ver"), Arity(3, 3)),
        "fractional": _SOME,
        "*": Arity(2, None),
        "var": Arity(0, 2),
        "missing": Arity(0, None),
    }
)
"""flagd's documented operators."""

UNLISTED: Final = frozenset({"?:", "set", "abs", "contains_all", "contains_any", "contains_none"})
"""Operators that flagd's engine evaluates, but that its schema and other providers' engines lack."""

_LONGEST_NAME: Final = 60


def shorten(value: object) -> str:
    """Return a value as a message shows it: short, whatever its size."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a huge number"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    text = visible(cut(text, _LONGEST_NAME))
    return f'"{text}"' if isinstance(value, str) else text


def reference_name(value: Json) -> str | None:
    """Return the name in `{"$ref": name}`; None for any other value."""
    name = value.get(REFERENCE) if isinstance(value, dict) and len(value) == 1 else None
    return name if isinstance(name, str) else None


def prerequisite_of(value: Json) -> tuple[str, str] | None:
    """Return key and variant in `{"flag": [key, variant]}`; None for any other value."""
    parts = value.get(PREREQUISITE) if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(parts, list) or len(parts) != 2:
        return None
    key, variant = parts
    return (key, variant) if isinstance(key, str) and isinstance(variant, str) else None


_CONTAINERS: Final = frozenset({dict, list})


def is_scalars(value: Json) -> bool:
    """Return whether a value is a list without lists and objects in it."""
    return isinstance(value, list) and _CONTAINERS.isdisjoint(map(type, value))
