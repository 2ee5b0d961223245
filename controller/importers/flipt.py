"""Reads Flipt v2: `features.yaml` of a namespace, versions 1.0 to 1.6. Pure.

Sources: flipt-io/flipt, core/validation/flipt.cue and internal/server/evaluation/evaluation.go. Flipt's
contexts hold texts alone; a number or a boolean here counts as its text. Flipt's OpenFeature provider gives
the attachment to callers that ask for an object, and the key to others. A flag here has values of one type,
so they are the attachments where every variant has an object, else the keys.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.importers.conditions import NEVER
from controller.importers.model import (
    ANY,
    NEXT,
    TARGETING_KEY,
    All,
    AnyOf,
    Arm,
    Condition,
    ImportedFlag,
    InSegment,
    IsText,
    Not,
    Number,
    OneOf,
    Outcome,
    Present,
    Relation,
    Rule,
    Targeting,
    TargetingRule,
    Text,
    TextPart,
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
)
from evaluator.flags.text import quote
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evaluator.flags.model import Json, Scalar

_BOOLEANS: Final = {"true": True, "false": False}
_BUCKETS: Final = 1000
"""The parts into which a distribution divides users; a threshold divides them into 100."""
_RELATIONS: Final = {
    "eq": Relation.EQUAL,
    "neq": Relation.UNEQUAL,
    "lt": Relation.LESS,
    "lte": Relation.AT_MOST,
    "gt": Relation.MORE,
    "gte": Relation.AT_LEAST,
}
_PARTS: Final = {
    "prefix": TextPart.START,
    "suffix": TextPart.END,
    "contains": TextPart.ANYWHERE,
    "notcontains": TextPart.ANYWHERE,
}
_JOINS: Final[Mapping[str, type[All | AnyOf]]] = {
    "ALL_MATCH_TYPE": All,
    "ANY_MATCH_TYPE": AnyOf,
    "AND_SEGMENT_OPERATOR": All,
    "OR_SEGMENT_OPERATOR": AnyOf,
}
_TRUE_TEXTS: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE_TEXTS: Final = ("0", "f", "F", "false", "FALSE", "False")
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,14}|-?(0|[1-9][0-9]{0,9})\.[0-9]{0,4}[1-9]")
"""Texts that are how Flipt's clients write a number."""
_PART_OF_NUMBER: Final = re.compile(r"[0-9.e+-]+")


def read(files: list[SourceFile], reading: ImportReading) -> None:
    """Read flags and segments of one namespace. Raises UnreadableFile."""
    namespaces: dict[str, None] = {}
    segments: set[str] = set()
    for file in files:
        namespaces[_namespace(file)] = None
        if len(namespaces) > 1:
            names = " and ".join(namespaces)
            raise UnreadableFile(f"the files have the namespaces {names}; import each by itself")
        for segment, place in items(file.content, "segments", f"{file.name}:"):
            _read_segment(reading, segment, place, segments)
        for flag, place in items(file.content, "flags", f"{file.name}:"):
            _read_flag(reading, flag, place)


def _namespace(file: SourceFile) -> str:
    content: Any = file.content
    if not isinstance(content, dict) or not {"flags", "segments", "namespace"} & content.keys():
        raise UnreadableFile(f"{file.name}: has neither flags nor segments")
    namespace = member(content, "namespace", (str, dict), file.name, {})
    key = namespace if isinstance(namespace, str) else member(namespace, "key", str, file.name, "")
    return str(key) or "default"


def _read_segment(reading: ImportReading, segment: dict[str, Any], place: str, known: set[str]) -> None:
    name = segment.get("key")
    name = name if isinstance(name, str) else place
    with reading.one(name, place, segment=True):
        if name in known:
            raise NoExactForm(place, f"there is another segment {quote(name)}")
        known.add(name)
        join = _join(segment, "match_type", "ALL_MATCH_TYPE", place)
        constraints = tuple(
            _Constraint.read(part, at, reading).condition()
            for part, at in items(segment, "constraints", place)
        )
        # A segment without constraints has everybody, whatever its type.
        reading.add_segment(name, reading.options.environment, join(constraints) if constraints else All(()))


