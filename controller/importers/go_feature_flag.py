"""Reads GO Feature Flag: a file of flags in YAML, JSON or TOML. Pure.

Sources: thomaspoignant/go-feature-flag, modules/core/flag, and .schema/flag-schema.json. Scheduled steps
become branches by time. They add up, except that a rule which a step adds is gone with the next step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from controller.importers.go_feature_flag_queries import parse_query
from controller.importers.model import (
    ANY,
    TARGETING_KEY,
    All,
    AnyOf,
    Condition,
    During,
    ImportedFlag,
    InGrowingShare,
    IsText,
    Not,
    OneOf,
    Outcome,
    Rule,
    Targeting,
    TargetingRule,
    UserHash,
    UserSplit,
)
from controller.importers.reading import (
    ImportReading,
    NoExactForm,
    SourceFile,
    UnreadableFile,
    items,
    member,
    scalars,
)
from evaluator.flags.diff import same
from evaluator.flags.known_operators import MOST_WEIGHT
from evaluator.flags.text import quote
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evaluator.flags.model import Json

_PARTS: Final = 1000
"""A percentage has thousandths."""
_RAMP: Final = "progressiveRollout"
_MOST_STEPS: Final = 100


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags. Raises UnreadableFile."""
    environment = reading.options.environment
    for file in files:
        if not isinstance(file.content, dict):
            raise UnreadableFile(f"{file.name}: has no object with flags")
        for key, flag in file.content.items():
            place = f"{file.name}:{key}"
            with reading.one(key, place):
                if not isinstance(flag, dict) or not isinstance(flag.get("variations"), dict):
                    raise NoExactForm(place, "has no variations")
                reader = _FlagReader(reading, flag, place)
                targeting = {environment: reader.targeting()}
                given = member(flag, "metadata", dict, place, {})
                metadata = scalars({"version": flag.get("version"), **given})
                reading.add(ImportedFlag(key, place, reader.variants, targeting, metadata))


