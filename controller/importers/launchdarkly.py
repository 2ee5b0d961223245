"""Reads LaunchDarkly: flags and segments of its API, or a data file of its SDKs. Pure.

Sources: https://launchdarkly.com/docs/api/feature-flags, and the data model of the public sdk-test-harness.
A context of kind `user` is the OpenFeature context itself; another kind is the attribute of its name, with
`key` and the attributes of that kind within.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER
from controller.importers.model import (
    ANY,
    ITEM,
    ONLY,
    TARGETING_KEY,
    All,
    Always,
    AnyItem,
    AnyOf,
    Arm,
    Condition,
    ImportedFlag,
    InSegment,
    InShare,
    IsText,
    Not,
    Number,
    OneOf,
    Outcome,
    Present,
    Relation,
    SemanticVersion,
    Serves,
    Targeting,
    TargetingRule,
    Text,
    TextPart,
    UserHash,
    UserSplit,
)
from controller.importers.reading import (
    ImportReading,
    NoExactForm,
    SourceFile,
    UnreadableFile,
    attribute_path,
    items,
    member,
    scalars,
    variant_names,
)
from evaluator.flags.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_USER: Final = "user"
_WHOLE: Final = 100_000
"""The sum of the weights of a rollout."""
_NUMBERS: Final = {
    "lessThan": Relation.LESS,
    "lessThanOrEqual": Relation.AT_MOST,
    "greaterThan": Relation.MORE,
    "greaterThanOrEqual": Relation.AT_LEAST,
}
_TEXTS: Final = {"startsWith": TextPart.START, "endsWith": TextPart.END, "contains": TextPart.ANYWHERE}
_VERSIONS: Final = {
    "semVerEqual": Relation.EQUAL,
    "semVerLessThan": Relation.LESS,
    "semVerGreaterThan": Relation.MORE,
}
_DATES: Final = {"before": Relation.LESS, "after": Relation.MORE}
_VERSION: Final = re.compile(r"(\d+)(\.\d+)?(\.\d+)?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags and segments. Raises UnreadableFile."""
    flags: dict[str, tuple[dict[str, Any], str]] = {}
    segments: list[tuple[dict[str, Any], str, str]] = []
    for file in files:
        for key, value, place in _members(file):
            if "environments" in value or "on" in value or "variations" in value:
                flags[key] = (value, place)
            else:
                segments.append((value, place, _environment_of_segment(value)))
    environments = sorted({name for flag, _ in flags.values() for name in _inner(flag, "environments")})
    chosen = reading.options.environment
    if chosen and environments and chosen not in environments:
        raise UnreadableFile(f"no flag has the environment {chosen}; there are {', '.join(environments)}")
    names = [chosen] if chosen and environments else environments or [ONLY]
    for name in names:
        states = {key: _in_environment(flag, name) for key, (flag, _) in flags.items()}
        known = {str(value.get("key")) for value, _, of in segments if of in ("", name)}
        flag_reader = _EnvironmentReader(reading, name, states, known)
        for value, place, of in segments:
            if of in ("", name):
                flag_reader.read_segment(value, place)
        for key, (_, place) in flags.items():
            if states[key] is not None:
                flag_reader.read_flag(key, place)


def _members(file: SourceFile) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The flags and segments of a file: key, content and place."""
    content: Any = file.content
    if not isinstance(content, dict):
        raise UnreadableFile(f"{file.name}: has no object with flags or segments")
    if "items" in content or "environments" in content:
        listed = [content] if "environments" in content else content["items"]
        for number, item in enumerate(listed if isinstance(listed, list) else []):
            if isinstance(item, dict) and isinstance(item.get("key"), str):
                yield item["key"], item, f"{file.name}:items[{number}]"
        return
    for section in ("flags", "segments"):
        for key, item in member(content, section, dict, file.name, {}).items():
            if isinstance(item, dict):
                yield key, {"key": key, **item}, f"{file.name}:{section}.{key}"
    for key, value in member(content, "flagValues", dict, file.name, {}).items():
        flag = {"key": key, "on": True, "variations": [value], "fallthrough": {"variation": 0}}
        yield key, flag, f"{file.name}:flagValues.{key}"


def _environment_of_segment(segment: Mapping[str, Any]) -> str:
    """The environment by the segment's address, `/api/v2/segments/PROJECT/ENVIRONMENT/KEY`; empty: any."""
    address = str(_inner(segment, "_links", "self").get("href")).split("/")
    return address[5] if len(address) > 6 and address[3] == "segments" else ""


