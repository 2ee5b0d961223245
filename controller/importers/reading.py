"""What readers share: refusals, approximations that the user allowed, and access to fields. Pure."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import simplify
from controller.importers.model import (
    NEXT,
    All,
    Always,
    AnyItem,
    AnyOf,
    Arm,
    Condition,
    Imported,
    ImportedFlag,
    ImportRefusal,
    InSegment,
    Not,
    OneOf,
    Remark,
    Segment,
    Serves,
    Text,
    TextPart,
)
from evaluator.flags.text import quote

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from evaluator.flags.model import Json, Scalar

_MOST_PARTS: Final = 10_000
"""Most conditions of one segment: lint refuses larger rules."""
_LITERAL: Final = r"""(?:[^\\^$.|?*+()\[\]{}\n]|\\[^A-Za-z0-9\n|])+"""
_PATTERN: Final = re.compile(rf"(\^)?(?:\(({_LITERAL}(?:\|{_LITERAL})*)\)|({_LITERAL}))(\$)?")
WEIGHTS: Final = 100_000
"""The sum of weights of shares that a format has as fractions."""


class NoExactForm(ValueError):
    """A part of a file has no exact form here."""

    def __init__(self, place: str, message: str, approximation: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.approximation = approximation


class UnreadableFile(ValueError):
    """The file as a whole is not of the format."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file: its name as the user gave it, and what was read from it."""

    name: str
    content: Json


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user decided."""

    environment: str = ""
    """The environment of a file of one; or the only one to take of a file with several."""
    allowed: frozenset[str] = frozenset()
    """Names of approximations."""
    lists: frozenset[str] = frozenset()
    """Attributes whose values are lists."""


@dataclass(slots=True)
class ImportReading:
    """Collects flags, segments, refusals and remarks while files are read."""

    options: ImportOptions
    flags: dict[str, ImportedFlag] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    refusals: list[ImportRefusal] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    _approximations: dict[str, None] = field(default_factory=dict)
    _name: str = ""

    @contextmanager
    def one(self, name: str, place: str, *, segment: bool = False) -> Iterator[None]:
        """Read one flag, or segment: what is refused within is refused for it alone."""
        self._name, self._approximations = name, {}
        try:
            yield
        except NoExactForm as refused:
            at = refused.place or place
            self.refusals.append(ImportRefusal(name, at, refused.message, refused.approximation, segment))
        except RecursionError:
            self.refusals.append(ImportRefusal(name, place, "its rules are nested too deep", "", segment))

    def approximate(self, approximation: str, place: str, message: str) -> None:
        """Go on if the user allowed this approximation, else raise NoExactForm."""
        if approximation not in self.options.allowed:
            raise NoExactForm(place, message, approximation)
        self._approximations[approximation] = None

    def remark(self, place: str, message: str) -> None:
        """Note something about the flag that is read."""
        self.remarks.append(Remark(self._name, place, message))

    def add(self, flag: ImportedFlag) -> None:
        """Keep the flag, with the names of its approximations. One of the same key gets its environments."""
        metadata = dict(flag.metadata)
        if self._approximations:
            metadata["importedWith"] = ", ".join(sorted(self._approximations))
        earlier = self.flags.get(flag.key)
        if earlier is not None:
            if set(earlier.targeting) & set(flag.targeting):
                raise NoExactForm(flag.place, f"there is another flag {quote(flag.key)}, at {earlier.place}")
            if dict(earlier.variants) != dict(flag.variants):
                message = (
                    f"its variants differ from those at {earlier.place}; import each into its own folder"
                )
                raise NoExactForm(flag.place, message)
            flag = replace(flag, targeting={**earlier.targeting, **flag.targeting})
            metadata = {**earlier.metadata, **metadata}
        self.flags[flag.key] = replace(flag, metadata=metadata)

    def add_segment(self, name: str, environment: str, condition: Condition) -> None:
        """Keep the condition of a segment in one environment."""
        earlier = self.segments.get(name)
        conditions = {**(earlier.conditions if earlier else {}), environment: condition}
        self.segments[name] = Segment(name, conditions)

    def result(self) -> Imported:
        """All of it, without flags that need something that was refused or is not in the files. What is
        refused in one environment is refused in all.
        """
        flags, segments = dict(self.flags), dict(self.segments)
        refusals = [*self.refusals, *_write_segments_out(segments)]
        constants = _constants(segments.values())
        flags = {key: _without(flag, constants) for key, flag in flags.items()}
        refused = {(refusal.segment, refusal.name) for refusal in refusals}
        while True:
            flags = {key: flag for key, flag in flags.items() if (False, key) not in refused}
            segments = {name: segment for name, segment in segments.items() if (True, name) not in refused}
            lost = list(_refuse_dependents(flags, segments, refused))
            if not lost:
                break
            refusals += lost
            refused |= {(refusal.segment, refusal.name) for refusal in lost}
        needed = {need for flag in flags.values() for need in _needs_of_flag(flag)}
        kept = tuple(segment for name, segment in segments.items() if (True, name) in needed)
        return Imported(tuple(flags.values()), kept, tuple(refusals), tuple(self.remarks))


def needs(condition: Condition) -> Iterator[tuple[bool, str]]:
    """The segments (true) and flags (false) that a condition names."""
    match condition:
        case All(parts) | AnyOf(parts):
            for part in parts:
                yield from needs(part)
        case Not(part) | AnyItem(_, part):
            yield from needs(part)
        case InSegment(name):
            yield True, name
        case Serves(name):
            yield False, name


def _write_segments_out(segments: dict[str, Segment]) -> Iterator[ImportRefusal]:
    """Write segments within segments out: not every flagd expands references within shared rules."""
    given = dict(segments)
    for name, segment in given.items():
        try:
            conditions = {
                environment: _Inlining(given, environment).inline(condition, (name,))
                for environment, condition in segment.conditions.items()
            }
        except NoExactForm as refused:
            del segments[name]
            yield ImportRefusal(name, refused.place, refused.message, segment=True)
        else:
            segments[name] = Segment(name, conditions)


def _constants(segments: Iterable[Segment]) -> dict[str, dict[str, Condition]]:
    """Segments of everybody or of nobody, by environment."""
    constants: dict[str, dict[str, Condition]] = defaultdict(dict)
    for segment in segments:
        for environment, condition in segment.conditions.items():
            if isinstance(simple := simplify(condition), Always):
                constants[environment][segment.name] = simple
    return constants


def _without(flag: ImportedFlag, constants: Mapping[str, Mapping[str, Condition]]) -> ImportedFlag:
    """The flag with these segments written out."""
    targeting = dict(flag.targeting)
    for environment in constants.keys() & targeting.keys():
        rules = (
            replace(rule, when=_replace(rule.when, constants[environment]))
            for rule in targeting[environment].rules
        )
        targeting[environment] = replace(targeting[environment], rules=tuple(rules))
    return replace(flag, targeting=targeting)


def _replace(condition: Condition, known: Mapping[str, Condition]) -> Condition:
    match condition:
        case All(parts):
            return All(tuple(_replace(part, known) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_replace(part, known) for part in parts))
        case Not(part):
            return Not(_replace(part, known))
        case InSegment(name):
            return known.get(name, condition)
    return condition


@dataclass(slots=True)
class _Inlining:
    segments: Mapping[str, Segment]
    environment: str
    parts: int = 0

    def inline(self, condition: Condition, within: tuple[str, ...]) -> Condition:
        """The condition without segments that are in the files. Raises NoExactForm."""
        self.parts += 1
        place = f"segment {within[0]}"
        if self.parts > _MOST_PARTS:
            raise NoExactForm(place, f"it has more than {_MOST_PARTS} parts, with the segments that it needs")
        match condition:
            case All(parts):
                return All(tuple(self.inline(part, within) for part in parts))
            case AnyOf(parts):
                return AnyOf(tuple(self.inline(part, within) for part in parts))
            case Not(part):
                return Not(self.inline(part, within))
            case InSegment(name) if name in within:
                raise NoExactForm(place, f"segments need each other: {' needs '.join((*within, name))}")
            case InSegment(name) if self.environment in getattr(self.segments.get(name), "conditions", {}):
                return self.inline(self.segments[name].conditions[self.environment], (*within, name))
        return condition


def _needs_of_flag(flag: ImportedFlag) -> Iterator[tuple[bool, str]]:
    for targeting in flag.targeting.values():
        for rule in targeting.rules:
            yield from needs(rule.when)


def flags_needed(flag: ImportedFlag) -> set[str]:
    """The keys of the flags that a flag needs itself."""
    return {name for is_segment, name in _needs_of_flag(flag) if not is_segment}


def _refuse_dependents(
    flags: Mapping[str, ImportedFlag], segments: Mapping[str, Segment], refused: Collection[tuple[bool, str]]
) -> Iterator[ImportRefusal]:
    """Refusals of flags and segments that need what is refused or absent."""
    for flag in flags.values():
        for is_segment, name in _needs_of_flag(flag):
            if name not in (segments if is_segment else flags):
                what = "segment" if is_segment else "flag"
                why = "is refused" if (is_segment, name) in refused else "is not in the files"
                yield ImportRefusal(flag.key, flag.place, f"it needs the {what} {quote(name)}, which {why}")
                break
    for segment in segments.values():
        conditions = segment.conditions.values()
        needed = dict.fromkeys(name for item in conditions for is_segment, name in needs(item) if is_segment)
        for name in needed:
            message = f"it needs the segment {quote(name)}, which is refused or not in the files"
            yield ImportRefusal(segment.name, f"segment {segment.name}", message, segment=True)
            break


def member(value: Any, name: str, kind: type | tuple[type, ...], place: str, default: Any = None) -> Any:
    """The field `name`, of the expected type; null and absence give `default`. Raises NoExactForm."""
    item = value.get(name) if isinstance(value, dict) else None
    if item is None:
        return default
    if not isinstance(item, kind) or (isinstance(item, bool) and kind in (int, float, (int, float))):
        raise NoExactForm(place_of(place, name), f"has {_words(item)}, which this format does not have there")
    return item


def items(value: Any, name: str, place: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of the list `name`, each with its place. Raises NoExactForm."""
    for number, item in enumerate(member(value, name, list, place, [])):
        if not isinstance(item, dict):
            raise NoExactForm(
                f"{place_of(place, name)}[{number}]", f"has {_words(item)} in place of an object"
            )
        yield item, f"{place_of(place, name)}[{number}]"


