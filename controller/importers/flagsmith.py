"""Reads Flagsmith: an export of features, or the environment document, which SDKs evaluate. Pure.

Sources: https://docs.flagsmith.com, and its evaluation engine. A feature gives two flags: FEATURE, whether
it is enabled, and FEATURE.value, where it has a value. The identifier of an identity is the targeting key,
and its traits are attributes of the same names. Texts of digits are numbers, as in Flagsmith. A boolean
equals true and false alone: its SDKs differ in that. An export has no segments and no overrides.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER, rule_of, simplify
from controller.importers.model import (
    NEXT,
    TARGETING_KEY,
    All,
    Always,
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
    Remark,
    Rule,
    SemanticVersion,
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
    arms_of_ranges,
    attribute_path,
    items,
    member,
    text_pattern,
    variant_names,
    whole_weights,
)
from evaluator.flags.model import Bucketing
from evaluator.flags.text import quote
from evaluator.targeting import compile_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evaluator.flags.model import Json

_ORDERS: Final = {
    "EQUAL": Relation.EQUAL,
    "NOT_EQUAL": Relation.UNEQUAL,
    "GREATER_THAN": Relation.MORE,
    "GREATER_THAN_INCLUSIVE": Relation.AT_LEAST,
    "LESS_THAN": Relation.LESS,
    "LESS_THAN_INCLUSIVE": Relation.AT_MOST,
}
_BOOLEANS: Final = {"True": True, "true": True, "False": False, "false": False}
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_SEMVER: Final = ":semver"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags and segments. Raises UnreadableFile."""
    for file in files:
        content = file.content
        if isinstance(content, list):
            message = "an export has no segments and no overrides; the environment document has them"
            reading.remarks.append(Remark("", file.name, message))
            content = {"feature_states": [_state_of_export(item) for item in content]}
        if not isinstance(content, dict) or not isinstance(content.get("feature_states"), list):
            message = "is neither an export, a list, nor an environment document with feature_states"
            raise UnreadableFile(f"{file.name} {message}")
        _EnvironmentReader(file.name, content, reading).read()


def _state_of_export(item: Any) -> Any:
    """An entry of an export, in the form of the environment document."""
    if not isinstance(item, dict):
        return item
    options = member(item, "multivariate", list, "multivariate", [])
    return {
        "feature": {"name": item.get("name")},
        "enabled": item.get("enabled"),
        "feature_state_value": item.get("value"),
        "multivariate_feature_state_values": [
            option | {"multivariate_feature_option": option} if isinstance(option, dict) else option
            for option in options
        ],
    }


@dataclass(frozen=True, slots=True)
class _Override:
    """What users of whom `when` is true get of a feature; of several, the lowest priority."""

    when: Condition
    state: dict[str, Any]
    place: str
    priority: float


