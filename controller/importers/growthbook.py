"""Reads GrowthBook: the answer of GET /api/features/CLIENTKEY, which SDKs evaluate. Pure.

Sources: https://docs.growthbook.io/lib/build-your-own, and the public cases of its SDKs. The attribute `id`
is the targeting key, which is a text. Null, as a value, is the value in the caller's code.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER, object_rule, rule_of, simplify
from controller.importers.model import (
    ITEM,
    NEXT,
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
    Rule,
    SemanticVersion,
    Serves,
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
    arms_of_ranges,
    attribute_path,
    items,
    member,
    scalars,
    text_pattern,
    variant_names,
)
from evaluator.flags.model import Bucketing
from evaluator.flags.text import quote
from evaluator.targeting import compile_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evaluator.flags.model import Json

_ID: Final = "id"
_HASHES: Final = (1, 2)
"""Versions of the hash."""
_ORDERS: Final = {"lt": Relation.LESS, "lte": Relation.AT_MOST, "gt": Relation.MORE, "gte": Relation.AT_LEAST}
_COMPARISONS: Final = {f"${name}": order for name, order in _ORDERS.items()}
_VERSIONS: Final = {"$veq": Relation.EQUAL, **{f"$v{name}": order for name, order in _ORDERS.items()}}
_VERSION: Final = re.compile(r"v?\d{1,5}\.\d{1,5}\.\d{1,5}(-[0-9A-Za-z.]+)?(\+.*)?")
_NO_FORM: Final = {
    **dict.fromkeys(("$ini", "$nini", "$alli", "$regexi", "$notRegexi"), "compares texts without case"),
    "$size": "counts the items of a list",
}
_NEGATIONS: Final = {
    "$ne": "$eq",
    "$nin": "$in",
    "$notInGroup": "$inGroup",
    "$notRegex": "$regex",
    "$vne": "$veq",
}
"""The operators that each of these negates."""
_TYPES: Final[Mapping[str, Callable[[str], Condition]]] = {
    "string": IsText,
    "null": lambda attribute: Not(Present(attribute)),
    "boolean": lambda attribute: OneOf(attribute, (True, False)),
    "number": lambda attribute: AnyOf(
        (Number(attribute, Relation.LESS, 0), Number(attribute, Relation.AT_LEAST, 0))
    ),
}


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags and saved groups. Raises UnreadableFile."""
    for file in files:
        content = file.content if isinstance(file.content, dict) else {}
        if content.get("encryptedFeatures"):
            raise UnreadableFile(
                f"{file.name} is encrypted; get the features of a client key without encryption"
            )
        features = content.get("features")
        if not isinstance(features, dict):
            raise UnreadableFile(f"{file.name} has no object features; get it from /api/features/CLIENTKEY")
        conditions = _Conditions(content.get("savedGroups"), reading)
        _FileReader(file.name, features, reading, conditions).read()