def _inner(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The object below these fields; an empty one where there is none."""
    part: Any = value
    for name in names:
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else {}


def _in_environment(flag: dict[str, Any], environment: str) -> dict[str, Any] | None:
    """The flag with its state in one environment; None: it has none there."""
    if environment == ONLY:
        return flag
    state = _inner(flag, "environments").get(environment)
    return {**flag, **state} if isinstance(state, dict) else None


@dataclass(slots=True)
class _EnvironmentReader:
    reading: ImportReading
    environment: str
    states: dict[str, dict[str, Any] | None]
    segments: set[str]

    def read_flag(self, key: str, place: str) -> None:
        flag = self.states[key] or {}
        with self.reading.one(key, place):
            if flag.get("archived"):
                raise NoExactForm(place, "it is archived in LaunchDarkly, and not imported")
            names = self._variant_names(flag, place)
            values = [part["value"] for part in _variations(flag, place)]
            targeting = self._targeting(flag, names, place)
            variants = dict(zip(names, values, strict=True))
            metadata = scalars(
                {
                    "description": flag.get("description"),
                    "owner": _inner(flag, "_maintainer").get("email") or flag.get("maintainerId"),
                    "tags": flag.get("tags"),
                    "permanent": True if flag.get("temporary") is False else None,
                }
            )
            self.reading.add(ImportedFlag(key, place, variants, {self.environment: targeting}, metadata))

    def read_segment(self, segment: dict[str, Any], place: str) -> None:
        name = str(segment.get("key"))
        with self.reading.one(name, place, segment=True):
            if segment.get("unbounded"):
                raise NoExactForm(place, "its members are not in the file, since it is a big segment")
            included = self._members(segment, "included", place)
            excluded = self._members(segment, "excluded", place)
            rules = AnyOf(tuple(self._segment_rule(name, *rule) for rule in items(segment, "rules", place)))
            condition = AnyOf((included, All((Not(excluded), rules))))
            self.reading.add_segment(name, self.environment, condition)

    def _members(self, segment: dict[str, Any], field: str, place: str) -> Condition:
        keys = [OneOf(TARGETING_KEY, _keys(segment, field, place))]
        for part, at in items(segment, f"{field}Contexts", place):
            kind = member(part, "contextKind", str, at, _USER)
            keys.append(OneOf(_path(kind, "key", at), _keys(part, "values", at)))
        return AnyOf(tuple(keys))

    def _segment_rule(self, segment: str, rule: dict[str, Any], place: str) -> Condition:
        clauses = self._clauses(rule, place)
        weight = member(rule, "weight", int, place)
        if weight is None or weight >= _WHOLE:
            return clauses
        bucket = UserHash(self._bucket_attribute(rule, "rolloutContextKind", place), f"{segment}.")
        # LaunchDarkly puts who has no such attribute into the first bucket.
        missing = [] if bucket.attribute == TARGETING_KEY else [Not(Present(bucket.attribute))]
        return All((clauses, AnyOf((*missing, InShare(bucket, weight, _WHOLE)))))

    def _variant_names(self, flag: Mapping[str, Any], place: str) -> list[str]:
        parts = _variations(flag, place)
        given = [part.get("name") if isinstance(part.get("name"), str) else None for part in parts]
        return variant_names([part["value"] for part in parts], given)

    def _targeting(self, flag: Mapping[str, Any], names: list[str], place: str) -> Targeting:
        off = self._variation(flag, "offVariation", names, place, required=False)
        if not flag.get("on"):
            return Targeting(off)
        rules = []
        prerequisites = [self._prerequisite(*part) for part in items(flag, "prerequisites", place)]
        if prerequisites:
            rules.append(TargetingRule(Not(All(tuple(prerequisites))), off))
        rules += self._targets(flag, names, place)
        for rule, at in items(flag, "rules", place):
            rules.append(TargetingRule(self._clauses(rule, at), self._outcome(rule, names, at)))
        fallthrough = member(flag, "fallthrough", dict, place, {})
        otherwise = self._outcome(fallthrough, names, f"{place}.fallthrough")
        return Targeting(otherwise, tuple(rules), off)

    def _variation(
        self, value: Mapping[str, Any], field: str, names: list[str], place: str, *, required: bool = True
    ) -> str | None:
        index = member(value, field, int, place)
        if index is None and not required:
            return None
        if index is None or not 0 <= index < len(names):
            raise NoExactForm(f"{place}.{field}", f"there is no variation {index}")
        return str(names[index])

    def _prerequisite(self, part: dict[str, Any], place: str) -> Condition:
        key = member(part, "key", str, place, "")
        flag = self.states.get(key)
        if flag is None:
            raise NoExactForm(place, f"it needs the flag {quote(key)}, which is not in the files")
        if not flag.get("on"):
            # An off flag fulfils no prerequisite, whatever its off variation is.
            return NEVER
        variant = self._variation(part, "variation", self._variant_names(flag, place), place)
        return Serves(key, (variant,)) if variant is not None else NEVER

    def _targets(self, flag: Mapping[str, Any], names: list[str], place: str) -> Iterator[TargetingRule]:
        users = list(items(flag, "targets", place))
        contexts = list(items(flag, "contextTargets", place))
        for part, at in contexts or users:
            kind = member(part, "contextKind", str, at, _USER)
            values = _keys(part, "values", at)
            if contexts and kind == _USER and not values:
                same = (other for other in users if other[0].get("variation") == part.get("variation"))
                values = next((_keys(other, "values", place_of) for other, place_of in same), ())
            variant = self._variation(part, "variation", names, at)
            yield TargetingRule(OneOf(_path(kind, "key", at), values), variant)

    def _outcome(self, value: Mapping[str, Any], names: list[str], place: str) -> Outcome:
        rollout = member(value, "rollout", dict, place)
        if rollout is None:
            return self._variation(value, "variation", names, place)
        at = f"{place}.rollout"
        if rollout.get("kind") == "experiment" or rollout.get("experimentAllocation"):
            self.reading.approximate("experiments", at, "users are in an experiment, which measures them")
        weights: list[tuple[Arm, int]] = []
        for part, part_at in items(rollout, "variations", at):
            weight = member(part, "weight", int, part_at, 0)
            weights.append((self._variation(part, "variation", names, part_at), weight))
        if not weights:
            raise NoExactForm(at, "a rollout without variations")
        # Whoever is past the sum of the weights gets the last variation.
        missing_weight = _WHOLE - sum(weight for _, weight in weights)
        weights[-1] = (weights[-1][0], weights[-1][1] + max(0, missing_weight))
        bucket = UserHash(
            self._bucket_attribute(rollout, "contextKind", at), rollout.get("seed") and f"{rollout['seed']}."
        )
        first = next((arm for arm, weight in weights if weight > 0), weights[-1][0])
        missing = ANY if bucket.attribute == TARGETING_KEY else first
        return UserSplit(tuple(weights), bucket, missing)

    def _bucket_attribute(self, value: Mapping[str, Any], kind_field: str, place: str) -> str:
        kind = member(value, kind_field, str, place, _USER)
        return _reference(
            kind, member(value, "bucketBy", str, place, "key"), place, literal=kind_field not in value
        )

    def _clauses(self, rule: Mapping[str, Any], place: str) -> Condition:
        return All(tuple(self._clause(*clause) for clause in items(rule, "clauses", place)))

    def _clause(self, clause: dict[str, Any], place: str) -> Condition:
        operator = member(clause, "op", str, place, "")
        values = member(clause, "values", list, place, [])
        negate = member(clause, "negate", bool, place, False)
        if operator == "segmentMatch":
            condition: Condition = AnyOf(tuple(self._in_segment(str(value), place) for value in values))
            return Not(condition) if negate else condition
        kind = member(clause, "contextKind", str, place, _USER)
        name = member(clause, "attribute", str, place, "")
        if name == "kind":
            condition = AnyOf(tuple(self._kind(operator, value, place) for value in values))
            return Not(condition) if negate else condition
        attribute = _reference(kind, name, place, literal="contextKind" not in clause)
        if attribute in self.reading.options.lists:
            condition = AnyItem(attribute, self._test(ITEM, operator, values, place))
        else:
            condition = self._test(attribute, operator, values, place)
        # Without the attribute, a clause does not match, even one that is negated.
        return All((Present(attribute), Not(condition))) if negate else condition

    def _in_segment(self, name: str, place: str) -> Condition:
        if name in self.segments:
            return InSegment(name)
        self.reading.remark(place, f"the segment {quote(name)} is not in the files, and matches nobody")
        return NEVER

    def _kind(self, operator: str, value: object, place: str) -> Condition:
        if operator != "in":
            raise NoExactForm(place, f"kinds of contexts are compared by {operator}; write a rule by hand")
        return Present(_path(str(value), "key", place))

    def _test(self, attribute: str, operator: str, values: list[Any], place: str) -> Condition:
        """The condition of an attribute, for any of the values; those of another type match nothing."""
        texts = tuple(value for value in values if isinstance(value, str))
        numbers = [
            value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if operator == "in":
            if any(isinstance(value, dict | list) for value in values):
                raise NoExactForm(place, "a list or an object cannot be compared; compare a text or a number")
            if attribute == "anonymous" and False in values:
                # A user without this attribute is not anonymous.
                return Not(OneOf(attribute, (True,))) if True not in values else Always()
            return OneOf(attribute, tuple(value for value in values if value is not None))
        if operator in _TEXTS:
            return Text(attribute, _TEXTS[operator], texts)
        if operator in _NUMBERS:
            return AnyOf(tuple(Number(attribute, _NUMBERS[operator], number) for number in numbers))
        if operator in _VERSIONS:
            return self._versions(attribute, _VERSIONS[operator], texts, place)
        if operator in _DATES:
            message = "dates in contexts may be texts, which rules cannot read"
            self.reading.approximate("numeric-dates", place, message)
            return AnyOf(tuple(Number(attribute, _DATES[operator], number) for number in numbers))
        what = "matches by a regular expression" if operator == "matches" else f"has the operator {operator}"
        raise NoExactForm(
            place, f"a clause {what}, which rules here do not have; list the values, or use startsWith"
        )

    def _versions(self, attribute: str, order: Relation, texts: tuple[str, ...], place: str) -> Condition:
        versions = [_whole_version(text) for text in texts]
        known = [SemanticVersion(attribute, order, version) for version in versions if version is not None]
        message = "2-rc and 2.0-rc are versions for LaunchDarkly, and none here"
        self.reading.approximate("short-versions", place, message)
        # LaunchDarkly knows no leading v, and takes texts alone.
        return All((IsText(attribute), Not(Text(attribute, TextPart.START, ("v",))), AnyOf(tuple(known))))


def _variations(flag: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    """The variations as the API has them; data files have values alone."""
    parts = member(flag, "variations", list, place, [])
    return [part if isinstance(part, dict) and "value" in part else {"value": part} for part in parts]


def _keys(value: Any, name: str, place: str) -> tuple[str, ...]:
    """The keys of contexts in a list."""
    keys = member(value, name, list, place, [])
    if not all(isinstance(key, str) for key in keys):
        raise NoExactForm(f"{place}.{name}", "a key of a context is no text")
    return tuple(keys)


def _whole_version(text: str) -> str | None:
    """The version with three numbers; None: it is no semantic version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch, suffix, _ = match.groups(default="")
    return f"{major}{minor or '.0'}{patch or '.0'}{suffix}"


def _path(kind: str, name: str, place: str) -> str:
    """The path of an attribute of a kind of contexts."""
    if kind == _USER:
        return TARGETING_KEY if name == "key" else attribute_path(name, place)
    return f"{attribute_path(kind, place)}.{attribute_path(name, place)}"


def _reference(kind: str, name: str, place: str, *, literal: bool) -> str:
    """The path of an attribute reference: `/a/b`, with ~1 for a slash and ~0 for a tilde; a plain name if
    `literal` or without a leading slash.
    """
    if literal or not name.startswith("/"):
        return _path(kind, name, place)
    if re.search("~(?![01])", name) or "//" in name or name.endswith("/"):
        raise NoExactForm(place, f"the attribute {quote(name)} is no valid reference in LaunchDarkly")
    steps = [part.replace("~1", "/").replace("~0", "~") for part in name[1:].split("/")]
    if any(step.isdecimal() for step in steps):
        raise NoExactForm(
            place, f"the attribute {quote(name)} has a number as a name, which here is an item of a list"
        )
    first = _path(kind, steps[0], place)
    return ".".join([first, *(attribute_path(step, place) for step in steps[1:])])