def _read_flag(reading: ImportReading, flag: dict[str, Any], place: str) -> None:
    key = flag.get("key")
    with reading.one(key if isinstance(key, str) else place, place):
        key = member(flag, "key", str, place, "")
        kind = member(flag, "type", str, place, "") or "VARIANT_FLAG_TYPE"
        if kind == "BOOLEAN_FLAG_TYPE":
            variants: Mapping[str, Json] = _BOOLEANS
            targeting = _boolean_targeting(flag, place)
            ignored = "rules"
        elif kind == "VARIANT_FLAG_TYPE":
            variants = _variants(reading, flag, place)
            targeting = _variant_targeting(flag, variants, place)
            ignored = "rollouts"
        else:
            raise NoExactForm(f"{place}.type", f"Flipt has no {kind}")
        if flag.get(ignored):
            reading.remark(f"{place}.{ignored}", f"Flipt ignores {ignored} of a flag of this type")
        metadata = scalars(
            {
                **member(flag, "metadata", dict, place, {}),
                "description": flag.get("description") or flag.get("name"),
            }
        )
        environment = reading.options.environment
        reading.add(ImportedFlag(key, place, variants, {environment: targeting}, metadata))


def _variants(reading: ImportReading, flag: dict[str, Any], place: str) -> dict[str, Json]:
    """The values of the variants, by key."""
    attachments: dict[str, Json] = {}
    for variant, at in items(flag, "variants", place):
        key = member(variant, "key", str, at, "")
        if key in attachments:
            raise NoExactForm(at, f"there is another variant {quote(key)}")
        attachments[key] = variant.get("attachment")
    if attachments and all(isinstance(value, dict) for value in attachments.values()):
        reading.remark(f"{place}.variants", "its values are the attachments, and not the keys of variants")
        return attachments
    if any(value is not None for value in attachments.values()):
        message = "its values are the keys of variants; attachments are left out, since not all are objects"
        reading.remark(f"{place}.variants", message)
    return {key: key for key in attachments}


def _boolean_targeting(flag: dict[str, Any], place: str) -> Targeting:
    """`enabled` is no switch: it is the value of users whom no rollout takes."""
    rules: list[TargetingRule] = []
    for rollout, at in items(flag, "rollouts", place):
        threshold = member(rollout, "threshold", dict, at)
        segment = member(rollout, "segment", dict, at)
        if (threshold is None) is (segment is None):
            raise NoExactForm(at, "a rollout needs either a segment or a threshold")
        part = threshold if segment is None else segment
        value = "true" if member(part, "value", bool, at, False) else "false"
        if segment is not None:
            rules.append(TargetingRule(_segments(segment, at), value))
            continue
        percentage = member(part, "percentage", (int, float), at, 0)
        taken = sum(bucket < _float32(percentage) for bucket in range(100))
        # The others go on to the next rollout. Without a targeting key, Flipt takes a random one.
        rules.append(TargetingRule(All(()), UserSplit(((value, taken), (NEXT, 100 - taken)), missing=ANY)))
    return Targeting("true" if member(flag, "enabled", bool, place, False) else "false", tuple(rules))


def _variant_targeting(flag: dict[str, Any], variants: Mapping[str, Json], place: str) -> Targeting:
    defaults = [
        part.get("key") for part, at in items(flag, "variants", place) if member(part, "default", bool, at)
    ]
    default = defaults[-1] if defaults else None
    rules = []
    if member(flag, "enabled", bool, place, False):
        for rule, at in items(flag, "rules", place):
            segment = member(rule, "segment", (str, list, dict), at)
            rules.append(TargetingRule(_segments(segment, at), _distribution(rule, variants, default, at)))
    return Targeting(default, tuple(rules), default)