@dataclass(slots=True)
class _FileReader:
    file: str
    features: dict[str, Any]
    reading: ImportReading
    conditions: _Conditions
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    """The names of variants by their values as JSON, for each feature."""

    def read(self) -> None:
        for key, feature in self.features.items():
            with self.reading.one(key, self._place(key)):
                self.names[key] = self._names(feature, self._place(key))
        for key in self.names:
            feature, place = self.features[key], self._place(key)
            with self.reading.one(key, place):
                self.reading.add(self._flag(key, feature, place))

    def _place(self, key: str) -> str:
        return f"{self.file}:features.{key}"

    def _names(self, feature: Any, place: str) -> dict[str, str]:
        if not isinstance(feature, dict):
            raise NoExactForm(place, "it is no object")
        values = [feature.get("defaultValue")]
        for rule, at in items(feature, "rules", place):
            values += [rule.get("force"), *member(rule, "variations", list, at, [])]
        texts = list(dict.fromkeys(_text(value) for value in values if value is not None))
        return dict(zip(texts, variant_names(map(json.loads, texts), [None] * len(texts)), strict=True))

    def _flag(self, key: str, feature: dict[str, Any], place: str) -> ImportedFlag:
        rules: list[TargetingRule] = []
        for rule, at in items(feature, "rules", place):
            rules += self._rules(key, rule, at)
        variants = {name: json.loads(text) for text, name in self.names[key].items()}
        targeting = Targeting(self._arm(key, feature.get("defaultValue")), tuple(rules))
        metadata = scalars({name: feature.get(name) for name in ("description", "owner", "tags")})
        return ImportedFlag(key, place, variants, {self.reading.options.environment: targeting}, metadata)

    def _arm(self, key: str, value: Json) -> Arm:
        return None if value is None else self.names[key][_text(value)]

    def _rules(self, key: str, rule: dict[str, Any], place: str) -> Iterator[TargetingRule]:
        """The rules for one of GrowthBook, after one for each prerequisite that ends the walk."""
        parents: list[Condition] = []
        for parent, at in items(rule, "parentConditions", place):
            holds = self._parent(parent, at)
            if parent.get("gate"):
                yield TargetingRule(All((*parents, Not(holds))), None)
            parents.append(holds)
        when = [
            *parents,
            self.conditions.read(member(rule, "condition", dict, place, {}), f"{place}.condition"),
        ]
        outcome = self._force(key, rule, place) if "force" in rule else self._experiment(key, rule, place)
        if outcome is not NEXT:
            when += self._namespaces(rule, place)
            yield TargetingRule(All(tuple(when)), outcome)

    def _parent(self, parent: dict[str, Any], place: str) -> Condition:
        """Whether the value of another flag fulfils a condition, as is known for each of its variants."""
        key = member(parent, "id", str, place, "")
        condition = member(parent, "condition", dict, place)
        if condition is None:
            return Always()
        conditions = replace(self.conditions, within=True)
        needed = rule_of(simplify(conditions.read(condition, f"{place}.condition")))
        fulfils = compile_rule({"if": [needed, True, False]}, bucketing=Bucketing.V2, flag_key=key)
        if key not in self.features:
            self.reading.remark(place, f"the flag {quote(key)} is not in the file, and has no value")
            return Always(fulfils({"value": None}) is True)
        names = self.names.get(key, {})
        fit = [name for text, name in names.items() if fulfils({"value": json.loads(text)}) is True]
        holds = Serves(key, tuple(fit))
        # A flag without a value serves no variant.
        return AnyOf((holds, Not(Serves(key, tuple(names.values()))))) if fulfils({"value": None}) else holds

    def _force(self, key: str, rule: dict[str, Any], place: str) -> Outcome:
        arm = self._arm(key, rule["force"])
        coverage = member(rule, "coverage", (int, float), place)
        if rule.get("range") is not None:
            return self._split(key, rule, [(*_range(rule["range"], place), arm)], place)
        if coverage is None:
            return arm
        return self._split(key, rule, [(0.0, _finite(coverage, place), arm)], place) if coverage else NEXT

    def _experiment(self, key: str, rule: dict[str, Any], place: str) -> Outcome:
        if "contextualVariations" in rule or "contextualBanditRef" in rule:
            raise NoExactForm(place, "a contextual bandit learns, and rules do not; take the best variation")
        variations = member(rule, "variations", list, place, [])
        if len(variations) < 2:
            return NEXT
        self.reading.approximate("experiments", place, "users are in an experiment, which measures them")
        meta = [part for part, _ in items(rule, "meta", place)]
        arms = [
            NEXT if index < len(meta) and meta[index].get("passthrough") else self._arm(key, value)
            for index, value in enumerate(variations)
        ]
        ranges = [_range(part, place) for part in member(rule, "ranges", list, place, [])]
        ranges = ranges or list(_ranges(len(arms), rule, place))
        parts = [(start, end, arm) for (start, end), arm in zip(ranges, arms, strict=False)]
        return self._split(key, rule, parts, place)

    def _split(
        self, key: str, rule: dict[str, Any], ranges: list[tuple[float, float, Arm]], place: str
    ) -> Outcome:
        """Users divided by a hash of an attribute with the seed of the rule, else with its key."""
        if (member(rule, "hashVersion", int, place) or 1) not in _HASHES:
            return NEXT
        attribute = member(rule, "hashAttribute", str, place) or _ID
        seed = member(rule, "seed", str, place) or member(rule, "key", str, place) or key
        bucket = _bucket(attribute, None if (attribute, seed) == (_ID, key) else seed, place)
        return UserSplit(arms_of_ranges(ranges, 1.0, place), bucket)

    def _namespaces(self, rule: dict[str, Any], place: str) -> Iterator[Condition]:
        """Whether users are within the ranges of namespaces: of filters, else of an experiment's own."""
        filters = list(items(rule, "filters", place))
        for part, at in filters:
            attribute = member(part, "attribute", str, at) or _ID
            ranges = member(part, "ranges", list, at, [])
            if member(part, "hashVersion", int, at, 2) in _HASHES:
                yield self._within(attribute, member(part, "seed", str, at, ""), ranges, at)
            else:
                yield NEVER
        namespace = member(rule, "namespace", list, place)
        if namespace and not filters and "force" not in rule:
            if len(namespace) != 3 or not isinstance(namespace[0], str):
                raise NoExactForm(place, "its namespace is no name with a range")
            attribute = member(rule, "hashAttribute", str, place) or _ID
            yield self._within(attribute, f"__{namespace[0]}", [namespace[1:]], place)

    def _within(self, attribute: str, seed: str, ranges: list[Any], place: str) -> Condition:
        parts = [(*_range(part, place), "in") for part in ranges]
        arms = arms_of_ranges(parts, 1.0, place)
        weight = sum(weight for arm, weight in arms if arm == "in")
        total = sum(weight for _, weight in arms)
        path = _attribute(attribute, place)
        if weight == total:
            return All((Present(path), Not(OneOf(path, ("",)))))
        message = "a namespace keeps users of one experiment out of others, which a share of users does not"
        self.reading.approximate("namespaces", place, message)
        return InShare(_bucket(attribute, seed, place), weight, total) if weight else NEVER


