"""Reads ConfigCat: the config JSON of SDKs, version 6, each of one environment. Pure.

Sources: the schema of https://github.com/configcat/config-json, and the evaluator of ConfigCat's SDKs. The
User's `Identifier` is the targeting key; other attributes have their names. A condition whose attribute is
missing, empty or of another type lets its rule pass, also where it is negated. Where a text is searched, an
attribute has to be a text: SDKs write numbers as texts with a warning, and here they match nothing. A version
has three numbers and neither a `v` nor white space, which only some of the SDKs take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER, has_bucket
from controller.importers.model import (
    ITEM,
    NEXT,
    TARGETING_KEY,
    All,
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
    variant_names,
)
from evaluator.flags.text import quote
from evaluator.flags.versions import is_written_out, parse_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evaluator.flags.model import Json

_VALUES: Final[tuple[tuple[str, type | tuple[type, ...]], ...]] = (
    ("b", bool),
    ("s", str),
    ("i", int),
    ("d", (int, float)),
)
"""Fields of a value, by the type of the setting."""
_TEXT_IS_ONE_OF, _TEXT_EQUALS, _VERSION_IS_ONE_OF, _LIST_CONTAINS = 0, 28, 4, 34
_TEXTS: Final = {2: TextPart.ANYWHERE, 30: TextPart.START, 32: TextPart.END}
_VERSIONS: Final = {6: Relation.LESS, 7: Relation.AT_MOST, 8: Relation.MORE, 9: Relation.AT_LEAST}
_NUMBERS: Final = {
    10: Relation.EQUAL,
    12: Relation.LESS,
    13: Relation.AT_MOST,
    14: Relation.MORE,
    15: Relation.AT_LEAST,
}
_DATES: Final = {18: Relation.LESS, 19: Relation.MORE}
_HASHED: Final = (16, 20, 22, 24, 26)
_NEGATED: Final = (1, 3, 5, 11, 17, 21, 23, 25, 27, 29, 31, 33, 35)
"""Comparators that are true where the one before is false."""
_OPPOSITE: Final = {
    Relation.EQUAL: Relation.UNEQUAL,
    Relation.LESS: Relation.AT_LEAST,
    Relation.AT_MOST: Relation.MORE,
    Relation.MORE: Relation.AT_MOST,
    Relation.AT_LEAST: Relation.LESS,
}
_LEAST_VERSION: Final = "0.0.0-0"
_NUMERAL: Final = re.compile(r"(?!-0$)-?(0|[1-9]\d{0,8})(\.\d{0,5}[1-9])?")
"""A number as SDKs write it."""

_Pair = tuple[Condition, Condition]
"""Whether a condition is true, and whether it is false: it is neither where it cannot be evaluated."""


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read settings and segments. Raises UnreadableFile."""
    for file in files:
        content: Any = file.content
        if not isinstance(content, dict) or not isinstance(content.get("f"), dict):
            raise UnreadableFile(f"{file.name}: has no settings (f) of ConfigCat's config JSON, version 6")
        settings = {key: value for key, value in content["f"].items() if isinstance(value, dict)}
        segments = list(items(content, "s", f"{file.name}:"))
        names = variant_names([None] * len(segments), [_text_or_none(part.get("n")) for part, _ in segments])
        reader = _Reader(reading, settings, names)
        for name, (segment, place) in zip(names, segments, strict=True):
            reader.read_segment(name, segment, place)
        for key, setting in settings.items():
            with reading.one(key, f"{file.name}:f.{key}"):
                reader.read_setting(key, setting, f"{file.name}:f.{key}")


