"""Conditions mean as rules of targeting what they mean by their definition, for every context."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.importers.conditions import rule_of, simplify
from controller.importers.model import (
    ITEM,
    All,
    Always,
    AnyItem,
    AnyOf,
    Condition,
    During,
    InGrowingShare,
    IsText,
    Not,
    Number,
    OneOf,
    Present,
    Relation,
    SemanticVersion,
    Text,
    TextPart,
    UserHash,
)
from evaluator.flags.model import Bucketing
from evaluator.targeting import compile_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW: Final = 1_700_000_000
ORDERS: Final = {
    Relation.EQUAL: operator.eq,
    Relation.UNEQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.AT_MOST: operator.le,
    Relation.MORE: operator.gt,
    Relation.AT_LEAST: operator.ge,
}
PARTS: Final = {
    TextPart.START: str.startswith,
    TextPart.END: str.endswith,
    TextPart.ANYWHERE: str.__contains__,
}
LIMITS: Final = st.sampled_from([0, 1, 2, 1.5, -3])
SCALARS: Final = st.one_of(
    st.sampled_from(["", "  ", "a", "ab", "b", "gold", "0", "-.0", "1", "1.5", "-3", "x1"]),
    st.sampled_from([0, 1, 2, -3, 1.5, 10]),
    st.booleans(),
)
VALUES: Final = st.one_of(st.none(), SCALARS, st.lists(SCALARS, max_size=3))
NAMES: Final = st.sampled_from(["a", "b"])


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(value: object, other: object) -> bool:
    if isinstance(value, list) or isinstance(value, bool) is not isinstance(other, bool):
        return False
    return isinstance(value, str) is isinstance(other, str) and value == other


def numeric(value: object, *, texts: bool) -> float | None:
    if is_number(value):
        return float(value)  # type: ignore[arg-type]
    try:
        return float(value) if texts and isinstance(value, str) else None
    except ValueError:
        return None


def in_order(value: float | None, order: Relation, number: float) -> bool:
    return value is not None and ORDERS[order](value, number)


def items_of(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def holds(condition: Condition, context: Mapping[str, Any]) -> bool:
    """What a condition says by its docstring."""
    result: object
    match condition:
        case Always(constant):
            result = constant
        case All(parts):
            result = all(holds(part, context) for part in parts)
        case AnyOf(parts):
            result = any(holds(part, context) for part in parts)
        case Not(part):
            result = not holds(part, context)
        case During(start, end):
            result = (start is None or start <= NOW) and (end is None or end > NOW)
        case AnyItem(attribute, part):
            result = any(holds(part, {ITEM: item}) for item in items_of(context.get(attribute)))
        case Present(attribute):
            result = context.get(attribute) is not None
        case IsText(attribute):
            result = isinstance(context.get(attribute), str)
        case OneOf(attribute, values):
            result = any(equal(context.get(attribute), other) for other in values)
        case Number(attribute, order, number, texts):
            result = in_order(numeric(context.get(attribute), texts=texts), order, number)
        case Text(attribute, where, pieces):
            text = context.get(attribute)
            result = isinstance(text, str) and any(PARTS[where](text, piece) for piece in pieces)
        case _:
            raise AssertionError(condition)
    return bool(result)


def conditions_of(names: st.SearchStrategy[str]) -> st.SearchStrategy[Condition]:
    texts = st.lists(st.sampled_from(["a", "b", "go", "1", ""]), max_size=3).map(tuple)
    return st.one_of(
        st.builds(Always, st.booleans()),
        st.builds(Present, names),
        st.builds(IsText, names),
        st.builds(OneOf, names, st.lists(SCALARS, max_size=4).map(tuple)),
        st.builds(Number, names, st.sampled_from(Relation), LIMITS, st.booleans()),
        st.builds(Text, names, st.sampled_from(TextPart), texts),
        st.builds(
            During, st.sampled_from([None, NOW - 1, NOW, NOW + 1]), st.sampled_from([None, NOW, NOW + 1])
        ),
    )


LEAVES: Final = st.one_of(conditions_of(NAMES), st.builds(AnyItem, NAMES, conditions_of(st.just(ITEM))))
CONDITIONS: Final = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def truth(condition: Condition, context: Mapping[str, Any]) -> bool:
    rule = {"if": [rule_of(simplify(condition)), True, False]}
    compiled = compile_rule(rule, bucketing=Bucketing.V2, flag_key="flag")
    return compiled({**context, "$flagd": {"timestamp": NOW}}) is True


@given(CONDITIONS, st.dictionaries(NAMES, VALUES))
def test_a_rule_is_true_where_its_condition_is(condition: Condition, context: dict[str, Any]) -> None:
    assert truth(condition, context) is holds(condition, context)


@pytest.mark.parametrize(
    ("version", "order", "expected"),
    [
        ("2.0.0", Relation.AT_LEAST, True),
        ("v2.1", Relation.MORE, True),
        ("1.9.9", Relation.LESS, True),
        ("x", Relation.LESS, False),
    ],
)
def test_versions_are_compared_as_semantic_versions(version: str, order: Relation, expected: bool) -> None:
    assert truth(SemanticVersion("a", order, "2.0.0"), {"a": version}) is expected


@pytest.mark.parametrize("version", ["1.2.3", "0.0.1", "1.2.3-rc.1", "10.0.0+build"])
def test_a_whole_version_is_one_with_three_numbers(version: str) -> None:
    assert truth(SemanticVersion("a", Relation.AT_LEAST, "0.0.0-0", whole=True), {"a": version})


@pytest.mark.parametrize("version", ["v1.2.3", "V1.2.3", "1.2", "1", "0", 1, 1.5, "x", "", None, "1.2.3.4"])
def test_a_version_with_fewer_numbers_or_a_v_is_no_whole_version(version: object) -> None:
    assert not truth(SemanticVersion("a", Relation.AT_LEAST, "0.0.0-0", whole=True), {"a": version})


def test_a_version_that_is_missing_is_in_no_order_and_its_negation_is_true() -> None:
    assert not truth(SemanticVersion("a", Relation.LESS, "2.0.0"), {})
    assert truth(Not(SemanticVersion("a", Relation.LESS, "2.0.0")), {})


def test_a_growing_share_only_takes_more_users() -> None:
    share = InGrowingShare(UserHash(), NOW - 50, NOW + 150, first=10, last=90, of=100)
    rule = compile_rule(rule_of(share), bucketing=Bucketing.V2, flag_key="flag")
    users = [f"user-{number}" for number in range(1000)]
    taken: set[str] = set()
    for time, expected in ((NOW - 50, 100), (NOW, 300), (NOW + 100, 700)):
        now = {user for user in users if rule({"targetingKey": user, "$flagd": {"timestamp": time}})}
        assert taken <= now
        assert abs(len(now) - expected) < 50
        taken = now
    assert rule({"$flagd": {"timestamp": NOW}}) is False