@dataclass(frozen=True, slots=True)
class _Conditions:
    """Reads conditions, which have the form of queries of MongoDB."""

    groups: Any
    reading: ImportReading
    within: bool = False
    """Whether attributes are those of an item, and not of the context."""
    known: dict[tuple[str, str], Condition] = field(default_factory=dict)
    """Conditions of saved groups, by group and attribute."""

    def read(self, condition: dict[str, Any], place: str) -> Condition:
        """The condition that all entries hold."""
        return All(tuple(self._entry(condition, name, place) for name in condition))

    def _entry(self, condition: dict[str, Any], name: str, place: str) -> Condition:
        at = f"{place}.{name}"
        if name in ("$and", "$or", "$nor"):
            parts = tuple(self.read(part, part_at) for part, part_at in items(condition, name, place))
            if name == "$and":
                return All(parts)
            either = AnyOf(parts) if parts else Always()
            return either if name == "$or" else Not(either)
        if name == "$not":
            return Not(self.read(member(condition, name, dict, place, {}), at))
        if name in ("$savedGroup", "$savedGroups"):
            raise NoExactForm(at, "it refers to a saved group as a condition; write the condition itself")
        return self.value(name if self.within else _attribute(name, at), condition[name], at)

    def value(self, attribute: str, wanted: Any, place: str) -> Condition:
        """The condition that an attribute fulfils operators, or equals a value."""
        if isinstance(wanted, dict) and wanted and all(name.startswith("$") for name in wanted):
            return All(tuple(self._operator(attribute, name, wanted, place) for name in wanted))
        if isinstance(wanted, dict | list):
            raise NoExactForm(place, "a list or an object cannot be compared; compare a text or a number")
        return _equals(attribute, wanted)

    def _operator(self, attribute: str, operator: str, wanted: dict[str, Any], place: str) -> Condition:
        value, at = wanted[operator], f"{place}.{operator}"
        if operator in ("$in", "$nin") and not isinstance(value, list):
            return NEVER
        positive = _NEGATIONS.get(operator, operator)
        if positive in _COMPARISONS:
            condition = _comparison(attribute, _COMPARISONS[positive], value, at)
        elif positive in _VERSIONS:
            condition = self._version(attribute, _VERSIONS[positive], value, at)
        else:
            condition = self._positive(attribute, positive, value, at)
        return condition if positive == operator else Not(condition)

    def _positive(self, attribute: str, operator: str, value: Any, place: str) -> Condition:
        inner = replace(self, within=True)
        condition: Condition
        match operator, value:
            case "$eq", _:
                condition = NEVER if isinstance(value, dict | list) else _equals(attribute, value)
            case "$in", _:
                condition = self._one_of(attribute, value)
            case "$inGroup", str():
                condition = self._in_group(attribute, value, place)
            case "$exists", _:
                condition = Present(attribute) if value else Not(Present(attribute))
            case "$type", str() if value in _TYPES:
                condition = _TYPES[value](attribute)
            case "$not", _:
                condition = Not(self.value(attribute, value, place))
            case "$regex", str():
                condition = text_pattern(attribute, value, place)
            case "$elemMatch", dict():
                condition = self._some(attribute, inner.of_item(value, place))
            case "$all", [_, *_]:
                condition = All(
                    tuple(self._some(attribute, inner.value(ITEM, part, place)) for part in value)
                )
            case _:
                what = _NO_FORM.get(operator, f"has {operator} with such a value")
                raise NoExactForm(place, f"a condition {what}, which rules here do not have; list the values")
        return condition

    def _one_of(self, attribute: str, values: list[Any]) -> Condition:
        known = [value for value in values if not isinstance(value, dict | list)]
        if attribute not in self.reading.options.lists:
            return _equals(attribute, *known)
        missing = (Not(Present(attribute)),) if None in known else ()
        return AnyOf((*missing, AnyItem(attribute, _equals(ITEM, *known))))

    def _in_group(self, attribute: str, group: str, place: str) -> Condition:
        """Whether the attribute is in a saved group; none is in one that is not in the file."""
        entry = self.groups.get(group, []) if isinstance(self.groups, dict) else []
        values = entry.get("values") if isinstance(entry, dict) and entry.get("type") == "list" else entry
        if not isinstance(values, list):
            raise NoExactForm(place, f"the saved group {quote(group)} is no list; write its condition")
        if self.within or not values:
            return self._one_of(attribute, values)
        if (group, attribute) not in self.known:
            self.known[group, attribute] = self._share_group(
                group, attribute, self._one_of(attribute, values), place
            )
        return self.known[group, attribute]

    def _share_group(self, group: str, attribute: str, condition: Condition, place: str) -> Condition:
        environment = self.reading.options.environment
        for name in (group, f"{group}.{attribute}"):
            earlier = self.reading.segments.get(name)
            if earlier is None or earlier.conditions.get(environment, condition) == condition:
                self.reading.add_segment(name, environment, condition)
                return InSegment(name)
        raise NoExactForm(place, f"another file has another saved group {quote(group)}; import each alone")

    def _some(self, attribute: str, condition: Condition) -> Condition:
        """Whether the attribute is a list with such an item."""
        simple = simplify(condition)
        if simple == NEVER:
            return NEVER
        some = Rule({"some": [{"var": attribute}, object_rule(simple)]})
        return All((Present(f"{attribute}.0".lstrip(".")), some))

    def of_item(self, wanted: dict[str, Any], place: str) -> Condition:
        """The condition of an item: of the item itself by operators, else of its fields."""
        is_value = wanted and all(name.startswith("$") for name in wanted)
        if is_value and not wanted.keys() & {"$or", "$and", "$nor"}:
            return All((Present(ITEM), self.value(ITEM, wanted, place)))
        return self.read(wanted, place)

    def _version(self, attribute: str, order: Relation, wanted: Any, place: str) -> Condition:
        if not isinstance(wanted, str) or not _VERSION.fullmatch(wanted):
            raise NoExactForm(place, "it compares with no version of three numbers, such as 1.2.0")
        message = (
            "texts with fewer or more than three numbers are versions for GrowthBook, and other ones here"
        )
        self.reading.approximate("semantic-versions", place, message)
        version = SemanticVersion(attribute, order, wanted)
        # Without a version, it is 0, which is less than 0.0.0.
        return (
            AnyOf((Not(Present(attribute)), version))
            if order in (Relation.LESS, Relation.AT_MOST)
            else version
        )