@dataclass(frozen=True, slots=True)
class _Step:
    date: int
    """When it is applied, in Unix seconds."""
    change: dict[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class _PlacedRule:
    rule: dict[str, Any]
    place: str

    def name(self) -> str:
        return str(member(self.rule, "name", str, self.place, ""))

    def merge(self, update: dict[str, Any]) -> _PlacedRule:
        """The rule with what the update has of it. A negative percentage takes a variation out."""
        fields = ("disable", "query", "variation")
        merged = {**self.rule, **{name: update[name] for name in fields if update.get(name) is not None}}
        ramp = member(update, _RAMP, dict, self.place)
        if ramp is not None:
            old = member(merged, _RAMP, dict, self.place, {})
            merged[_RAMP] = {end: _update(old, ramp, end, self.place) for end in ("initial", "end")}
        weights = _update(merged, update, "percentage", self.place)
        if weights:
            merged["percentage"] = {
                name: weight for name, weight in weights.items() if not _is_negative(weight)
            }
        return _PlacedRule(merged, self.place)


def _update(value: dict[str, Any], update: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    """The object `name` with the fields of the update that are not null."""
    new = member(update, name, dict, place, {})
    fields = {key: item for key, item in new.items() if item is not None}
    return {**member(value, name, dict, place, {}), **fields}


def _is_negative(weight: object) -> bool:
    return isinstance(weight, int | float) and weight < 0


@dataclass(slots=True)
class _FlagReader:
    reading: ImportReading
    flag: dict[str, Any]
    place: str
    variants: dict[str, Json] = field(default_factory=dict)

    def targeting(self) -> Targeting:
        steps = list(self._steps())
        if len(steps) > _MOST_STEPS:
            raise NoExactForm(f"{self.place}.scheduledRollout", f"has more than {_MOST_STEPS} steps")
        rules: list[TargetingRule] = []
        for start, end in pairwise([None, *sorted({step.date for step in steps}), None]):
            state = self._state([step for step in steps if start is not None and step.date <= start])
            of_state, otherwise = state.branches()
            if not steps:
                # The rules of a flag that is off are kept: they are the same when it is turned on.
                return Targeting(otherwise, tuple(of_state), enabled=not state.is_disabled())
            if state.is_disabled():
                of_state, otherwise = [], None
            if end is None:
                return Targeting(otherwise, (*rules, *of_state))
            until = During(None, end)
            rules += [TargetingRule(All((until, rule.when)), rule.then) for rule in of_state]
            rules.append(TargetingRule(until, otherwise))
        raise AssertionError("the last time has no end")

    def _steps(self) -> Iterator[_Step]:
        """The steps. One without a date is never applied."""
        for change, at in items(self.flag, "scheduledRollout", self.place):
            date = _moment(change, "date", at)
            if date is not None:
                yield _Step(math.ceil(date), change, at)

    def _state(self, steps: Sequence[_Step]) -> _State:
        """The flag after these steps."""
        fields = dict(self.flag)
        default = _PlacedRule(
            member(fields, "defaultRule", dict, self.place, {}), f"{self.place}.defaultRule"
        )
        rules = [_PlacedRule(*part) for part in items(fields, "targeting", self.place)]
        added: list[_PlacedRule] = []
        for step in steps:
            if step.change.get("disable") is not None:
                fields["disable"] = step.change["disable"]
            for name in ("variations", "experimentation"):
                fields[name] = _update(fields, step.change, name, step.place)
            default = default.merge(member(step.change, "defaultRule", dict, step.place, {}))
            updates = [_PlacedRule(*part) for part in items(step.change, "targeting", step.place)]
            by_name = {update.name(): update.rule for update in updates if update.name()}
            known = {rule.name() for rule in rules if rule.name()}
            added = [update for update in updates if update.name() not in known]
            rules = [rule.merge(by_name.get(rule.name(), {})) for rule in rules]
        return _State(self, fields, [*rules, *added], default)

    def variant(self, given: object, variations: dict[str, Json], place: str) -> str:
        """The variant with the value that the variation has in a state: a step may change values."""
        name = _variation(given, variations)
        value = variations.get(name)
        if value is None:
            raise NoExactForm(place, f"there is no variation {quote(name)}" if name else "is missing")
        candidate, number = name, 1
        while candidate in self.variants and not same(self.variants[candidate], value):
            number += 1
            candidate = f"{name}-{number}"
        self.variants[candidate] = value
        return candidate

    def divides_later(self) -> bool:
        """Whether a rule of a step divides users: then nobody without a key gets a variation, at any time."""
        steps = items(self.flag, "scheduledRollout", self.place)
        rules = (rule for step, at in steps for rule, _ in items(step, "targeting", at))
        return any(map(_divides, rules))


def _variation(given: object, variations: dict[str, Json]) -> str:
    """The name of a variation. GO Feature Flag reads `True` and `5` in YAML as texts."""
    name = "" if given is None else str(given)
    if isinstance(given, bool):
        spelled = [other for other in variations if other.lower() == name.lower()]
        return spelled[0] if len(spelled) == 1 else name
    return name


def _divides(rule: dict[str, Any]) -> bool:
    return bool(rule.get("percentage")) or rule.get(_RAMP) is not None


@dataclass(frozen=True, slots=True)
class _State:
    """A flag at one time."""

    reader: _FlagReader
    fields: dict[str, Any]
    placed: list[_PlacedRule]
    default: _PlacedRule

    def is_disabled(self) -> bool:
        return bool(member(self.fields, "disable", bool, self.reader.place, False))

    def branches(self) -> tuple[list[TargetingRule], Outcome]:
        """The rules, and the outcome of those to whom none applies."""
        variations = member(self.fields, "variations", dict, self.reader.place, {})
        for name in variations:
            self.reader.variant(name, variations, f"{self.reader.place}.variations.{name}")
        *rest, last = self._outcomes(self.default, All(()))
        return [*self._rules(), *rest], last.then

    def _rules(self) -> Iterator[TargetingRule]:
        place = self.reader.place
        experiment = member(self.fields, "experimentation", dict, place, {})
        start, end = (_moment(experiment, name, f"{place}.experimentation") for name in ("start", "end"))
        if start is not None or end is not None:
            first = None if start is None else math.ceil(start)
            last = None if end is None else math.floor(end) + 1
            yield TargetingRule(Not(During(first, last)), None)
        yield from self._without_bucket()
        names = [rule.name() for rule in self.placed if rule.name()]
        if len(set(names)) < len(names):
            raise NoExactForm(f"{place}.targeting", "two rules have one name")
        for rule in self.placed:
            if member(rule.rule, "disable", bool, rule.place, False):
                continue
            query = member(rule.rule, "query", str, rule.place, "")
            if not query.strip():
                raise NoExactForm(rule.place, "has no query")
            when = parse_query(query, f"{rule.place}.query", self.reader.reading)
            yield from self._outcomes(rule, when)

    def _hash(self) -> UserHash:
        path = member(self.fields, "bucketingKey", str, self.reader.place, "")
        if path and not all(path.split(".")):
            raise NoExactForm(f"{self.reader.place}.bucketingKey", "names no attribute")
        return UserHash(path) if path else UserHash()

    def _without_bucket(self) -> Iterator[TargetingRule]:
        """Users without the attribute that divides users get the value in the code, if any rule divides them;
        those without one that the flag names itself, always.
        """
        attribute = self._hash().attribute
        divides = any(map(_divides, [self.default.rule, *(rule.rule for rule in self.placed)]))
        divides = divides or self.reader.divides_later()
        if attribute != TARGETING_KEY:
            empty = OneOf(attribute, ("",) if divides else ())
            yield TargetingRule(AnyOf((Not(IsText(attribute)), empty)), None)
        elif divides:
            yield TargetingRule(Rule({"!": [{"var": attribute}]}), None)

    def _outcomes(self, rule: _PlacedRule, when: Condition) -> Iterator[TargetingRule]:
        """What users get of whom `when` is true."""
        ramp = member(rule.rule, _RAMP, dict, rule.place)
        weights = member(rule.rule, "percentage", dict, rule.place, {})
        if ramp is not None:
            yield from self._ramp(ramp, when, f"{rule.place}.{_RAMP}")
        elif weights:
            yield TargetingRule(when, self._split(weights, f"{rule.place}.percentage"))
        else:
            yield TargetingRule(when, self._variant(rule.rule.get("variation"), f"{rule.place}.variation"))

    def _variant(self, name: object, place: str) -> str:
        variations = member(self.fields, "variations", dict, self.reader.place, {})
        return self.reader.variant(name, variations, place)

    def _split(self, weights: dict[str, Any], place: str) -> UserSplit:
        arms, total = [], 0.0
        # The order in which GO Feature Flag has them.
        for name in sorted(weights, reverse=True):
            weight = member(weights, name, (int, float), place, 0)
            end = total + weight * _PARTS
            if weight < 0 or not end <= MOST_WEIGHT:
                raise NoExactForm(f"{place}.{name}", "is no percentage")
            arms.append((self._variant(name, f"{place}.{name}"), int(end) - int(total)))
            total = end
        if total < 1:
            raise NoExactForm(place, "the sum of percentages is 0")
        return UserSplit(tuple(arms), self._hash(), ANY)

    def _ramp(self, ramp: dict[str, Any], when: Condition, place: str) -> Iterator[TargetingRule]:
        """Between two dates, more and more users get the variation of the end."""
        (start, before, first), (end, after, last) = (
            self._end_of_ramp(ramp, name, f"{place}.{name}") for name in ("initial", "end")
        )
        # No percentage at the end, or one of 0, is all.
        last = last if 0 < last <= 100 * _PARTS else 100 * _PARTS
        seconds, whole = end - start, 100 * _PARTS
        divisor = math.gcd(first * seconds, whole * seconds, last - first)
        if not 0 <= first <= last or seconds <= 0:
            raise NoExactForm(place, "it has to grow, from an earlier date to a later one")
        if whole * seconds // divisor > MOST_WEIGHT:
            raise NoExactForm(place, "is too long for such percentages; take whole ones, or less time")
        growing = InGrowingShare(self._hash(), start, end, first, last, whole)
        yield TargetingRule(All((when, During(None, start))), before)
        yield TargetingRule(All((when, During(None, end), growing)), after)
        yield TargetingRule(All((when, During(None, end))), before)
        yield TargetingRule(when, UserSplit(((after, last), (before, whole - last)), self._hash(), ANY))

    def _end_of_ramp(self, ramp: dict[str, Any], name: str, place: str) -> tuple[int, str, int]:
        """The date, the variation, and its users in parts of a percent."""
        part = member(ramp, name, dict, place, {})
        date = _moment(part, "date", place)
        if date is None:
            raise NoExactForm(place, "has no date")
        percentage = member(part, "percentage", (int, float), place, 0)
        if not abs(percentage) <= MOST_WEIGHT:
            raise NoExactForm(place, "is no percentage")
        return math.floor(date), self._variant(part.get("variation"), place), round(percentage * _PARTS)


def _moment(value: dict[str, Any], name: str, place: str) -> float | None:
    """The time of the field in Unix seconds; a day alone begins at midnight in UTC."""
    text = member(value, name, str, place)
    if text is None:
        return None
    time = parse_time(f"{text}T00:00:00Z" if len(text) == len("2026-01-31") else text)
    if time is None:
        raise NoExactForm(f"{place}.{name}", f"{quote(text)} is no date with a time zone")
    return time.timestamp()
