"""Writes conditions of the model as rules of targeting, which mean the same for every context. Pure.

flagd's comparisons convert: null and blank text are the number 0, `true` is 1, and a number is in a list of
texts if one of them has its value. Each such case is kept out by a guard, unless it gives the right answer
anyway. `starts_with` with an empty text is true of texts alone.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

from controller.importers.model import (
    TARGETING_KEY,
    All,
    Always,
    AnyItem,
    AnyOf,
    Condition,
    During,
    InGrowingShare,
    InSegment,
    InShare,
    IsText,
    Not,
    Number,
    OneOf,
    Present,
    Relation,
    Rule,
    SemanticVersion,
    Serves,
    Text,
    TextPart,
    UserHash,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evaluator.flags.model import Json

TIMESTAMP: Final = {"var": "$flagd.timestamp"}
_COMPARE: Final[Mapping[Relation, Callable[[float, float], bool]]] = {
    Relation.EQUAL: operator.eq,
    Relation.LESS: operator.lt,
    Relation.AT_MOST: operator.le,
    Relation.MORE: operator.gt,
    Relation.AT_LEAST: operator.ge,
}
NEVER: Final = Always(value=False)


def simplify(condition: Condition) -> Condition:
    """The same condition without parts that are always true or always false."""
    simple = condition
    match condition:
        case All(parts):
            simple = _join(All, parts, Always())
        case AnyOf(parts):
            simple = _join(AnyOf, parts, NEVER)
        case Not(part):
            inner = simplify(part)
            simple = Not(inner)
            if isinstance(inner, Always):
                simple = Always(not inner.value)
            elif isinstance(inner, Not):
                simple = inner.condition
        case AnyItem(attribute, part):
            inner = simplify(part)
            simple = inner if inner == NEVER else AnyItem(attribute, inner)
        case OneOf(_, ()) | Text(_, _, ()) | Serves(_, ()):
            simple = NEVER
        case During(None, None):
            simple = Always()
    return simple


def _join(kind: type[All | AnyOf], parts: Iterable[Condition], neutral: Always) -> Condition:
    """All parts, or any, without those that are `neutral`; the other constant decides alone."""
    kept = [part for part in map(simplify, parts) if part != neutral]
    if Always(not neutral.value) in kept:
        return Always(not neutral.value)
    if len(kept) < 2:
        return kept[0] if kept else neutral
    return kind(tuple(kept))


def object_rule(condition: Condition) -> Json:
    """The rule as an object, where a plain `true` is not allowed."""
    rule = rule_of(condition)
    return {"!!": [rule]} if isinstance(rule, bool) else rule


def rule_of(condition: Condition) -> Json:
    """The rule of a condition that `simplify` gave."""
    rule: Json
    match condition:
        case Always(value):
            rule = value
        case All(parts):
            rule = both(*map(rule_of, parts))
        case AnyOf(parts):
            rule = _either([rule_of(part) for part in parts])
        case Not(part):
            rule = {"!": _truth(rule_of(part))}
        case AnyItem(attribute, part):
            item: Json = {"var": attribute}
            rule = both({"!=": [item, None]}, {"some": [{"merge": [item]}, object_rule(part)]})
        case InSegment(name):
            rule = {"$ref": name}
        case Serves(flag, variants):
            rule = _either([{"flag": [flag, variant]} for variant in variants])
        case During(start, end):
            ends = [(">=", start), ("<", end)]
            rule = both(*({order: [TIMESTAMP, second]} for order, second in ends if second is not None))
        case InShare(bucket, weight, of):
            rule = in_arm(bucket, [["in", weight], ["out", of - weight]], "in")
        case InGrowingShare():
            rule = _in_growing_share(condition)
        case Rule(given):
            rule = given
        case _:
            rule = _rule_of_attribute(condition, {"var": condition.attribute})
    return rule


def _rule_of_attribute(
    condition: Present | IsText | OneOf | Number | Text | SemanticVersion, value: Json
) -> Json:
    rule: Json
    match condition:
        case Present():
            rule = {"!=": [value, None]}
        case IsText():
            rule = _is_text(value)
        case OneOf(_, values):
            rule = _one_of(value, values)
        case Number(_, order, number, texts):
            rule = _number(value, order, number, texts=texts)
        case Text(_, TextPart.ANYWHERE, texts):
            rule = both(_is_text(value), _either([{"in": [text, value]} for text in texts]))
        case Text(_, part, texts):
            rule = _either([{part.value: [value, text]} for text in texts])
        case SemanticVersion(_, order, version, whole):
            rule = {"sem_ver": [value, order.value, version]}
            rule = both(rule, *_whole_version(value)) if whole else rule
    return rule


def both(*rules: Json) -> Json:
    """The rule that all are true; those that are joined themselves are not nested."""
    parts: list[Json] = []
    for rule in rules:
        parts += rule["and"] if isinstance(rule, dict) and rule.keys() == {"and"} else [rule]
    return parts[0] if len(parts) == 1 else {"and": parts}


def in_arm(bucket: UserHash, weights: Sequence[Json], arm: str) -> Json:
    """Whether users fall into this arm of `fractional`; false of those without the bucket's attribute."""
    rule: Json = {"==": [{"fractional": buckets(bucket, weights)}, arm]}
    return rule if bucket == UserHash() else both(has_bucket(bucket), rule)


