"""Reads Unleash: exports, each of one environment, or what its SDKs get. Pure.

Sources: https://docs.getunleash.io/reference/environment-import-export, the public client-specification, and
the engine Yggdrasil, whose answer counts where SDKs differ. A flag is a boolean; one with variants is also a
second flag, KEY.variant, with the payloads as values. `userId` is the targeting key; the other fields of a
context, and its properties, are attributes of these names. Their values are texts, as in Unleash.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.importers.conditions import NEVER, has_bucket, simplify
from controller.importers.model import (
    NEXT,
    TARGETING_KEY,
    All,
    Always,
    AnyOf,
    Condition,
    During,
    ImportedFlag,
    InSegment,
    InShare,
    Not,
    Number,
    OneOf,
    Relation,
    Rule,
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
    text_pattern,
    whole_weights,
)
from evaluator.flags.text import quote
from evaluator.flags.versions import is_written_out, parse_version
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evaluator.flags.model import Json

_Placed = tuple[dict[str, Any], str]
"""An object of a file, and its place."""
_SESSION: Final = "sessionId"
_TEXTS: Final = {
    "STR_STARTS_WITH": TextPart.START,
    "STR_ENDS_WITH": TextPart.END,
    "STR_CONTAINS": TextPart.ANYWHERE,
}
_ORDERS: Final = {
    "EQ": Relation.EQUAL,
    "GT": Relation.MORE,
    "GTE": Relation.AT_LEAST,
    "LT": Relation.LESS,
    "LTE": Relation.AT_MOST,
}
_PERMANENT: Final = ("kill-switch", "permission")
"""Types of flags that Unleash expects to stay."""
_STICKY: Final = {
    "gradualRolloutUserId": "userId",
    "gradualRolloutSessionId": _SESSION,
    "gradualRolloutRandom": "random",
}


@dataclass(frozen=True, slots=True)
class _Feature:
    key: str
    place: str
    fields: dict[str, Any]
    enabled: bool
    strategies: list[_Placed]
    variants: list[_Placed]
    parents: list[_Placed]

    def all_variants(self) -> list[_Placed]:
        """The variants of the flag and of its strategies."""
        return [*self.variants, *(variant for part in self.strategies for variant in _variants_of(part))]


def _variants_of(strategy: _Placed) -> list[_Placed]:
    return list(items(strategy[0], "variants", strategy[1]))


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags and segments. Raises UnreadableFile."""
    features: dict[str, _Feature] = {}
    segments: dict[str, _Placed] = {}
    for file in files:
        content: Any = file.content
        if not isinstance(content, dict) or not content.keys() & {"features", "segments", "events"}:
            raise UnreadableFile(f"{file.name}: has no features, segments or events of Unleash")
        for part, place in _states(content, f"{file.name}:"):
            for feature in _features(part, place):
                features[feature.key] = feature
            for segment, at in items(part, "segments", place):
                if "constraints" in segment or str(segment.get("id")) not in segments:
                    segments[str(segment.get("id"))] = segment, at
            features.pop(str(part.get("featureName")), None)
    _Reader(reading, features, _segment_names(segments)).read_all(segments)


def _states(content: dict[str, Any], place: str) -> Iterator[_Placed]:
    """The whole of a file, or its events one by one, each with lists of features and segments."""
    if "events" not in content:
        yield content, place
    for event, at in items(content, "events", place):
        kind = event.get("type")
        if kind == "hydration":
            yield event, at
        elif kind == "feature-removed":
            yield {"featureName": event.get("featureName")}, at
        elif kind in ("feature-updated", "segment-updated"):
            name = "feature" if kind == "feature-updated" else "segment"
            yield {f"{name}s": [event.get(name)]}, at


def _features(content: dict[str, Any], place: str) -> Iterator[_Feature]:
    """The flags of an export, with what belongs to each, or of a state of SDKs."""
    exported = "featureStrategies" in content or "featureEnvironments" in content
    strategies = _by_feature(content, "featureStrategies", "featureName", place)
    environments = _by_feature(content, "featureEnvironments", "featureName", place)
    parents = _by_feature(content, "dependencies", "feature", place)
    tags = _by_feature(content, "featureTags", "featureName", place)
    for feature, at in items(content, "features", place):
        key = member(feature, "name", str, at, "")
        if not key:
            raise UnreadableFile(f"{at}: a feature without a name")
        if not exported:
            yield _Feature(
                key,
                at,
                feature,
                feature.get("enabled") is True,
                list(items(feature, "strategies", at)),
                list(items(feature, "variants", at)),
                list(items(feature, "dependencies", at)),
            )
            continue
        given = strategies[key]
        used = sorted(
            (part for part in given if part[0].get("disabled") is not True),
            key=lambda part: member(part[0], "sortOrder", (int, float), part[1], 0),
        )
        # Unleash turns a flag off whose strategies are all disabled.
        on = bool(used or not given) and any(part.get("enabled") is True for part, _ in environments[key])
        variants = [variant for part, at in environments[key] for variant in items(part, "variants", at)]
        needed = [parent for part, at in parents[key] for parent in items(part, "dependencies", at)]
        values = [f"{part.get('tagType')}:{part.get('tagValue')}" for part, _ in tags[key]]
        yield _Feature(key, at, {**feature, "tags": values}, on, used, variants, needed)


