"""The answer of an evaluation: a value, a variant and a reason, or an error. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import ABSENT, EMPTY, Absent, Flag, Json, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal


class EvaluationReason(StrEnum):
    """The reason of an answer. flagd defines SPLIT and never gives it."""

    STATIC = "STATIC"
    DEFAULT = "DEFAULT"
    TARGETING_MATCH = "TARGETING_MATCH"
    SPLIT = "SPLIT"
    DISABLED = "DISABLED"
    ERROR = "ERROR"


class ErrorCode(StrEnum):
    """The kind of error; INVALID_CONTEXT is set by servers, before a flag is resolved."""

    FLAG_NOT_FOUND = "FLAG_NOT_FOUND"
    PARSE_ERROR = "PARSE_ERROR"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    GENERAL = "GENERAL"
    INVALID_CONTEXT = "INVALID_CONTEXT"


class FlagType(StrEnum):
    """A type that a caller may ask for."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    OBJECT = "OBJECT"


@dataclass(frozen=True, slots=True, eq=False)
class Resolution:
    """An answer; equal only to itself."""

    value: Json | Literal[Absent.ABSENT]
    """ABSENT: the caller's code default stands, or there was an error."""
    variant: str | None
    reason: EvaluationReason
    error_code: ErrorCode | None = None
    error_message: str = ""
    """The error for the caller; never quotes the context."""
    metadata: Mapping[str, Scalar] = field(default_factory=lambda: EMPTY)
    """The set's, patched by the flag's own."""


NOT_FOUND: Final = Resolution(
    ABSENT, None, EvaluationReason.ERROR, ErrorCode.FLAG_NOT_FOUND, "flag not found"
)


def flag_type(flag: Flag) -> FlagType | None:
    """The type of the default variant: any number is FLOAT, as in JSON; None for none, lists and null."""
    value = flag.variants.get(flag.default_variant) if flag.default_variant is not None else None
    if isinstance(value, bool):
        return FlagType.BOOLEAN
    if isinstance(value, str):
        return FlagType.STRING
    if isinstance(value, int | float):
        return FlagType.FLOAT
    return FlagType.OBJECT if isinstance(value, dict) else None


def coerce(value: Json, wanted: FlagType | None) -> Json | Literal[Absent.ABSENT]:
    """`value` as the wanted type, or ABSENT. INTEGER truncates a float64, FLOAT widens an integer. What 64
    bits cannot hold is no INTEGER, where flagd would answer with some other number.
    """
    if wanted is None:
        return ABSENT if value is None else value
    if wanted is FlagType.INTEGER or wanted is FlagType.FLOAT:
        return _coerce_number(value, wanted)
    expected = {FlagType.BOOLEAN: bool, FlagType.STRING: str, FlagType.OBJECT: dict}[wanted]
    return value if isinstance(value, expected) else ABSENT


def _coerce_number(value: Json, wanted: FlagType) -> float | Literal[Absent.ABSENT]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ABSENT
    try:
        real = float(value)
    except OverflowError:
        return ABSENT
    if wanted is FlagType.FLOAT:
        return real
    return int(real) if math.isfinite(real) and -(2.0**63) <= real < 2.0**63 else ABSENT