def _segments(segment: str | list[Any] | dict[str, Any] | None, place: str) -> Condition:
    """A key, keys, or an object with either and an operator."""
    fields = segment
    if not isinstance(fields, dict):
        fields = {"keys": segment if isinstance(segment, list) else [segment]}
    keys = member(fields, "keys", list, place) or [member(fields, "key", str, place)]
    if not all(isinstance(key, str) and key for key in keys):
        raise NoExactForm(f"{place}.segment", "names no segment")
    join = _join(fields, "operator", "OR_SEGMENT_OPERATOR", f"{place}.segment")
    return join(tuple(InSegment(key) for key in dict.fromkeys(keys)))


def _join(value: dict[str, Any], field: str, default: str, place: str) -> type[All | AnyOf]:
    name = member(value, field, str, place, "") or default
    if name not in _JOINS:
        raise NoExactForm(f"{place}.{field}", f"Flipt has no {name}")
    return _JOINS[name]


def _distribution(
    rule: dict[str, Any], variants: Mapping[str, Json], default: str | None, place: str
) -> Outcome:
    """Users past the sum of the shares get no variant, and no later rule."""
    rest = _BUCKETS
    arms: list[tuple[Arm, int]] = []
    for part, at in items(rule, "distributions", place):
        variant = member(part, "variant", str, at, "")
        if variant not in variants:
            raise NoExactForm(f"{at}.variant", f"there is no variant {quote(variant)}")
        rollout = _float32(member(part, "rollout", (int, float), at, 0))
        if not 0 <= rollout <= 100:
            raise NoExactForm(f"{at}.rollout", "is no percentage")
        # Flipt counts in single precision, and cuts each share to tenths of a percent.
        weight = min(rest, int(_float32(rollout * 10)))
        arms.append((variant, weight))
        rest -= weight
    if rest == _BUCKETS:
        return default
    return UserSplit((*arms, (default, rest)), missing=ANY)