@dataclass(frozen=True, slots=True)
class _Reader:
    reading: ImportReading
    settings: Mapping[str, dict[str, Any]]
    segments: list[str]

    def read_segment(self, name: str, segment: dict[str, Any], place: str) -> None:
        """Keep who is in the segment, and apart who is not: some users are neither."""
        environment = self.reading.options.environment
        for segment_name in (name, _not(name)):
            with self.reading.one(segment_name, place, segment=True):
                pairs = [self._user_condition(*part) for part in items(segment, "r", place)]
                inside = [holds for holds, _ in pairs]
                condition: Condition = All(tuple(inside))
                if segment_name != name:
                    outside = (All((*inside[:number], fails)) for number, (_, fails) in enumerate(pairs))
                    condition = AnyOf(tuple(outside))
                self.reading.add_segment(segment_name, environment, condition)

    def read_setting(self, key: str, setting: dict[str, Any], place: str) -> None:
        variants = _variants(setting, place)
        default = _variant(setting, setting, variants, place)
        rules = tuple(self._rule(setting, variants, *part) for part in items(setting, "r", place))
        targeting = Targeting(default, rules)
        if setting.get("p"):
            targeting = Targeting(_split(setting, setting, variants, place), rules, default)
        self.reading.add(ImportedFlag(key, place, variants, {self.reading.options.environment: targeting}))

    def _rule(
        self, setting: dict[str, Any], variants: Mapping[str, Json], rule: dict[str, Any], place: str
    ) -> TargetingRule:
        when = All(tuple(self._condition(*part) for part in items(rule, "c", place)))
        if rule.get("p"):
            return TargetingRule(when, _split(setting, rule, variants, place))
        served = member(rule, "s", dict, place, {})
        return TargetingRule(when, _variant(setting, served, variants, f"{place}.s"))

    def _condition(self, condition: dict[str, Any], place: str) -> Condition:
        if (user := member(condition, "u", dict, place)) is not None:
            return self._user_condition(user, f"{place}.u")[0]
        if (segment := member(condition, "s", dict, place)) is not None:
            number = member(segment, "s", int, f"{place}.s", -1)
            if not 0 <= number < len(self.segments):
                raise NoExactForm(f"{place}.s", f"there is no segment {number}")
            name = self.segments[number]
            return InSegment(_not(name) if _is_negated(segment, f"{place}.s") else name)
        return self._prerequisite(member(condition, "p", dict, place, {}), f"{place}.p")

    def _prerequisite(self, condition: dict[str, Any], place: str) -> Condition:
        key = member(condition, "f", str, place, "")
        setting = self.settings.get(key)
        if setting is None:
            raise NoExactForm(place, f"it needs the flag {quote(key)}, which is not in the files")
        value = _value(setting, condition, place)
        variants = _variants(setting, place)
        serves = Serves(key, tuple(name for name, other in variants.items() if other == value))
        return Not(serves) if _is_negated(condition, place) else serves

    def _user_condition(self, condition: dict[str, Any], place: str) -> _Pair:
        name = member(condition, "a", str, place, "")
        attribute = TARGETING_KEY if name == "Identifier" else attribute_path(name, place)
        comparator = member(condition, "c", int, place, -1)
        negated = comparator in _NEGATED
        holds, fails = self._test(attribute, comparator - negated, condition, place)
        return (fails, holds) if negated else (holds, fails)

    def _test(self, attribute: str, comparator: int, condition: dict[str, Any], place: str) -> _Pair:
        texts = [text for text in member(condition, "l", list, place, []) if isinstance(text, str)]
        text = member(condition, "s", str, place, "")
        if comparator in (_TEXT_IS_ONE_OF, _TEXT_EQUALS):
            return _equality(attribute, texts if comparator == _TEXT_IS_ONE_OF else [text])
        if comparator in _TEXTS:
            searched = Text(attribute, _TEXTS[comparator], tuple(texts))
            given = All((IsText(attribute), Not(OneOf(attribute, ("",)))))
            return All((given, searched)) if "" in texts else searched, All((given, Not(searched)))
        if comparator in _VERSIONS:
            return _versions(attribute, _VERSIONS[comparator], text.strip())
        if comparator == _VERSION_IS_ONE_OF:
            return _version_list(attribute, [item.strip() for item in texts if item])
        if comparator in _NUMBERS or comparator in _DATES:
            return self._numbers(attribute, comparator, condition, place)
        if comparator == _LIST_CONTAINS:
            return self._lists(attribute, texts, place)
        what = f"has the comparator {comparator}, which is not known here"
        if comparator in _HASHED:
            what = "compares hashed values; choose the comparator for clear text in ConfigCat"
        raise NoExactForm(place, what)

    def _numbers(self, attribute: str, comparator: int, condition: dict[str, Any], place: str) -> _Pair:
        if comparator in _DATES:
            message = "dates in contexts may be objects of SDKs, which rules cannot read"
            self.reading.approximate("numeric-dates", place, message)
        else:
            self.reading.approximate("decimal-points", place, "1,5 is a number for ConfigCat, and none here")
        relation = (_NUMBERS | _DATES)[comparator]
        number = member(condition, "d", (int, float), place)
        if number is None or abs(number) >= 2**53:
            raise NoExactForm(f"{place}.d", "is no number, or too large")
        return (
            Number(attribute, relation, number, texts=True),
            Number(attribute, _OPPOSITE[relation], number, texts=True),
        )

    def _lists(self, attribute: str, texts: list[str], place: str) -> _Pair:
        self.reading.approximate("json-lists", place, 'a text such as ["a"] is a list for ConfigCat')
        known = AnyItem(attribute, OneOf(ITEM, tuple(texts)))
        is_number = AnyOf((Number(attribute, Relation.AT_MOST, 0), Number(attribute, Relation.MORE, 0)))
        is_list = All((Present(attribute), Not(IsText(attribute)), Not(is_number)))
        return All((Not(IsText(attribute)), known)), All((is_list, Not(known)))


