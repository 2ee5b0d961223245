"""Reads Featurevisor: the features, segments and groups of a project, a file each. Pure.

Sources: https://featurevisor.com/docs/features and the evaluator of its SDK. A feature is a boolean, and has
a flag for its variation and for each variable, with the keys of Featurevisor's provider for OpenFeature:
`KEY`, `KEY:variation` and `KEY:VARIABLE`; as there, `userId` is the targeting key. Contexts of OpenFeature
have no null, which Featurevisor tells from an attribute that is missing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mmh3
import orjson

from controller.importers.conditions import NEVER
from controller.importers.model import (
    ITEM,
    NEXT,
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
    IsText,
    Not,
    Number,
    OneOf,
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
    WEIGHTS,
    ImportReading,
    NoExactForm,
    SourceFile,
    UnreadableFile,
    items,
    member,
    place_of,
    scalars,
    text_pattern,
    variant_names,
)
from evaluator.flags.text import quote
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evaluator.flags.model import Json

_Placed = tuple[dict[str, Any], str]
"""An object of a file, and its place."""
_KINDS: Final = {"features": "bucketBy", "segments": "conditions", "groups": "slots"}
"""Folders of a project, with a field that their files have."""
_TEXTS: Final = {"contains": TextPart.ANYWHERE, "startsWith": TextPart.START, "endsWith": TextPart.END}
_NUMBERS: Final = {
    "greaterThan": Relation.MORE,
    "greaterThanOrEquals": Relation.AT_LEAST,
    "lessThan": Relation.LESS,
    "lessThanOrEquals": Relation.AT_MOST,
}
_VERSIONS: Final = {
    "semverEquals": Relation.EQUAL,
    "semverNotEquals": Relation.UNEQUAL,
    "semverGreaterThan": Relation.MORE,
    "semverGreaterThanOrEquals": Relation.AT_LEAST,
    "semverLessThan": Relation.LESS,
    "semverLessThanOrEquals": Relation.AT_MOST,
}
_PATH: Final = re.compile(r"[.\[:]")
"""What divides a variable's name from a part of its value."""
_DATES: Final = {"before": Relation.LESS, "after": Relation.MORE}


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read features and segments. Raises UnreadableFile."""
    project: dict[str, dict[str, _Placed]] = {kind: {} for kind in _KINDS}
    for file in files:
        kind, key = _identity(file)
        if kind:
            if not isinstance(file.content, dict):
                raise UnreadableFile(f"{file.name}: is no object, as {kind} of Featurevisor are")
            project[kind][key] = file.content, f"{file.name}:"
    if not project["features"]:
        raise UnreadableFile("there are no features of Featurevisor: files in a folder `features`")
    grouped = {
        str(slot.get("feature")): name
        for name, group in project["groups"].items()
        for slot, _ in items(group[0], "slots", group[1])
    }
    rules = [feature.get("rules") for feature, _ in project["features"].values()]
    environments = sorted({name for part in rules if isinstance(part, dict) for name in part})
    chosen = reading.options.environment
    if chosen and environments and chosen not in environments:
        raise UnreadableFile(f"no feature has the environment {chosen}; there are {', '.join(environments)}")
    for environment in [chosen] if chosen else environments or [ONLY]:
        reader = _Reader(reading, environment)
        for name, (segment, place) in project["segments"].items():
            with reading.one(name, place, segment=True):
                condition = reader.conditions(segment.get("conditions"), place_of(place, "conditions"))
                reading.add_segment(name, environment, condition)
        for key, (feature, place) in project["features"].items():
            reader.read_feature(key, feature, place, grouped.get(key))


def _identity(file: SourceFile) -> tuple[str, str]:
    """The kind of a file, by its folder or its content, and its key; the kind is empty for others."""
    *folders, name = file.name.replace("\\", "/").split("/")
    stem = name.rpartition(".")[0] or name
    for kind, field in _KINDS.items():
        if kind in folders and not stem.endswith(".spec"):
            return kind, ".".join([*folders[folders.index(kind) + 1 :], stem])
        if not folders and isinstance(file.content, dict) and field in file.content:
            return kind, stem
    return "", ""


@dataclass(frozen=True, slots=True)
class _Feature:
    """A feature in one environment."""

    key: str
    place: str
    fields: dict[str, Any]
    rules: list[_Placed]
    forces: list[_Placed]
    variations: list[_Placed]

    @property
    def is_on(self) -> Condition:
        return Serves(self.key, ("on",))

    @property
    def variation_key(self) -> str:
        return f"{self.key}:variation"


@dataclass(frozen=True, slots=True)
class _Reader:
    reading: ImportReading
    environment: str

    def read_feature(self, key: str, fields: dict[str, Any], place: str, group: str | None) -> None:
        if self._here(fields.get("expose")) is False:
            return
        whole: dict[str, _Feature] = {}
        with self.reading.one(key, place):
            if fields.get("archived") is True:
                raise NoExactForm(place, "it is archived in Featurevisor, and not imported")
            if group is not None:
                message = f"its users are those that other features of the group {quote(group)} do not have"
                raise NoExactForm(place, message)
            rules = {"rules": self._here(fields.get("rules")), "force": self._here(fields.get("force"))}
            feature = _Feature(
                key,
                place,
                fields,
                list(items(rules, "rules", place)),
                list(items(rules, "force", place)),
                list(items(fields, "variations", place)),
            )
            self._add(feature, key, {"on": True, "off": False}, self._switch_targeting(feature))
            whole[key] = feature
        for feature in whole.values():
            if feature.variations:
                with self.reading.one(feature.variation_key, place):
                    variants = _variations(feature)
                    self._add(feature, feature.variation_key, variants, self._variation(feature))
            for name, schema in member(fields, "variablesSchema", dict, place, {}).items():
                with self.reading.one(f"{key}:{name}", place_of(place, f"variablesSchema.{name}")):
                    values = _Values(
                        name, schema, place_of(place, f"variablesSchema.{name}"), _parts(fields, place)
                    )
                    self._add(feature, f"{key}:{name}", values.variants, self._variable(feature, values))

    def _here(self, value: Any) -> Any:
        return value.get(self.environment) if isinstance(value, dict) else value

    def _add(self, feature: _Feature, key: str, variants: Mapping[str, Json], targeting: Targeting) -> None:
        names = ("description", "tags", "deprecated")
        metadata = scalars({name: feature.fields.get(name) for name in names})
        self.reading.add(ImportedFlag(key, feature.place, variants, {self.environment: targeting}, metadata))

    def _switch_targeting(self, feature: _Feature) -> Targeting:
        rules: list[TargetingRule] = []
        earlier: list[Condition] = []
        for force, place in feature.forces:
            when = All((*earlier, self._force_condition(force, place)))
            enabled = member(force, "enabled", bool, place)
            if enabled is None:
                earlier.append(Not(when))
            else:
                rules.append(TargetingRule(when, "on" if enabled else "off"))
        if required := list(self._requirements(feature)):
            rules.append(TargetingRule(Not(All(tuple(required))), "off"))
        for rule, place in feature.rules:
            share = _percentage(rule, place)
            enabled = member(rule, "enabled", bool, place)
            if enabled is not None and share > 0:
                share = 100 if enabled else 0
            weight = round(share * WEIGHTS / 100)
            arms: list[tuple[Arm, int]] = [("on", weight), ("off", WEIGHTS - weight)]
            rules += _divide(feature, self._matches(rule, place), arms)
        return Targeting("off", tuple(rules))

    def _requirements(self, feature: _Feature) -> Iterator[Condition]:
        for part in member(feature.fields, "required", list, feature.place, []):
            place = place_of(feature.place, "required")
            key = part if isinstance(part, str) else member(part, "key", str, place, "")
            yield Serves(key, ("on",))
            if isinstance(part, dict) and "variation" in part:
                yield Serves(f"{key}:variation", (_text(part["variation"], place),))

    def _variation(self, feature: _Feature) -> Targeting:
        known = _variations(feature)
        off = feature.fields.get("disabledVariationValue")
        rules: list[TargetingRule] = []
        if off is not None or not _has_variation_where_on(feature):
            rules.append(TargetingRule(Not(feature.is_on), _text(off, feature.place) if off else None))
        earlier: list[Condition] = []
        for force, place in feature.forces:
            when = All((*earlier, self._force_condition(force, place)))
            if "variation" in force:
                rules.append(TargetingRule(when, _require_variation(force, known, place)))
            else:
                earlier.append(Not(when))
        for rule, place in feature.rules:
            matches = self._matches(rule, place)
            if "variation" in rule and _percentage(rule, place) > 0:
                rules.append(TargetingRule(matches, _require_variation(rule, known, place)))
            else:
                rules += _divide(feature, matches, _allocation(feature, rule, place))
        return Targeting(None, tuple(rules))

    def _variable(self, feature: _Feature, values: _Values) -> Targeting:
        rules = [TargetingRule(Not(feature.is_on), values.when_disabled())]
        earlier: list[Condition] = []
        for force, place in feature.forces:
            when = All((*earlier, self._force_condition(force, place)))
            value = values.of_part(force, place)
            if value is None:
                earlier.append(Not(when))
            else:
                rules.append(TargetingRule(when, value))
        earlier = []
        for rule, place in feature.rules:
            when = All((*earlier, self._matches(rule, place)))
            if _percentage(rule, place) == 0:
                rules.append(TargetingRule(when, None))
                continue
            rules += self._values(when, rule, place, values)
            earlier.append(Not(when))
        for variation, place in feature.variations:
            serves = Serves(feature.variation_key, (_text(variation.get("value"), place),))
            rules += self._values(serves, variation, place, values)
        return Targeting(values.default, tuple(rules))

    def _values(
        self, when: Condition, part: dict[str, Any], place: str, values: _Values
    ) -> Iterator[TargetingRule]:
        """The rules of a variable by the overrides, and then by the variables, of a rule or a variation."""
        for override, at, value in values.overrides(part, place):
            yield TargetingRule(All((when, self._force_condition(override, at))), values.name_of(value, at))
        named = values.of_part(part, place)
        if named is not None:
            yield TargetingRule(when, named)

    def _force_condition(self, part: dict[str, Any], place: str) -> Condition:
        """Whether the conditions, or else the segments, of a part are true; false without any."""
        if part.get("conditions"):
            return self.conditions(part["conditions"], place_of(place, "conditions"))
        return self._matches(part, place) if part.get("segments") else NEVER

    def _matches(self, part: dict[str, Any], place: str) -> Condition:
        return _tree(part.get("segments"), place_of(place, "segments"), _segment)

    def conditions(self, value: Any, place: str) -> Condition:
        """The condition of a segment or of a part of a feature."""
        return _tree(value, place, self._condition)

    def _condition(self, value: Any, place: str) -> Condition:
        operator = member(value, "operator", str, place, "")
        name = member(value, "attribute", str, place, "")
        if not name:
            raise NoExactForm(place, "names no attribute")
        attribute = TARGETING_KEY if name == "userId" else name
        other = value.get("value")
        if operator in ("exists", "notExists"):
            return Present(attribute) if operator == "exists" else Not(Present(attribute))
        if operator in ("in", "notIn"):
            known = OneOf(attribute, tuple(_scalars(other, place)))
            given = AnyOf((IsText(attribute), _is_number(attribute)))
            return All((given, known if operator == "in" else Not(known)))
        if operator in ("equals", "notEquals"):
            known = OneOf(attribute, tuple(_scalars([other], place)))
            return known if operator == "equals" else Not(known)
        if operator in ("includes", "notIncludes"):
            return _includes(attribute, operator, next(_scalars([other], place)))
        if operator in ("matches", "notMatches"):
            if value.get("regexFlags"):
                raise NoExactForm(f"{place}.regexFlags", "changes a regular expression; list values")
            found = text_pattern(attribute, _text(other, place), place)
            return found if operator == "matches" else All((IsText(attribute), Not(found)))
        return self._comparison(attribute, operator, other, place)

    def _comparison(self, attribute: str, operator: str, other: Any, place: str) -> Condition:
        if operator in ("contains", "notContains", *_TEXTS):
            part = _TEXTS.get(operator, TextPart.ANYWHERE)
            condition = Text(attribute, part, (_text(other, place),))
            return condition if operator in _TEXTS else All((IsText(attribute), Not(condition)))
        if operator in _NUMBERS:
            if isinstance(other, bool) or not isinstance(other, int | float) or abs(other) >= 2**53:
                raise NoExactForm(f"{place}.value", "is no number, or too large")
            return Number(attribute, _NUMBERS[operator], other)
        if operator in _VERSIONS:
            message = "1.2.x, 1.2.3.4 and >1.2 are versions for Featurevisor, and none here"
            self.reading.approximate("plain-versions", place, message)
            return All(
                (IsText(attribute), SemanticVersion(attribute, _VERSIONS[operator], _text(other, place)))
            )
        if operator in _DATES:
            message = "dates in contexts may be texts, which rules cannot read"
            self.reading.approximate("numeric-dates", place, message)
            return Number(attribute, _DATES[operator], _milliseconds(other, f"{place}.value"))
        raise NoExactForm(place, f"has the operator {quote(operator)}, which rules here lack; list values")


class _Values:
    """The values of a variable, in all environments, as variants."""

    def __init__(self, name: str, schema: Any, place: str, parts: list[_Placed]) -> None:
        if not isinstance(schema, dict) or schema.get("defaultValue") is None:
            raise NoExactForm(place, "is no variable with a default value")
        self.name, self._schema, self._place = name, schema, place
        found = [(schema["defaultValue"], place)]
        found += [(schema["disabledValue"], place)] if "disabledValue" in schema else []
        for part, at in parts:
            variables = member(part, "variables", dict, at, {})
            for key in (*variables, *member(part, "variableOverrides", dict, at, {})):
                if _PATH.split(key)[0] == name != key:
                    raise NoExactForm(at, f"{quote(key)} changes a part of a value; write it whole")
            found += [(variables[name], at)] if name in variables else []
            found += [(value, where) for _, where, value in self.overrides(part, at)]
        distinct = {orjson.dumps(value): value for value in (self._decode(*item) for item in found)}
        names = variant_names(distinct.values(), [None] * len(distinct))
        self.variants: dict[str, Json] = dict(zip(names, distinct.values(), strict=True))
        self._names = dict(zip(distinct, names, strict=True))
        self.default = self.name_of(*found[0])

    def overrides(self, part: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], str, Json]]:
        """The overrides of a part, each with its value: the fields of an object change those of what the part
        sets, else of the default value.
        """
        base = member(part, "variables", dict, place, {}).get(self.name, self._schema["defaultValue"])
        overrides = member(part, "variableOverrides", dict, place, {})
        for override, at in items(overrides, self.name, f"{place}.variableOverrides"):
            value = override.get("value")
            if isinstance(value, dict):
                if not isinstance(base, dict) or any(_PATH.search(key) for key in value):
                    message = f"changes a part of the value of {quote(self.name)}; write it whole"
                    raise NoExactForm(f"{at}.value", message)
                value = {**base, **value}
            yield override, at, value

    def _decode(self, value: Json, place: str) -> Json:
        if self._schema.get("type") == "json" and isinstance(value, str):
            try:
                value = orjson.loads(value)
            except ValueError:
                raise NoExactForm(place, f"the value of {quote(self.name)} is no JSON") from None
        if value is None or (isinstance(value, int) and abs(value) >= 2**53):
            raise NoExactForm(place, f"{quote(self.name)} is null or too large")
        return value

    def name_of(self, value: Json, place: str) -> str:
        """The variant of a value."""
        return self._names[orjson.dumps(self._decode(value, place))]

    def of_part(self, part: dict[str, Any], place: str) -> str | None:
        """The variant that a part sets by `variables`; None: it sets none."""
        variables = member(part, "variables", dict, place, {})
        return self.name_of(variables[self.name], place) if self.name in variables else None

    def when_disabled(self) -> str | None:
        """The variant of users who do not have the feature."""
        if "disabledValue" in self._schema:
            return self.name_of(self._schema["disabledValue"], self._place)
        return self.default if self._schema.get("useDefaultWhenDisabled") is True else None


def _parts(fields: dict[str, Any], place: str) -> list[_Placed]:
    """All that may set variables, in all environments."""
    parts = list(items(fields, "variations", place))
    for name in ("rules", "force"):
        if isinstance(fields.get(name), dict):
            for environment in fields[name]:
                parts += items(fields[name], environment, place_of(place, name))
        else:
            parts += items(fields, name, place)
    return parts


def _tree(value: Any, place: str, leaf: Callable[[Any, str], Condition]) -> Condition:
    """A condition of lists and of objects with `and`, `or` and `not`; `*` is true of everybody."""
    if value == "*":
        return Always()
    if isinstance(value, list):
        parts = (_tree(part, f"{place}[{number}]", leaf) for number, part in enumerate(value))
        return All(tuple(parts))
    if isinstance(value, dict) and "attribute" not in value:
        for name in value.keys() & {"and", "or", "not"}:
            given = member(value, name, list, place, [])
            joined = [_tree(part, f"{place}.{name}[{number}]", leaf) for number, part in enumerate(given)]
            if name == "or":
                return AnyOf(tuple(joined))
            every = All(tuple(joined))
            return every if name == "and" else Not(every) if joined else NEVER
    return leaf(value, place)


def _segment(value: Any, place: str) -> Condition:
    if not isinstance(value, str) or not value:
        raise NoExactForm(place, "names no segment")
    return InSegment(value)


def _is_number(attribute: str) -> Condition:
    return AnyOf((Number(attribute, Relation.AT_MOST, 0), Number(attribute, Relation.MORE, 0)))


def _includes(attribute: str, operator: str, value: str | float | bool) -> Condition:
    """Whether the attribute is a list with, or without, the value."""
    known = AnyItem(attribute, OneOf(ITEM, (value,)))
    if operator == "includes":
        return All((Not(OneOf(attribute, (value,))), known))
    scalar = AnyOf((IsText(attribute), _is_number(attribute), OneOf(attribute, (True, False))))
    return All((Present(attribute), Not(scalar), Not(known)))


def _scalars(values: Any, place: str) -> Iterator[str | float | bool]:
    if not isinstance(values, list):
        raise NoExactForm(f"{place}.value", "is no list")
    for value in values:
        if not isinstance(value, str | int | float):
            message = "is null, a list or an object; compare with a text, a number or a boolean"
            raise NoExactForm(f"{place}.value", message)
        yield value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise NoExactForm(place, "has something other than a text")
    return value


def _milliseconds(value: Any, place: str) -> int:
    time = parse_time(_text(value, place))
    if time is None:
        raise NoExactForm(place, "is no time with a time zone")
    return round(time.timestamp() * 1000)


def _percentage(rule: dict[str, Any], place: str, name: str = "percentage") -> float:
    value: float = member(rule, name, (int, float), place, 0)
    if not 0 <= value <= 100:
        raise NoExactForm(place_of(place, name), "is no percentage")
    return value


def _variations(feature: _Feature) -> dict[str, Json]:
    values = [_text(part.get("value"), place) for part, place in feature.variations]
    off = feature.fields.get("disabledVariationValue")
    return {value: value for value in (*values, *([_text(off, feature.place)] if off is not None else []))}


def _has_variation_where_on(feature: _Feature) -> bool:
    """Whether forces and rules give variations only to users who have the feature."""
    forces = (force for force, _ in feature.forces)
    rules = (rule for rule, _ in feature.rules)
    return not (
        feature.fields.get("required")
        or any(force.get("enabled", "variation" not in force) is not True for force in forces)
        or any("enabled" in rule or ("variation" in rule and rule.get("percentage") != 100) for rule in rules)
    )


def _require_variation(part: dict[str, Any], variations: Mapping[str, Json], place: str) -> str:
    value = _text(part["variation"], place)
    if value not in variations:
        raise NoExactForm(f"{place}.variation", f"there is no variation {quote(value)}")
    return value


def _allocation(feature: _Feature, rule: dict[str, Any], place: str) -> list[tuple[Arm, int]]:
    """The variations within the percentage of a rule; beyond it users have none."""
    share = _percentage(rule, place)
    weights = member(rule, "variationWeights", dict, place, {})
    arms: list[tuple[Arm, int]] = []
    for variation, at in feature.variations:
        name = _text(variation.get("value"), at)
        weight = _percentage(
            weights if name in weights else variation, at, name if name in weights else "weight"
        )
        arms.append((name, round(share * weight * WEIGHTS / 10_000)))
    rest = WEIGHTS - sum(weight for _, weight in arms)
    if rest < 0:
        raise NoExactForm(place, "the weights of the variations are more than 100")
    return [*arms, (None, rest)]


def _divide(feature: _Feature, when: Condition, arms: list[tuple[Arm, int]]) -> Iterator[TargetingRule]:
    """The rules that divide users of whom `when` is true, by the first attribute of `bucketBy` that they
    have. Who has none is where the feature's key alone is.
    """
    arms = [(arm, weight) for arm, weight in arms if weight > 0]
    if len(arms) > 1:
        by = feature.fields.get("bucketBy")
        if isinstance(by, list) and len(by) > 1:
            message = "users are divided by several attributes together; join them into one in the contexts"
            raise NoExactForm(place_of(feature.place, "bucketBy"), message)
        names = by.get("or") if isinstance(by, dict) else by if isinstance(by, list) else [by]
        for name in names if isinstance(names, list) else [None]:
            attribute = _text(name, place_of(feature.place, "bucketBy"))
            attribute = TARGETING_KEY if attribute == "userId" else attribute
            yield TargetingRule(when, UserSplit(tuple(arms), UserHash(attribute, feature.key), NEXT))
    bucket = math.floor(mmh3.mmh3_32_uintdigest(feature.key.encode(), 1) / 2**32 * WEIGHTS)
    end = 0
    for arm, weight in arms:
        end += weight
        if bucket <= end:
            yield TargetingRule(when, arm)
            return