def place_of(place: str, name: str) -> str:
    """The place of a field of the object at `place`, which for a whole file ends with a colon."""
    return f"{place}{name}" if place.endswith(":") else f"{place}.{name}"


def _words(value: Json) -> str:
    return {str: "a text", bool: "a boolean", dict: "an object", list: "a list"}.get(type(value), "a number")


def attribute_path(name: str, place: str) -> str:
    """A name of an attribute, as a path of `var`, which divides at dots. Raises NoExactForm."""
    if not name or "." in name:
        message = (
            f"the attribute {quote(name)} has a dot, which divides a path here; rename it in the contexts"
        )
        raise NoExactForm(place, message if name else "names no attribute")
    return name


def text_pattern(attribute: str, pattern: str, place: str) -> Condition:
    """Whether the attribute is a text that a regular expression finds, which is a text or several in
    parentheses, maybe with ^ and $. Raises NoExactForm for others.
    """
    match = _PATTERN.fullmatch(pattern)
    if match is None:
        message = f"the regular expression {quote(pattern)} has no form here; list the texts that it finds"
        raise NoExactForm(place, message)
    start, several, one, end = match.groups(default="")
    texts = tuple(re.sub(r"\\(.)", r"\1", text) for text in (several or one).split("|"))
    if start and end:
        return OneOf(attribute, texts)
    return Text(attribute, TextPart.START if start else TextPart.END if end else TextPart.ANYWHERE, texts)