def _float32(number: float) -> float:
    """The number in single precision; a number that is too large is infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


@dataclass(frozen=True, slots=True)
class _Constraint:
    """One constraint of a segment, on what the context has by the name of `attribute`."""

    attribute: str
    kind: str
    operator: str
    value: str | list[Any]
    place: str
    reading: ImportReading

    @classmethod
    def read(cls, part: dict[str, Any], place: str, reading: ImportReading) -> _Constraint:
        kind = member(part, "type", str, place, "")
        attribute = TARGETING_KEY
        if kind != "ENTITY_ID_COMPARISON_TYPE":
            attribute = attribute_path(member(part, "property", str, place, ""), place)
        operator = member(part, "operator", str, place, "")
        value = member(part, "value", (str, list), place, "")
        return cls(attribute, kind, operator, value, place, reading)

    def condition(self) -> Condition:
        conditions = {
            "STRING_COMPARISON_TYPE": self._text,
            "ENTITY_ID_COMPARISON_TYPE": self._text,
            "NUMBER_COMPARISON_TYPE": self._number,
            "BOOLEAN_COMPARISON_TYPE": self._boolean,
            "DATETIME_COMPARISON_TYPE": self._date,
        }
        if self.kind not in conditions:
            raise NoExactForm(
                f"{self.place}.type", f"Flipt has no {self.kind or 'constraint without a type'}"
            )
        if self.operator in ("empty", "notpresent"):
            return self._blank()
        if self.operator in ("notempty", "present"):
            return Not(self._blank())
        return conditions[self.kind]()

    def _blank(self) -> Condition:
        """Whether the attribute is missing, or a text without anything but spaces, which is the number 0."""
        zero = Rule({"==": [{"var": self.attribute}, 0]})
        digit = Text(self.attribute, TextPart.ANYWHERE, ("0",))
        return AnyOf((Not(Present(self.attribute)), All((IsText(self.attribute), zero, Not(digit)))))

    def _some(self, condition: Condition) -> Condition:
        """The condition of users who have the attribute: to the others, no constraint applies."""
        return All((Present(self.attribute), Not(OneOf(self.attribute, ("",))), condition))

    def _text(self) -> Condition:
        if self.operator in ("eq", "neq"):
            equal = self._equals([self._plain()])
            return equal if self.operator == "eq" else self._some(Not(equal))
        if self.operator in ("isoneof", "isnotoneof"):
            equal = self._equals(self._list(str))
            return equal if self.operator == "isoneof" else self._some(Not(equal))
        if self.operator not in _PARTS:
            raise self._unknown_operator()
        text = self._plain()
        if text == "":
            return self._some(All(())) if self.operator != "notcontains" else NEVER
        if self.operator in ("prefix", "suffix"):
            message = "Flipt removes spaces around the text first, which rules cannot do"
            self.reading.approximate("plain-texts", self.place, message)
        if _PART_OF_NUMBER.fullmatch(text) or text in "true" or text in "false":
            message = "in Flipt, numbers and booleans are texts, and may have this part"
            self.reading.approximate("plain-texts", self.place, message)
        part = Text(self.attribute, _PARTS[self.operator], (text,))
        return self._some(Not(part)) if self.operator == "notcontains" else part

    def _equals(self, texts: Sequence[str]) -> Condition:
        """Whether the attribute is one of the texts, or a number or a boolean that is written so."""
        values: dict[tuple[type, Scalar], None] = {}
        for text in filter(None, texts):
            values[str, text] = None
            if text in _BOOLEANS:
                values[bool, _BOOLEANS[text]] = None
            elif _NUMBER.fullmatch(text):
                values[float, float(text) if "." in text else int(text)] = None
        return OneOf(self.attribute, tuple(value for _, value in values))

    def _number(self) -> Condition:
        if self.operator in ("isoneof", "isnotoneof"):
            numbers = self._list((int, float))
            if self.operator == "isoneof":
                return AnyOf(tuple(self._compare(Relation.EQUAL, number) for number in numbers))
            # A text that is no number is in no order at all.
            some = AnyOf((self._compare(Relation.EQUAL, 0), self._compare(Relation.UNEQUAL, 0)))
            return All((some, *(self._compare(Relation.UNEQUAL, number) for number in numbers)))
        if self.operator not in _RELATIONS:
            raise self._unknown_operator()
        try:
            number = float(self._plain())
        except ValueError:
            raise NoExactForm(f"{self.place}.value", f"{quote(self._plain())} is no number") from None
        return self._compare(_RELATIONS[self.operator], number)

    def _compare(self, order: Relation, number: float) -> Condition:
        if not abs(number) < 2**53:
            raise NoExactForm(f"{self.place}.value", "is too large, or no number")
        return Number(self.attribute, order, int(number) if number == int(number) else number, texts=True)

    def _boolean(self) -> Condition:
        if self.operator == "true":
            return OneOf(self.attribute, (*_TRUE_TEXTS, True, 1))
        if self.operator == "false":
            return OneOf(self.attribute, (*_FALSE_TEXTS, False, 0))
        raise self._unknown_operator()

    def _date(self) -> Condition:
        if self.operator not in _RELATIONS:
            raise self._unknown_operator()
        message = "dates are texts in Flipt, which rules cannot read"
        self.reading.approximate("numeric-dates", self.place, message)
        text = self._plain()
        date = parse_time(f"{text}T00:00:00Z" if "T" not in text else text)
        if date is None:
            raise NoExactForm(f"{self.place}.value", f"{quote(text)} is no date")
        return Number(self.attribute, _RELATIONS[self.operator], date.timestamp())

    def _plain(self) -> str:
        if isinstance(self.value, list):
            raise NoExactForm(f"{self.place}.value", f"{self.operator} takes no list")
        return self.value

    def _list(self, kind: type | tuple[type, ...]) -> list[Any]:
        """The values of a list, which is JSON in a text before version 1.6."""
        try:
            values = self.value if isinstance(self.value, list) else json.loads(self.value)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, list) or any(
            not isinstance(value, kind) or isinstance(value, bool) for value in values
        ):
            raise NoExactForm(f"{self.place}.value", "is no list of texts, or of numbers, as its type needs")
        return values

    def _unknown_operator(self) -> NoExactForm:
        return NoExactForm(
            f"{self.place}.operator", f"a constraint of this type has no {quote(self.operator)}"
        )