def _equality(attribute: str, texts: Iterable[str]) -> _Pair:
    """Whether an attribute is one of the texts, also as a number that SDKs write like this."""
    values: list[str | int | float] = [text for text in texts if text]
    if attribute != TARGETING_KEY:
        numerals = [text for text in texts if _NUMERAL.fullmatch(text)]
        values += [float(text) if "." in text else int(text) for text in numerals]
    known = OneOf(attribute, tuple(values))
    return known, All((Rule(has_bucket(UserHash(attribute))), Not(known)))


def _versions(attribute: str, relation: Relation, version: str) -> _Pair:
    if not _is_version(version):
        return NEVER, _is_any_version(attribute)
    return (
        SemanticVersion(attribute, relation, version, whole=True),
        SemanticVersion(attribute, _OPPOSITE[relation], version, whole=True),
    )


def _version_list(attribute: str, versions: list[str]) -> _Pair:
    """Whether a version is one of these. Both comparators are false where one of these is no version."""
    if not all(map(_is_version, versions)):
        return NEVER, NEVER
    known = AnyOf(tuple(SemanticVersion(attribute, Relation.EQUAL, item) for item in versions))
    return All((_is_any_version(attribute), known)), All((_is_any_version(attribute), Not(known)))


def _is_any_version(attribute: str) -> Condition:
    return SemanticVersion(attribute, Relation.AT_LEAST, _LEAST_VERSION, whole=True)


def _is_version(text: str) -> bool:
    return is_written_out(text) and parse_version(text) is not None


def _is_negated(condition: dict[str, Any], place: str) -> bool:
    comparator = member(condition, "c", int, place, 0)
    if comparator not in (0, 1):
        raise NoExactForm(f"{place}.c", f"the comparator {comparator} is not known here")
    return bool(comparator)


def _not(segment: str) -> str:
    return f"not-{segment}"


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _value(setting: dict[str, Any], served: dict[str, Any], place: str) -> Json:
    """The value that is served, of the type of the setting."""
    kind = member(setting, "t", int, place, -1)
    if not 0 <= kind < len(_VALUES):
        raise NoExactForm(f"{place}.t", f"there is no type {kind} of settings")
    field, expected = _VALUES[kind]
    value = member(member(served, "v", dict, place), field, expected, f"{place}.v")
    if value is None:
        raise NoExactForm(f"{place}.v", "has no value of the type of the setting")
    return value


def _served_parts(setting: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], str]]:
    yield setting, place
    yield from items(setting, "p", place)
    for rule, at in items(setting, "r", place):
        yield from items(rule, "p", at) if rule.get("p") else [(member(rule, "s", dict, at, {}), f"{at}.s")]


def _variants(setting: dict[str, Any], place: str) -> dict[str, Json]:
    """All values of a setting by names; both of a boolean."""
    values = [_value(setting, served, at) for served, at in _served_parts(setting, place)]
    distinct = [True, False] if isinstance(values[0], bool) else list(dict.fromkeys(values))
    return dict(zip(variant_names(distinct, [None] * len(distinct)), distinct, strict=True))


def _variant(
    setting: dict[str, Any], served: dict[str, Any], variants: Mapping[str, Json], place: str
) -> str:
    value = _value(setting, served, place)
    return next(name for name, other in variants.items() if other == value)


def _split(
    setting: dict[str, Any], part: dict[str, Any], variants: Mapping[str, Json], place: str
) -> UserSplit:
    """Percentage options, which leave users without the attribute to what comes after."""
    arms: list[tuple[Arm, int]] = []
    for option, at in items(part, "p", place):
        percentage = member(option, "p", int, at, -1)
        if not 0 <= percentage <= 100:
            raise NoExactForm(f"{at}.p", "is no percentage")
        arms.append((_variant(setting, option, variants, at), percentage))
    if sum(weight for _, weight in arms) != 100:
        raise NoExactForm(f"{place}.p", "the percentages are not 100 in sum")
    name = member(setting, "a", str, place) or "Identifier"
    attribute = TARGETING_KEY if name == "Identifier" else attribute_path(name, place)
    return UserSplit(tuple(arms), UserHash(attribute), NEXT)
