"""Flags of another product, as its reader understood them. Pure.

Conditions are exact: each is true or false of every context, also where an attribute is missing or has
another type. A reader says what its product does with these by the conditions that it joins; nothing is left
to the conversions of targeting rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.flags.model import Json, Scalar

TARGETING_KEY: Final = "targetingKey"
ONLY: Final = ""
"""The name of the environment where a format has no environments."""


class Relation(StrEnum):
    """Comparisons of two numbers, or of two versions."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


class TextPart(StrEnum):
    """Where one text is within another."""

    START = "starts_with"
    END = "ends_with"
    ANYWHERE = "contains"


@dataclass(frozen=True, slots=True)
class Always:
    """True of every context, or of none."""

    value: bool = True


@dataclass(frozen=True, slots=True)
class All:
    """Whether all conditions are true; true without any."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Whether one condition is true; false without any."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Whether the condition is false."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Present:
    """Whether the attribute is there and not null. Attributes are dotted paths."""

    attribute: str


@dataclass(frozen=True, slots=True)
class IsText:
    """Whether the attribute is a text."""

    attribute: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether the attribute equals one of the values, without conversion of types: 1 is 1.0, and not "1"."""

    attribute: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """Whether the attribute is a number in this order to `number`."""

    attribute: str
    order: Relation
    number: float
    texts: bool = False
    """Whether texts that are numbers count, too."""


@dataclass(frozen=True, slots=True)
class Text:
    """Whether the attribute is a text that has one of `texts` at its start, its end or anywhere."""

    attribute: str
    part: TextPart
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SemanticVersion:
    """Whether the attribute is a semantic version (also `v1`, `1.2`, a number) in this order to another."""

    attribute: str
    order: Relation
    version: str
    whole: bool = False
    """Whether only texts with all three numbers count, without a `v`, as https://semver.org has them."""


@dataclass(frozen=True, slots=True)
class AnyItem:
    """Whether the condition, which reads `ITEM`, is true of the attribute, or of an item if it is a list."""

    attribute: str
    condition: Condition


ITEM: Final = ""
"""The attribute that is the item itself, within AnyItem."""


@dataclass(frozen=True, slots=True)
class During:
    """Whether the time is at or after `start`, and before `end`, in Unix seconds."""

    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class InSegment:
    """Whether the condition of the segment is true."""

    segment: str


@dataclass(frozen=True, slots=True)
class Serves:
    """Whether another flag gives one of these variants."""

    flag: str
    variants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserHash:
    """What divides users: an attribute, hashed with `seed`, by default the flag's key."""

    attribute: str = TARGETING_KEY
    seed: str | None = None


@dataclass(frozen=True, slots=True)
class InShare:
    """Whether a user is in the first `weight` of `of` parts of all users. False without the attribute."""

    bucket: UserHash
    weight: int
    of: int


@dataclass(frozen=True, slots=True)
class InGrowingShare:
    """Whether a user is in the first of `of` parts of all users. Their number changes evenly from `first` at
    `start` to `last` at `end`, in Unix seconds; the condition is only used between these. False without the
    attribute.
    """

    bucket: UserHash
    start: int
    end: int
    first: int
    last: int
    of: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A targeting rule of ours, used as it is for its truth."""

    rule: Json


Condition: TypeAlias = (
    Always | All | AnyOf | Not | Present | IsText | OneOf | Number | Text | SemanticVersion | AnyItem | During
    | InShare | InGrowingShare | InSegment | Serves | Rule
)  # fmt: skip


class Next(Enum):
    """Outcomes that are no variant."""

    NEXT = "next"
    """The rule leaves these users to the rules after it."""
    ANY = "any"
    """The other product has no such users, so any outcome is right."""


NEXT: Final = Next.NEXT
ANY: Final = Next.ANY
Arm: TypeAlias = str | Next | None
"""A variant; None: the value in the caller's code; or NEXT. ANY is only for what `missing` says."""


@dataclass(frozen=True, slots=True)
class UserSplit:
    """Users divided by a hash: arms with weights, which are whole numbers."""

    arms: tuple[tuple[Arm, int], ...]
    bucket: UserHash = UserHash()
    missing: Arm = NEXT
    """The outcome of users without the bucket's attribute."""


Outcome: TypeAlias = Arm | UserSplit


@dataclass(frozen=True, slots=True)
class TargetingRule:
    """A rule: users of whom `when` is true get the outcome."""

    when: Condition
    then: Outcome


@dataclass(frozen=True, slots=True)
class Targeting:
    """What a flag answers in one environment: the first rule that is true, else `otherwise`."""

    otherwise: Outcome
    """Not NEXT; in a UserSplit, NEXT is `off`."""
    rules: tuple[TargetingRule, ...] = ()
    off: str | None = None
    """The variant of users for whom no rule has an outcome."""
    enabled: bool = True
    """False: every caller gets the value in its code."""


@dataclass(frozen=True, slots=True)
class ImportedFlag:
    """One flag. `targeting` is by the name of the environment."""

    key: str
    place: str
    variants: Mapping[str, Json]
    targeting: Mapping[str, Targeting]
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """A condition that flags share. `conditions` are by the name of the environment."""

    name: str
    conditions: Mapping[str, Condition]


@dataclass(frozen=True, slots=True)
class ImportRefusal:
    """A flag or segment that has no exact form here."""

    name: str
    place: str
    message: str
    """What has no exact form, and what to do."""
    approximation: str = ""
    """The argument of `--allow` by which it is imported all the same; empty: there is none."""
    segment: bool = False
    """Whether it is a segment that is refused."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to know about a flag that is imported, such as a field without an effect."""

    name: str
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Imported:
    """All that a reader made of its files."""

    flags: tuple[ImportedFlag, ...]
    segments: tuple[Segment, ...] = ()
    refusals: tuple[ImportRefusal, ...] = ()
    remarks: tuple[Remark, ...] = ()