def _by_feature(content: dict[str, Any], name: str, of: str, place: str) -> Mapping[str, list[_Placed]]:
    parts: dict[str, list[_Placed]] = defaultdict(list)
    for part, at in items(content, name, place):
        parts[str(part.get(of))].append((part, at))
    return parts


def _segment_names(segments: Mapping[str, _Placed]) -> dict[str, str]:
    """Names of segments by their ids, each once."""
    names: dict[str, str] = {}
    for number, (segment, _) in segments.items():
        name = segment.get("name")
        names[number] = name if isinstance(name, str) and name else f"segment-{number}"
        if list(names.values()).count(names[number]) > 1:
            names[number] += f"-{number}"
    return names


@dataclass(frozen=True, slots=True)
class _Reader:
    reading: ImportReading
    features: Mapping[str, _Feature]
    segments: Mapping[str, str]

    def read_all(self, segments: Mapping[str, _Placed]) -> None:
        environment = self.reading.options.environment
        for number, (segment, place) in segments.items():
            name = self.segments[number]
            with self.reading.one(name, place, segment=True):
                if "constraints" not in segment:
                    message = "an export has no constraints of segments; add what /api/admin/segments gives"
                    raise NoExactForm(place, message)
                self.reading.add_segment(name, environment, self._constraints(segment, place))
        for feature in self.features.values():
            with self.reading.one(feature.key, feature.place):
                self._add(feature, feature.key, {"on": True, "off": False}, self._targeting(feature))
            with self.reading.one(_variant_key(feature.key), feature.place):
                if variants := self._variants(feature):
                    targeting = self._variant_targeting(feature)
                    self._add(feature, _variant_key(feature.key), variants, targeting)

    def _add(self, feature: _Feature, key: str, variants: Mapping[str, Json], targeting: Targeting) -> None:
        fields = feature.fields
        if fields.get("archived") is True:
            raise NoExactForm(feature.place, "it is archived in Unleash, and not imported")
        metadata = {name: fields.get(name) for name in ("description", "type", "project", "tags")}
        kept = scalars(metadata | {"permanent": fields.get("type") in _PERMANENT or None})
        environments = {self.reading.options.environment: targeting}
        self.reading.add(ImportedFlag(key, feature.place, variants, environments, kept))

    def _targeting(self, feature: _Feature) -> Targeting:
        if not feature.enabled:
            return Targeting("off")
        ways = AnyOf(tuple(self._strategy(feature, *part) for part in feature.strategies))
        when = simplify(All((*self._parents(feature), ways if feature.strategies else Always())))
        if isinstance(when, Always):
            return Targeting("on" if when.value else "off")
        return Targeting("off", (TargetingRule(when, "on"),))

    def _parents(self, feature: _Feature) -> Iterator[Condition]:
        for part, place in feature.parents:
            key = member(part, "feature", str, place, "")
            parent = self.features.get(key)
            if parent is None:
                raise NoExactForm(place, f"it needs the flag {quote(key)}, which is not in the files")
            if parent.parents:
                message = f"Unleash never enables it, since {quote(key)} depends on another flag itself"
                self.reading.remark(place, message)
                yield NEVER
                continue
            on = Serves(key, ("on",))
            yield on if member(part, "enabled", bool, place, True) else Not(on)
            if wanted := set(_texts(part, "variants", place)):
                names = {str(variant.get("name")) for variant, _ in parent.all_variants()}
                given = Serves(_variant_key(key), tuple(sorted(names & wanted)))
                none = Not(Serves(_variant_key(key), tuple(sorted(names))))
                yield AnyOf((given, none)) if "disabled" in wanted else given

    def _variants(self, feature: _Feature) -> dict[str, Json]:
        """The values of all variants, of the flag and of its strategies, by name."""
        values: dict[str, Json] = {}
        for variant, place in feature.all_variants():
            name = member(variant, "name", str, place, "")
            value = _payload(member(variant, "payload", dict, place), place, name)
            if name in values and orjson.dumps(values[name]) != orjson.dumps(value):
                raise NoExactForm(place, f"there are several variants {quote(name)} with different payloads")
            values[name] = value
        return values

    def _variant_targeting(self, feature: _Feature) -> Targeting:
        """The variants of the first strategy that is true; those of the flag where it has none."""
        rules: list[TargetingRule] = []
        if feature.enabled:
            parents = simplify(All(tuple(self._parents(feature))))
            rules.append(TargetingRule(Not(parents), None))
            for strategy in feature.strategies:
                when = self._strategy(feature, *strategy)
                variants = _variants_of(strategy)
                parameters = member(strategy[0], "parameters", dict, strategy[1], {})
                sticky = member(parameters, "stickiness", str, strategy[1])
                seed = _group(parameters, feature.key, strategy[1])
                own = self._choice(when, variants, sticky, seed)
                rules += own if variants else self._feature_choice(when, feature)
            if not feature.strategies:
                rules += self._feature_choice(Always(), feature)
        return Targeting(None, tuple(rules))

    def _feature_choice(self, when: Condition, feature: _Feature) -> Iterator[TargetingRule]:
        first, place = feature.variants[0] if feature.variants else ({}, "")
        sticky = member(first, "stickiness", str, place)
        yield from self._choice(when, feature.variants, sticky, feature.key)

    def _choice(
        self, when: Condition, variants: list[_Placed], sticky: str | None, seed: str
    ) -> Iterator[TargetingRule]:
        """The rules that choose a variant of users of whom `when` is true."""
        for variant, place in variants:
            for part, at in items(variant, "overrides", place):
                name = member(part, "contextName", str, at, "")
                users = OneOf(_attribute(name, at), tuple(_texts(part, "values", at)))
                yield TargetingRule(All((when, users)), str(variant.get("name")))
        weights = [member(variant, "weight", int, place, 0) for variant, place in variants]
        place = variants[0][1] if variants else ""
        names = [str(variant.get("name")) for variant, _ in variants]
        arms = [arm for arm in zip(names, whole_weights(weights, place), strict=True) if arm[1] > 0]
        largest = max(arms, key=lambda arm: arm[1])[0] if arms else None
        if len(arms) > 1:
            attributes = self._sticky(sticky, place)
            for attribute in attributes:
                bucket = UserHash(attribute, f"{seed}.variant.")
                yield TargetingRule(when, UserSplit(tuple(arms), bucket, NEXT))
            without = " and ".join(attributes)
            message = f"users without {without} are divided at random; here they get {largest}"
            self.reading.remark(place, message)
        yield TargetingRule(when, largest)

    def _sticky(self, sticky: str | None, place: str) -> list[str]:
        """The attributes of which the first that a user has divides users."""
        if sticky == "random":
            self.reading.approximate("random", place, "users are divided at random, anew at each call")
        if sticky in (None, "", "default", "random"):
            return [TARGETING_KEY, _SESSION]
        return [_attribute(str(sticky), place)]

    def _strategy(self, feature: _Feature, strategy: dict[str, Any], place: str) -> Condition:
        name = member(strategy, "name", str, place, "")
        parameters = member(strategy, "parameters", dict, place, {})
        at = f"{place}.parameters"
        condition: Condition = Always()
        if name in _STICKY:
            condition = self._rollout(parameters, "percentage", _STICKY[name], feature.key, at)
        elif name == "flexibleRollout":
            sticky = member(parameters, "stickiness", str, at)
            condition = self._rollout(parameters, "rollout", sticky, feature.key, at)
        elif name == "userWithId":
            users = member(parameters, "userIds", str, at, "").split(",")
            condition = OneOf(TARGETING_KEY, tuple(user.strip() for user in users if user.strip()))
        elif name == "remoteAddress":
            condition = _addresses("remoteAddress", member(parameters, "IPs", str, at, "").split(","), at)
        elif name != "default":
            message = (
                f"the strategy {quote(name)} is code in applications; write a rule of attributes by hand"
            )
            raise NoExactForm(place, message)
        return All((self._constraints(strategy, place), *self._in_segments(strategy, place), condition))

    def _rollout(
        self, parameters: dict[str, Any], name: str, sticky: str | None, key: str, place: str
    ) -> Condition:
        percentage = _percentage(parameters.get(name), f"{place}.{name}")
        at_random = sticky in (None, "", "default", "random")
        if percentage <= 0 or (percentage >= 100 and at_random):
            return Always(percentage > 0)
        seed = _group(parameters, key, place)
        attributes = self._sticky(sticky, place)
        if at_random:
            message = f"users without {' and '.join(attributes)} are divided at random; here they are out"
            self.reading.remark(place, message)
        ways: list[Condition] = []
        for number, attribute in enumerate(attributes):
            share = InShare(UserHash(attribute, seed), percentage, 100)
            without = (Not(_has(earlier)) for earlier in attributes[:number])
            ways.append(All((*without, share if percentage < 100 else _has(attribute))))
        return AnyOf(tuple(ways))

    def _in_segments(self, strategy: dict[str, Any], place: str) -> Iterator[Condition]:
        for number in member(strategy, "segments", list, place, []):
            if str(number) not in self.segments:
                raise NoExactForm(
                    f"{place}.segments", f"it needs the segment {number}, which is not in the files"
                )
            yield InSegment(self.segments[str(number)])

    def _constraints(self, value: dict[str, Any], place: str) -> Condition:
        return All(tuple(self._constraint(*part) for part in items(value, "constraints", place)))

    def _constraint(self, constraint: dict[str, Any], place: str) -> Condition:
        operator = member(constraint, "operator", str, place, "")
        name = member(constraint, "contextName", str, place, "")
        if operator in ("DATE_AFTER", "DATE_BEFORE"):
            if name != "currentTime":
                raise NoExactForm(place, f"compares {name} as a date; only the time of the call is known")
            condition = _date(operator, member(constraint, "value", str, place, ""), place)
        else:
            condition = self._test(operator, _attribute(name, place), constraint, place)
        return Not(condition) if member(constraint, "inverted", bool, place, False) else condition

    def _test(self, operator: str, attribute: str, constraint: dict[str, Any], place: str) -> Condition:
        texts = _texts(constraint, "values", place)
        kind, _, order = operator.partition("_")
        if operator in ("IN", "NOT_IN"):
            known = OneOf(attribute, texts)
            return known if operator == "IN" else Not(known)
        if operator in _TEXTS or operator == "REGEX":
            if member(constraint, "caseInsensitive", bool, place, False):
                message = "texts are compared without regard to case, which rules here cannot"
                self.reading.approximate("case-sensitive", place, message)
            if operator == "REGEX":
                return text_pattern(attribute, member(constraint, "value", str, place, ""), place)
            return Text(attribute, _TEXTS[operator], texts)
        if operator == "IN_CIDR":
            return _addresses(attribute, texts, place)
        if kind == "NUM" and order in _ORDERS:
            number = _number(constraint.get("value"), f"{place}.value")
            return Number(attribute, _ORDERS[order], number, texts=True)
        if kind == "SEMVER" and order in _ORDERS:
            version = member(constraint, "value", str, place, "")
            if not is_written_out(version) or parse_version(version) is None:
                raise NoExactForm(f"{place}.value", f"{quote(version)} is no version of three numbers")
            return SemanticVersion(attribute, _ORDERS[order], version, whole=True)
        raise NoExactForm(place, f"has the operator {quote(operator)}, which rules here lack; list values")