@dataclass(slots=True)
class _EnvironmentReader:
    file: str
    document: dict[str, Any]
    reading: ImportReading
    overrides: dict[str, list[_Override]] = field(default_factory=dict)

    def read(self) -> None:
        for identity, place in items(self.document, "identity_overrides", self.file):
            when = OneOf(TARGETING_KEY, (member(identity, "identifier", str, place, ""),))
            for state, at in items(identity, "identity_features", place):
                self._add_override(when, state, at, -math.inf)
        project = member(self.document, "project", dict, self.file, {})
        names: dict[str, None] = {}
        for segment, place in items(project, "segments", f"{self.file}:project"):
            name = member(segment, "name", str, place, "")
            name = name if name and name not in names else f"{name}-{segment.get('id')}"
            names[name] = None
            with self.reading.one(name, place, segment=True):
                condition = self._segment(segment, place)
                self.reading.add_segment(name, self.reading.options.environment, condition)
            for state, at in items(segment, "feature_states", place):
                priority = member(state, "feature_segment", dict, at, {}).get("priority")
                known = isinstance(priority, int | float)
                self._add_override(InSegment(name), state, at, priority if known else math.inf)
        for state, place in items(self.document, "feature_states", self.file):
            name = _feature(state, place)
            with self.reading.one(name, place):
                for flag in self._flags(name, state, place):
                    self.reading.add(flag)

    def _add_override(self, when: Condition, state: dict[str, Any], place: str, priority: float) -> None:
        override = _Override(when, state, place, priority)
        self.overrides.setdefault(_feature(state, place), []).append(override)

    def _flags(self, name: str, state: dict[str, Any], place: str) -> Iterator[ImportedFlag]:
        environment = self.reading.options.environment
        overrides = sorted(self.overrides.get(name, []), key=lambda override: override.priority)
        rules = [TargetingRule(part.when, _switch(part.state, part.place)) for part in overrides]
        enabled = Targeting(_switch(state, place), tuple(rules))
        yield ImportedFlag(name, place, {"on": True, "off": False}, {environment: enabled})
        states = [(state, place), *((part.state, part.place) for part in overrides)]
        values = list(dict.fromkeys(_text(value) for part in states for value in _values(*part)))
        if not set(values) <= {"null", '""'}:
            values = [value for value in values if value != "null"]
            known = [json.loads(value) for value in values]
            arms: dict[str, Arm] = dict(zip(values, variant_names(known, [None] * len(known)), strict=True))
            variants = {str(arm): json.loads(value) for value, arm in arms.items()}
            rules = [TargetingRule(part.when, _outcome(part.state, part.place, arms)) for part in overrides]
            targeting = Targeting(_outcome(state, place, arms), tuple(rules))
            yield ImportedFlag(f"{name}.value", place, variants, {environment: targeting})

    def _segment(self, segment: dict[str, Any], place: str) -> Condition:
        seed = f"{segment.get('id')},"
        rules = tuple(self._rule(*rule, seed) for rule in items(segment, "rules", place))
        return All(rules) if rules else NEVER

    def _rule(self, rule: dict[str, Any], place: str, seed: str) -> Condition:
        """Its conditions and its rules, each joined by the type of the rule; true without any."""
        conditions = [self._condition(*part, seed) for part in items(rule, "conditions", place)]
        rules = [self._rule(*part, seed) for part in items(rule, "rules", place)]
        kind = member(rule, "type", str, place, "")
        if kind not in ("ALL", "ANY", "NONE"):
            raise NoExactForm(place, f"the type {quote(kind)} of a rule is none of ALL, ANY and NONE")
        joined: list[Condition] = []
        for parts in (conditions, rules):
            if parts:
                part = All(tuple(parts)) if kind == "ALL" else AnyOf(tuple(parts))
                joined.append(Not(part) if kind == "NONE" else part)
        return All(tuple(joined))

    def _condition(self, condition: dict[str, Any], place: str, seed: str) -> Condition:
        operator = member(condition, "operator", str, place, "")
        name = member(condition, "property_", str, place) or member(condition, "property", str, place, "")
        if operator == "PERCENTAGE_SPLIT":
            attribute = self._attribute("" if name == "$.identity.key" else name, place)
            return _share(attribute, seed, member(condition, "value", (str, int, float), place, ""), place)
        if not name:
            raise NoExactForm(place, "a condition of no property")
        constant = self._constant(name)
        attribute = "value" if constant is not None else self._attribute(name, place)
        if operator in ("IS_SET", "IS_NOT_SET"):
            tested: Condition = Present(attribute) if operator == "IS_SET" else Not(Present(attribute))
        elif operator == "IN":
            tested = _one_of(attribute, _list_of(condition.get("value"), place))
        else:
            value = member(condition, "value", str, place)
            if value is None:
                raise NoExactForm(place, "a condition without a value")
            tested = self._test(attribute, operator, value, place)
        if constant is None:
            return tested
        rule = {"if": [rule_of(simplify(tested)), True, False]}
        known = compile_rule(rule, bucketing=Bucketing.V2, flag_key="")({"value": constant})
        return Always(known is True)

    def _constant(self, name: str) -> str | None:
        """The property of the environment, which is the same for all users."""
        constants = {"$.environment.name": "name", "$.environment.key": "api_key"}
        value = self.document.get(constants.get(name, ""))
        return value if isinstance(value, str) else None

    def _attribute(self, name: str, place: str) -> str:
        if name in ("", "$.identity.identifier"):
            return TARGETING_KEY
        if name.startswith("$."):
            raise NoExactForm(place, f"{quote(name)} is neither a trait nor the identifier; use one of these")
        return attribute_path(name, place)

    def _test(self, attribute: str, operator: str, value: str, place: str) -> Condition:
        is_version, is_number = value.endswith(_SEMVER), _NUMBER.fullmatch(value) is not None
        condition: Condition
        match operator:
            case "CONTAINS":
                contains = Text(attribute, TextPart.ANYWHERE, (value,))
                may_be_number = re.fullmatch("[-.0-9]*", value)
                condition = All((_is_word(attribute), contains)) if may_be_number else contains
                condition = NEVER if is_version else condition
            case "NOT_CONTAINS":
                condition = All((_is_word(attribute), Not(Text(attribute, TextPart.ANYWHERE, (value,)))))
            case "REGEX":
                # It is matched from the start, also without ^, and numbers are matched as texts.
                if re.match(r"\^?\(?[-0-9]", value):
                    raise NoExactForm(
                        place, "a regular expression finds numbers, too; list the texts that it finds"
                    )
                condition = text_pattern(attribute, f"^{value.removeprefix('^')}", place)
            case _ if operator not in _ORDERS:
                raise NoExactForm(place, f"the operator {quote(operator)} has no form here; list the values")
            case _ if is_version:
                condition = _version(attribute, _ORDERS[operator], value.removesuffix(_SEMVER))
            case _ if is_number:
                condition = self._number(attribute, _ORDERS[operator], value, place)
            case "EQUAL":
                condition = OneOf(attribute, (value, *_as_boolean(value)))
            case "NOT_EQUAL":
                other = tuple(not known for known in _as_boolean(value))
                unequal = All((_is_word(attribute), Not(OneOf(attribute, (value,)))))
                condition = AnyOf((unequal, OneOf(attribute, other)))
            case _:
                condition = _in_order(attribute, _ORDERS[operator], value)
        return condition

    def _number(self, attribute: str, order: Relation, value: str, place: str) -> Condition:
        if "." in value:
            message = "Flagsmith compares no whole number with a fraction; write a whole number"
            self.reading.approximate("fractions", place, message)
        number = float(value) if "." in value else int(value)
        if order is Relation.EQUAL and attribute == TARGETING_KEY:
            return OneOf(attribute, (value,))
        if order in (Relation.EQUAL, Relation.UNEQUAL):
            equal = Number(attribute, Relation.EQUAL, number, texts=True)
            return equal if order is Relation.EQUAL else All((Present(attribute), Not(equal)))
        return AnyOf((Number(attribute, order, number, texts=True), _in_order(attribute, order, value)))


