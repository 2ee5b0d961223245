"""Rules drawn by hypothesis: such as people write, mostly, and now and then anything at all."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from hypothesis import strategies as st

Strategy: TypeAlias = "st.SearchStrategy[Any]"

TEXTS = ("gold", "silver", "a", "ab", "user@example.com", "1.2.3", "ünï", "A", "10", "x y")
ODD_TEXTS = ("", " ", "7", " 1", "-2.5", "0x10", "1e3", "inf", "<&>", 'q"', "a.b", "é", "日本", "\t")
VERSIONS = ("1.2.3", "v1.2.3", "V2.0.0", "1", "1.2", "2.0.0-rc.1", "2.0.0-rc.10", "1.2.3+b1", "2.0.0-alpha")
ODD_VERSIONS = ("", "1.2.3.4", "01.2.3", "1.2-rc", "x", "2.0.0-01", 1, 1.2, 3.0, None, True, 10**6)
NAMES = {
    "text": ("tier", "email", "team.name", "targetingKey", "$flagd.flagKey"),
    "number": ("age", "score", "team.size", "$flagd.timestamp"),
    "boolean": ("beta", "team.open"),
    "list": ("tags", "sizes", "team.tags"),
    "people": ("people",),
    "version": ("version",),
}
VARIANTS = ("on", "off", "true", "false", "red", "1", "gold", "a")

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, 1.0, 1e21, 2.0**60, 1e-7]),
    st.sampled_from(ODD_TEXTS),
    st.just([]),
    st.just({}),
    st.lists(st.integers(0, 2), max_size=2),
    st.just({"k": "gold"}),
)
texts = st.one_of(*[st.sampled_from(TEXTS)] * 8, st.sampled_from(ODD_TEXTS), st.text("abcé ", max_size=4))
numbers = st.one_of(
    st.integers(-5, 20), st.integers(-(10**6), 10**6), st.sampled_from([0.5, 2.5, 10.0, -0.25, 99.9])
)
text_lists = st.lists(texts, max_size=4)
number_lists = st.lists(numbers, max_size=4)


def mostly(usual: Strategy, odd: Strategy, share: int = 16) -> Strategy:
    """`odd` once in `share` times."""
    return st.integers(1, share).flatmap(lambda drawn: odd if drawn == share else usual)


def variable(kind: str) -> Strategy:
    name = st.sampled_from(NAMES[kind])
    return (
        st.one_of(
            name.map(lambda one: {"var": one}),
            name.map(lambda one: {"var": [one]}),
            st.builds(lambda one, default: {"var": [one, default]}, name, texts),
        )
        if kind == "text"
        else name.map(lambda one: {"var": one})
    )


def operator(names: str, *arguments: Strategy) -> Strategy:
    given = st.tuples(*arguments).map(list)
    return st.builds(lambda name, values: {name: values}, st.sampled_from(names.split()), given)


def variadic(names: str, argument: Strategy, least: int, most: int) -> Strategy:
    given = st.lists(argument, min_size=least, max_size=most)
    return st.builds(lambda name, values: {name: values}, st.sampled_from(names.split()), given)


@lru_cache
def text(depth: int) -> Strategy:
    usual = st.one_of(texts, variable("text"), variable("text"))
    if depth == 0:
        return mostly(usual, odd_values, 15)
    deeper = st.one_of(
        usual,
        usual,
        variadic("cat", st.one_of(text(depth - 1), st.integers(0, 99)), 1, 3),
        operator("substr", text(depth - 1), st.integers(-4, 4)),
        operator("substr", text(depth - 1), st.integers(0, 3), st.integers(-1, 4)),
        operator("if", boolean(depth - 1), text(depth - 1), text(depth - 1)),
    )
    return mostly(deeper, odd_values, 25)


@lru_cache
def number(depth: int) -> Strategy:
    usual = st.one_of(numbers, variable("number"))
    if depth == 0:
        return mostly(usual, odd_values, 15)
    below = number(depth - 1)
    deeper = st.one_of(
        usual,
        variadic("+ * max min", below, 1, 3),
        operator("- / %", below, below),
        operator("-", below),
        operator("if", boolean(depth - 1), below, below),
        st.builds(
            lambda listed, step, start: {
                "reduce": [listed, {step: [{"var": "current"}, {"var": "accumulator"}]}, start]
            },
            st.one_of(number_lists, st.just({"var": "sizes"})),
            st.sampled_from(["+", "*", "max", "-"]),
            st.integers(0, 3),
        ),
    )
    return mostly(deeper, odd_values, 25)


@lru_cache
def list_rules(depth: int) -> Strategy:
    usual = st.one_of(text_lists, number_lists, variable("list"))
    if depth == 0:
        return usual
    element = {"var": ""}
    return st.one_of(
        usual,
        variadic("merge", st.one_of(usual, texts), 1, 3),
        st.builds(lambda one: {"map": [one, {"cat": [element, "!"]}]}, st.just({"var": "tags"})),
        st.builds(lambda one, n: {"map": [one, {"+": [element, n]}]}, st.just({"var": "sizes"}), numbers),
        st.builds(lambda one, n: {"filter": [one, {">": [element, n]}]}, st.just({"var": "sizes"}), numbers),
        st.lists(st.sampled_from(["tier", "team", "nothing"]), max_size=2).map(lambda n: {"missing": n}),
    )


def condition() -> Strategy:
    """On a person: a name of theirs, or now and then one that the context has too."""
    name = mostly(st.sampled_from(["name", "level"]), st.just("tier"))
    return st.one_of(
        st.builds(lambda n, t: {"==": [{"var": n}, t]}, name, texts),
        st.builds(lambda n: {">": [{"var": "level"}, n]}, numbers),
        st.builds(lambda n, t: {"in": [{"var": n}, t]}, name, text_lists),
        st.builds(lambda t: {"starts_with": [{"var": "name"}, t]}, texts),
    )


def loops() -> Strategy:
    scalars = st.one_of(
        texts.map(lambda one: ("tags", {"==": [{"var": ""}, one]})),
        numbers.map(lambda one: ("sizes", {"<=": [{"var": ""}, one]})),
        condition().map(lambda rule: ("people", rule)),
        condition().map(lambda rule: ("people", rule)),
    )
    names = st.sampled_from(["all", "some", "none"])
    quantified = st.builds(lambda name, pair: {name: [{"var": pair[0]}, pair[1]]}, names, scalars)
    counted = st.builds(
        lambda rule: {
            "reduce": [{"filter": [{"var": "people"}, rule]}, {"+": [{"var": "accumulator"}, 1]}, 0]
        },
        condition(),
    ).map(lambda count: {">": [count, 0]})
    return st.one_of(quantified, quantified, counted)


@lru_cache
def version() -> Strategy:
    usual = st.one_of(st.sampled_from(VERSIONS), variable("version"))
    return mostly(usual, st.sampled_from(ODD_VERSIONS), 12)


@lru_cache
def boolean(depth: int) -> Strategy:
    near = max(depth - 1, 0)
    shallow = [
        operator("starts_with ends_with", text(0), text(0)),
        operator("== != === !==", text(near), text(near)),
        operator("== != === !== < <= > >=", number(near), number(near)),
        operator("in", text(near), st.one_of(text_lists, text(0))),
        operator(
            "sem_ver", version(), st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "~", "^"]), version()
        ),
        variable("boolean"),
    ]
    if depth == 0:
        return st.one_of(*shallow)
    below = boolean(depth - 1)
    anything = st.one_of(text(0), number(0), list_rules(0), odd_values, below)
    return st.one_of(
        *shallow,
        operator("starts_with ends_with", text(near), text(near)),
        operator("! !!", below),
        variadic("and or", below, 1, 3),
        operator("if", below, below, below),
        operator("< <=", number(0), number(0), number(0)),
        operator("in", number(0), number_lists),
        operator("in", text(0), list_rules(1)),
        operator("== != === !== < <= > >=", anything, anything),
        st.lists(st.sampled_from(["tier", "age", "nothing", "team.name"]), max_size=3).map(
            lambda n: {"!": [{"missing": n}]}
        ),
        st.builds(
            lambda n, names: {"!": [{"missing_some": [n, names]}]},
            st.integers(0, 3),
            st.lists(st.sampled_from(["tier", "age", "nothing"]), max_size=3),
        ),
        loops(),
        loops(),
    )


@lru_cache
def fraction(depth: int) -> Strategy:
    results = st.sampled_from(VARIANTS)
    if depth:
        results = st.one_of(results, results, fraction(depth - 1), variant_rules(depth - 1))
    computed = st.builds(lambda n: {"+": [n, {"var": "age"}]}, st.integers(0, 50))
    weights = mostly(
        st.integers(0, 100), st.one_of(odd_values, computed, st.just(2**31), st.integers(-9, -1)), 25
    )
    bucket = st.one_of(st.tuples(results, weights), st.tuples(results, weights), st.tuples(results))
    buckets = st.lists(bucket.map(list), min_size=1, max_size=4)
    names = st.sampled_from(["email", "tier", "age", "unit", "team", "nothing", "targetingKey"])
    keyed = st.one_of(
        texts,
        names.map(lambda name: {"var": name}),
        st.builds(
            lambda name: {"cat": [{"var": "$flagd.flagKey"}, {"var": name}]},
            st.sampled_from(["email", "tier"]),
        ),
    )
    return st.one_of(
        buckets.map(lambda drawn: {"fractional": drawn}),
        st.builds(lambda key, drawn: {"fractional": [key, *drawn]}, mostly(keyed, odd_values), buckets),
    )


@lru_cache
def variant_rules(depth: int) -> Strategy:
    """A rule that names a variant."""
    names = mostly(st.sampled_from(VARIANTS), odd_values, 20)
    if depth == 0:
        return names
    results = st.one_of(names, names, variant_rules(depth - 1), fraction(0), st.just({"$ref": "shared"}))
    return st.one_of(
        operator("if", boolean(depth), results, results),
        operator("if", boolean(depth - 1), results, boolean(depth - 1), results, results),
        operator("if", boolean(depth), results),
    )


def rules() -> Strategy:
    unknown = st.sampled_from(["unknown", "$ref"]).map(lambda name: {name: ["nowhere", 1]})
    usual = st.one_of(
        variant_rules(2),
        variant_rules(2),
        variant_rules(1),
        fraction(1),
        fraction(0),
        boolean(2),
        text(1),
        number(1),
        st.just({"$ref": "shared"}),
    )
    return mostly(usual, st.one_of(unknown, odd_values, wild(1), wild(2), wild(2)), 10)


@lru_cache
def wild(depth: int) -> Strategy:
    """Any operator with any number of anything."""
    names = (
        "== != === !== < <= > >= + - * / % max min cat substr in merge if and or ! !! missing missing_some "
        "map filter reduce all some none var fractional starts_with ends_with sem_ver abs set contains_any"
    )
    leaf = st.one_of(odd_values, texts, numbers, variable("text"), variable("list"))
    argument = leaf if depth == 0 else st.one_of(leaf, wild(depth - 1))
    bare = st.builds(lambda name, value: {name: value}, st.sampled_from(names.split()), argument)
    given = variadic(names, argument, 0, 4)
    return st.one_of(given, given, given, bare)