def _variant_key(key: str) -> str:
    return f"{key}.variant"


def _has(attribute: str) -> Condition:
    return Rule(has_bucket(UserHash(attribute)))


def _attribute(name: str, place: str) -> str:
    if name == "currentTime":
        raise NoExactForm(place, "the time is compared with something other than a date")
    return TARGETING_KEY if name == "userId" else attribute_path(name, place)


def _texts(value: dict[str, Any], name: str, place: str) -> tuple[str, ...]:
    texts = member(value, name, list, place, [])
    if not all(isinstance(text, str) for text in texts):
        raise NoExactForm(f"{place}.{name}", "has something other than texts")
    return tuple(texts)


def _group(parameters: dict[str, Any], key: str, place: str) -> str:
    return member(parameters, "groupId", str, place) or key


def _number(value: object, place: str) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise NoExactForm(place, "is no number")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _percentage(value: object, place: str) -> int:
    return math.floor(min(100, max(0, _number(value, place))))


def _payload(payload: dict[str, Any] | None, place: str, name: str) -> Json:
    """The value of a variant: its payload, by its type, else its name."""
    kind = member(payload, "type", str, place, "string")
    text = member(payload, "value", str, place, name)
    if kind not in ("json", "number"):
        return text
    try:
        value = orjson.loads(text)
    except ValueError:
        value = None
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        value = None
    if value is None:
        raise NoExactForm(f"{place}.payload", f"is no {kind}")
    return value


def _addresses(attribute: str, texts: Iterable[str], place: str) -> Condition:
    """Whether the attribute is one of these addresses. What is no address matches nobody, as in Unleash."""
    known = []
    for text in texts:
        try:
            network = ip_network(text.strip(), strict=False)
        except ValueError:
            continue
        if network.version != 4 or network.num_addresses > 1:
            message = (
                f"{text.strip()} is a range of addresses, or of version 6, which rules here cannot compare"
            )
            raise NoExactForm(place, message)
        known.append(str(network.network_address))
    return OneOf(attribute, tuple(known))


def _date(operator: str, text: str, place: str) -> Condition:
    date = parse_time(text)
    if date is None:
        raise NoExactForm(f"{place}.value", f"{quote(text)} is no date with a time zone")
    second = date.timestamp()
    if operator == "DATE_AFTER":
        return During(math.floor(second) + 1, None)
    return During(None, math.ceil(second))
