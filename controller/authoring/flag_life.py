"""The life of a flag: what its metadata says of it, and facts by which somebody decides whether it may go.
Pure.

Each fact stands alone and has a limit of its own: none of them makes a flag stale. Nothing here changes what
is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from evaluator.flags.model import ABSENT, State
from evaluator.flags.problems import Finding, Problem, Severity, problems_of
from evaluator.flags.text import DEFAULT
from evaluator.host.times import end_of_day, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from evaluator.flags.layer import Layer
    from evaluator.flags.model import Flag, FlagSet, Json, Scalar

EXPIRED: Final = "expired-flag"
BAD_LIFE: Final = "flag-life"
TYPES: Final = ("release", "experiment", "ops", "permission")
"""The values of `metadata.type`."""
LASTING_TYPES: Final = frozenset({"ops", "permission"})
"""Flags of these types are meant to stay."""


class FactName(StrEnum):
    """The facts."""

    EXPIRED = "expired"
    OLD = "old"
    UNCHANGED = "unchanged"
    CONSTANT = "constant"
    UNREQUESTED = "unrequested"
    UNREFERENCED = "unreferenced"


class Fact(NamedTuple):
    """A fact, in words."""

    name: FactName
    words: str


@dataclass(frozen=True, slots=True)
class LifeLimits:
    """From when a fact is told."""

    age: timedelta = timedelta(days=90)
    unchanged: timedelta = timedelta(days=30)
    constant: timedelta = timedelta(days=30)
    """Since the last change: a flag may be prepared before it is used."""


@dataclass(frozen=True, slots=True)
class FlagUse:
    """What is known of a flag from elsewhere; None: nothing is."""

    created: datetime | None = None
    """The commit that added it."""
    changed: datetime | None = None
    """The newest commit that changed it."""
    requests: float | None = None
    """Evaluations in the period that was asked about."""
    references: int | None = None
    """Places of code that refer to it."""


UNKNOWN_USE: Final = FlagUse()


class FlagLife(NamedTuple):
    """What the metadata of a flag says of its life."""

    owner: str = ""
    type: str = ""
    """One of TYPES; empty: none of them."""
    ticket: str = ""
    permanent: bool = False
    expires: datetime | None = None
    """The moment from which it is past its date."""

    @property
    def lasts(self) -> bool:
        """Whether it is meant to stay, so that age and rest say nothing."""
        return self.permanent or self.type in LASTING_TYPES


def life_of(metadata: Mapping[str, Scalar]) -> FlagLife:
    """Read metadata, with what the flag inherits; what is not as it should be counts as absent."""
    type_ = metadata.get("type")
    owner = metadata.get("owner", metadata.get("team", ""))
    return FlagLife(
        str(owner),
        str(type_) if type_ in TYPES else "",
        str(metadata.get("ticket", "")),
        metadata.get("permanent") is True,
        expiry(metadata.get("expires")),
    )


def expiry(text: object) -> datetime | None:
    """The moment from which a flag is past its date: the end of a day such as `2026-12-31`, in UTC, or a time
    with its zone; None for anything else.
    """
    if not isinstance(text, str):
        return None
    try:
        return end_of_day(text)
    except ValueError:
        return parse_time(text)


def facts_of(
    flag: Flag,
    metadata: Mapping[str, Scalar],
    constant: Json,
    use: FlagUse,
    now: datetime,
    limits: LifeLimits,
) -> Iterator[Fact]:
    """Yield the facts of a flag. `constant`: the variant that its rule gives everybody, ABSENT where that
    depends.
    """
    life = life_of(metadata)
    if life.expires is not None and life.expires <= now:
        yield Fact(FactName.EXPIRED, f"past its date, {metadata['expires']}")
    if not life.lasts:
        yield from _times(use, now, limits)
        rested = use.changed is None or now - use.changed >= limits.constant
        if rested and (words := _constant_words(flag, constant)):
            yield Fact(FactName.CONSTANT, words)
    if use.requests == 0:
        yield Fact(FactName.UNREQUESTED, "not requested")
    if use.references == 0:
        yield Fact(FactName.UNREFERENCED, "no code refers to it")


def _times(use: FlagUse, now: datetime, limits: LifeLimits) -> Iterator[Fact]:
    if use.created is not None and now - use.created >= limits.age:
        yield Fact(FactName.OLD, f"{(now - use.created).days} days old")
    if use.changed is not None and now - use.changed >= limits.unchanged:
        yield Fact(FactName.UNCHANGED, f"unchanged for {(now - use.changed).days} days")


def _constant_words(flag: Flag, constant: Json) -> str:
    if flag.state is State.DISABLED:
        return "disabled: everybody gets the code's default"
    variant = flag.default_variant if flag.targeting is ABSENT or flag.targeting == {} else constant
    if variant is ABSENT:
        return ""
    if variant is None:
        return (
            "everybody gets the code's default"
            if flag.default_variant is None
            else _always(flag.default_variant)
        )
    return _always(variant) if isinstance(variant, str) and variant in flag.variants else ""


def _always(variant: str) -> str:
    return f"everybody gets {variant}"


def expiries(flag_set: FlagSet) -> tuple[tuple[datetime, str], ...]:
    """Return (moment, key) of each flag that has a date, sorted."""
    dated = (
        (life_of(flag.metadata_under(flag_set.metadata)).expires, key) for key, flag in flag_set.flags.items()
    )
    return tuple(sorted((moment, key) for moment, key in dated if moment is not None))


def life_notes(layers: Sequence[Layer], flag_set: FlagSet, now: datetime) -> tuple[Problem, ...]:
    """Return a note for each flag past its date, and for metadata on a flag's life that cannot be read, at
    the layer that wrote it.
    """
    found: list[Finding] = []
    for layer in layers:
        for key, piece in layer.flags.items():
            metadata = piece.value.get("metadata") if isinstance(piece.value, dict) else None
            if key not in flag_set.flags or not isinstance(metadata, dict):
                continue
            for name, code, message in _life_problems(metadata, now):
                path = ("metadata", name)
                found.append(piece.finding(Severity.NOTE, code, message, key, below=path))
    return problems_of(found, DEFAULT)


def _life_problems(metadata: Mapping[str, Json], now: datetime) -> Iterator[tuple[str, str, str]]:
    for name, is_right, message in _RULES:
        if metadata.get(name) is not None and not is_right(metadata[name]):
            yield name, BAD_LIFE, f"{message}; it counts as absent"
    end = expiry(metadata.get("expires"))
    if end is not None and end <= now:
        message = f"the flag is past its date, {metadata['expires']}"
        yield "expires", EXPIRED, f"{message}: remove it from the code, then here, or write a later date"


_RULES: Final[tuple[tuple[str, Callable[[Json], bool], str], ...]] = (
    ("expires", lambda value: expiry(value) is not None, "expires is a date such as 2026-12-31, in quotes"),
    ("type", lambda value: value in TYPES, f"type is one of {', '.join(TYPES)}"),
    ("permanent", lambda value: isinstance(value, bool), "permanent is true or false"),
    *(
        (name, lambda value: isinstance(value, str), f"{name} is a text")
        for name in ("owner", "ticket", "description")
    ),
)