def _in_growing_share(share: InGrowingShare) -> Json:
    """The weights are whole at each second: they are multiplied by the seconds that the change takes."""
    seconds, change = share.end - share.start, share.last - share.first
    base, whole = share.first * seconds, share.of * seconds
    divisor = math.gcd(base, whole, change)
    inner: Json = {"-": [TIMESTAMP, share.start]}
    if change != divisor:
        inner = {"*": [inner, change // divisor]}
    if base:
        inner = {"+": [base // divisor, inner]}
    return in_arm(share.bucket, [["in", inner], ["out", {"-": [whole // divisor, inner]}]], "in")


def buckets(bucket: UserHash, weights: Sequence[Json]) -> list[Json]:
    """The arguments of `fractional`."""
    if bucket == UserHash():
        return list(weights)
    seed: Json = {"var": "$flagd.flagKey"} if bucket.seed is None else bucket.seed
    return [{"cat": [seed, {"var": bucket.attribute}]}, *weights]


def has_bucket(bucket: UserHash) -> Json:
    """Whether a user has what the bucket hashes: `cat` would hash the seed alone."""
    attribute: Json = {"var": bucket.attribute}
    if bucket.attribute == TARGETING_KEY:
        return {"!!": [attribute]}
    return both({"!=": [attribute, None]}, {"!==": [attribute, ""]})


def _either(rules: Sequence[Json]) -> Json:
    parts: list[Json] = []
    for rule in rules:
        parts += rule["or"] if isinstance(rule, dict) and rule.keys() == {"or"} else [rule]
    return parts[0] if len(parts) == 1 else {"or": parts}


def _whole_version(value: Json) -> list[Json]:
    """Rules that a version has all three numbers and no `v`: a digit before it leaves it a version, and a
    number and a dot do not.
    """
    digit, number = ({"sem_ver": [{"cat": [start, value]}, ">=", "0.0.0"]} for start in ("1", "0."))
    return [digit, {"!": number}]


def _truth(rule: Json) -> Json:
    """The rule as an argument of `!`, which takes the first item of a list."""
    return [rule] if isinstance(rule, list) else rule


def _is_text(value: Json) -> Json:
    return {"starts_with": [value, ""]}


def _one_of(value: Json, values: Iterable[Any]) -> Json:
    texts = [item for item in values if isinstance(item, str)]
    numbers = [item for item in values if isinstance(item, int | float) and not isinstance(item, bool)]
    rules: list[Json] = [{"===": [value, item]} for item in values if isinstance(item, bool)]
    # A targeting key is always a text.
    text_guards = [] if value == {"var": TARGETING_KEY} else [_is_text(value)]
    for kind, guards in ((texts, text_guards), (numbers, [])):
        if len(kind) == 1:
            rules.append({"===": [value, kind[0]]})
        elif kind:
            rules.append(both(*guards, {"in": [value, kind]}))
    return _either(rules)


def _number(value: Json, order: Relation, number: float, *, texts: bool) -> Json:
    if order is Relation.UNEQUAL:
        parts = (Relation.LESS, Relation.MORE)
        return _either([_number(value, part, number, texts=texts) for part in parts])
    if order is Relation.EQUAL and not texts:
        return {"===": [value, number]}
    compare = _COMPARE[order]
    guards: list[Json] = []
    if compare(0, number):
        guards.append({"!=": [value, None]})
    guards += [{"!==": [value, item]} for item in (False, True) if compare(int(item), number)]
    if not texts:
        guards.append({"!": _is_text(value)})
    elif compare(0, number):
        # Of the texts that are the number 0, those without this digit are blank.
        guards.append({"or": [{"!=": [value, 0]}, {"in": ["0", {"cat": [value]}]}]})
    return both(*guards, {"==" if order is Relation.EQUAL else order.value: [value, number]})