def whole_weights(shares: Iterable[float], place: str) -> list[int]:
    """Shares of any sum as whole numbers. Raises NoExactForm for what is negative or no number."""
    given = list(shares)
    if any(not math.isfinite(share) or share < 0 for share in given):
        raise NoExactForm(place, "a share of users is negative, or no number")
    if all(float(share).is_integer() for share in given) and sum(given) <= 2**31 - 1:
        return [int(share) for share in given]
    total = sum(given)
    return [round(share / total * WEIGHTS) for share in given]


def arms_of_ranges(
    ranges: Sequence[tuple[float, float, Arm]], end: float, place: str
) -> tuple[tuple[Arm, int], ...]:
    """Arms for parts of 0 to `end`: the first range that has a part has its users, else NEXT."""

    def arm_at(point: float) -> Arm:
        return next((arm for low, high, arm in ranges if low <= point < high), NEXT)

    inner = {min(max(bound, 0.0), end) for low, high, _ in ranges for bound in (low, high)}
    bounds = sorted({0.0, end, *inner})
    weights = whole_weights([high - low for low, high in itertools.pairwise(bounds)], place)
    return tuple(zip(map(arm_at, bounds[:-1]), weights, strict=True))


def scalars(fields: Mapping[str, object]) -> dict[str, Scalar]:
    """Metadata: texts, numbers and booleans as they are, lists of these as one text; the rest is left out."""
    kept: dict[str, Scalar] = {}
    for name, value in fields.items():
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            kept[name] = ", ".join(value)
        elif isinstance(value, str | bool | int | float) and value != "":
            kept[name] = value
    return kept


def variant_names(values: Iterable[Json], names: Iterable[str | None]) -> list[str]:
    """Names of variants, each once: as given, else after the value: on, off, a short text, a number."""
    taken: dict[str, None] = {}
    for number, (value, given) in enumerate(zip(values, names, strict=True)):
        name = _slug(given) if given else _name_of_value(value)
        name = name or f"variant-{number + 1}"
        while name in taken:
            name = f"{name}-{number + 1}"
        taken[name] = None
    return list(taken)


def _name_of_value(value: Json) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str | int | float):
        return _slug(str(value))
    return ""


def _slug(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]+", "-", text).strip("-")[:60].lower()