def _equals(attribute: str, *values: Any) -> Condition:
    """Whether the attribute is one of the values, of the same type; null is a missing one."""
    known = [value for value in values if value is not None]
    if attribute == TARGETING_KEY:
        # Keys of users are texts here: where all that are listed are numbers, those that were numbers.
        texts = [value for value in known if isinstance(value, str)]
        known = texts or [str(value) for value in known if isinstance(value, int)]
    condition = OneOf(attribute, tuple(known))
    return AnyOf((Not(Present(attribute)), condition)) if None in values else condition


def _comparison(attribute: str, order: Relation, wanted: Any, place: str) -> Condition:
    """A comparison with the conversions of JavaScript, which those of rules are: null is 0, "8" is 8."""
    if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
        raise NoExactForm(place, "it compares with what is neither a number nor a text")
    return Rule({order.value: [{"var": attribute}, wanted]})


def _attribute(name: str, place: str) -> str:
    """The path of an attribute, divided by dots."""
    if name == _ID:
        return TARGETING_KEY
    if not all(name.split(".")) or name.startswith("$flagd"):
        raise NoExactForm(place, f"{quote(name)} is no name of an attribute here")
    return name


def _bucket(attribute: str, seed: str | None, place: str) -> UserHash:
    return UserHash(TARGETING_KEY if attribute == _ID else attribute_path(attribute, place), seed)


def _ranges(count: int, rule: dict[str, Any], place: str) -> Iterator[tuple[float, float]]:
    """The ranges of weights, each cut to the coverage; equal ones where the weights are unusable."""
    coverage = min(max(_finite(member(rule, "coverage", (int, float), place, 1), place), 0.0), 1.0)
    weights = member(rule, "weights", list, place, [])
    numbers = [float(weight) for weight in weights if _is_share(weight)]
    if len(numbers) != len(weights) or len(weights) != count or not 0.99 <= sum(numbers) <= 1.01:
        numbers = [1 / count] * count
    start = 0.0
    for weight in numbers:
        yield start, start + coverage * weight
        start += weight


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2


def _range(value: Any, place: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise NoExactForm(place, "a range is not of two numbers")
    return _finite(value[0], place), _finite(value[1], place)


def _finite(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 2**31:
        raise NoExactForm(place, "a range of users is not of numbers")
    return float(value)


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