def _feature(state: dict[str, Any], place: str) -> str:
    name = member(member(state, "feature", dict, place, {}), "name", str, place, "")
    if not name:
        raise NoExactForm(place, "a state of a feature without a name")
    return str(name)


def _switch(state: dict[str, Any], place: str) -> str:
    return "on" if member(state, "enabled", bool, place, False) else "off"


def _text(value: Json) -> str:
    return json.dumps(value)


def _values(state: dict[str, Any], place: str) -> Iterator[Json]:
    """The values that users get: the state's own, and those with a share."""
    yield _plain(state.get("feature_state_value"), place)
    yield from (value for value, share in _options(state, place) if share > 0)


def _plain(value: Any, place: str) -> Json:
    if isinstance(value, dict | list):
        raise NoExactForm(place, "its value is a list or an object, which Flagsmith does not have")
    return value


def _options(state: dict[str, Any], place: str) -> list[tuple[Json, float]]:
    """Values with their shares in percent, in the order of the options."""
    options = []
    for part, at in items(state, "multivariate_feature_state_values", place):
        share = member(part, "percentage_allocation", (int, float), at, 0)
        if not 0 <= share <= 100:
            raise NoExactForm(at, "a share of users is not from 0 to 100 percent")
        value = _plain(member(part, "multivariate_feature_option", dict, at, {}).get("value"), at)
        options.append((member(part, "id", int, at, 0), value, float(share)))
    return [(value, share) for _, value, share in sorted(options, key=lambda option: option[0])]


def _outcome(state: dict[str, Any], place: str, arms: dict[str, Arm]) -> Outcome:
    """The value, or a split of the values; who is in no share, or has no key, gets the state's own."""
    own = arms.get(_text(state.get("feature_state_value")))
    ranges, start = [], 0.0
    for value, share in _options(state, place):
        ranges.append((start, start + share, arms.get(_text(value))))
        start += share
    if not ranges:
        return own
    parts = arms_of_ranges(ranges, 100, place)
    return UserSplit(tuple((own if arm is NEXT else arm, weight) for arm, weight in parts), UserHash(), own)


def _share(attribute: str, seed: str, value: Any, place: str) -> Condition:
    try:
        percentage = float(value)
    except (ValueError, OverflowError):
        percentage = math.nan
    if not percentage > 0:
        return NEVER
    if percentage >= 100:
        return Present(attribute)
    weights = whole_weights([percentage, 100 - percentage], place)
    return InShare(UserHash(attribute, seed), weights[0], sum(weights))


def _list_of(value: Any, place: str) -> list[str]:
    """The values of IN: a list, also as JSON in a text, or a text with commas."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.startswith("[") else value.split(",")
        except (ValueError, RecursionError):
            value = value.split(",")
    if not isinstance(value, list) or any(isinstance(item, dict | list) for item in value):
        raise NoExactForm(place, "IN has no list of texts")
    return [str(item) for item in value]


def _one_of(attribute: str, values: Iterable[str]) -> Condition:
    """Whether the attribute is one of the texts, or a whole number that is one as a text."""
    # A text of digits is a number for Flagsmith: 007 is 7, and no fraction is in a list.
    texts = tuple(text for text in values if not re.fullmatch(r"-?\d+\.\d+|-?0\d+|-0", text))
    wholes = tuple(int(text) for text in texts if re.fullmatch("-?[0-9]{1,15}", text))
    return OneOf(attribute, texts if attribute == TARGETING_KEY else (*texts, *wholes))


def _in_order(attribute: str, order: Relation, value: str) -> Condition:
    """Whether the attribute is a word in this order of characters to the value."""
    return All((_is_word(attribute), Rule({order.value: [{"var": attribute}, value]})))


def _version(attribute: str, order: Relation, version: str) -> Condition:
    known = _VERSION.fullmatch(version) is not None
    return SemanticVersion(attribute, order, version, whole=True) if known else NEVER


def _as_boolean(value: str) -> tuple[bool, ...]:
    return (_BOOLEANS[value],) if value in _BOOLEANS else ()


def _is_word(attribute: str) -> Condition:
    """Whether the attribute is a text, and no number as a text, which is a number for Flagsmith."""
    var = {"var": attribute}
    # Of the texts that are the number 0, those without this digit are blank.
    zero = {"and": [{"==": [var, 0]}, {"in": ["0", var]}]}
    return All((IsText(attribute), Not(Rule({"or": [{"<": [var, 0]}, {">": [var, 0]}, zero]}))))
