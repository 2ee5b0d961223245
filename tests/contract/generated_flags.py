"""Documents and evaluation contexts drawn by hypothesis, their names those that generated rules read."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.contract.generated_rules import (
    VARIANTS,
    VERSIONS,
    Strategy,
    boolean,
    mostly,
    number_lists,
    numbers,
    odd_values,
    rules,
    text_lists,
    texts,
)

VALUES: tuple[tuple[Any, ...], ...] = (
    (True, False, True, False, True, True, False, True),
    ("on", "off", "yes", "", "#f00", "one", "#fd0", "ünï"),
    (1, 0, 2, -1, 2**31, 2.5, 10.0, -7),
    ({"k": [1, {"n": None}]}, {}, {"t": 1}, {"t": 0.5}, {"k": "v"}, {"k": True}, {"k": {}}, {"é": "ü"}),
)


@st.composite
def flags(draw: st.DrawFn) -> dict[str, Any]:
    values = dict(zip(VARIANTS, draw(st.sampled_from(VALUES)), strict=True))
    del values[draw(st.sampled_from(VARIANTS))]
    flag: dict[str, Any] = {"state": "ENABLED", "variants": values}
    if draw(st.integers(0, 15)) == 0:
        flag["state"] = "DISABLED"
    if draw(st.integers(0, 7)) > 0:
        flag["defaultVariant"] = draw(st.sampled_from(sorted(values)))
    if draw(st.integers(0, 9)) > 0:
        flag["targeting"] = draw(rules())
    if draw(st.booleans()):
        flag["metadata"] = draw(
            st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(texts, numbers, st.booleans()))
        )
    return flag


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """A document of four to six flags; its shared rule is ASCII: the core's own expansion takes
    nothing else.
    """
    shared = {"if": [draw(boolean(0).filter(is_plain)), draw(st.sampled_from(VARIANTS)), None]}
    drawn = draw(st.lists(flags(), min_size=4, max_size=6))
    document: dict[str, Any] = {
        "$evaluators": {"shared": shared},
        "flags": {f"flag-{index}": flag for index, flag in enumerate(drawn)},
    }
    if draw(st.booleans()):
        document["metadata"] = {"flagSetId": "set", "a": 1}
    return document


def is_plain(rule: Any) -> bool:
    return str(rule).isascii() and "\\" not in str(rule) and '"' not in str(rule)


people = st.fixed_dictionaries({"name": texts, "level": numbers}, optional={"tier": texts})
USUAL: dict[str, Strategy] = {
    "tier": texts,
    "email": texts,
    "age": numbers,
    "score": numbers,
    "beta": st.booleans(),
    "tags": text_lists,
    "sizes": number_lists,
    "people": st.lists(people, max_size=3),
    "version": st.sampled_from(VERSIONS),
    "team": st.fixed_dictionaries(
        {"name": texts, "size": numbers}, optional={"open": st.booleans(), "tags": text_lists}
    ),
    "unit": st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**64 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=30),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=26), inner, max_size=3)
        ),
        max_leaves=5,
    ),
}
attributes = st.fixed_dictionaries(
    {},
    optional={
        name: mostly(usual, st.one_of(odd_values, st.just({"$flagd": 1})), 20)
        for name, usual in USUAL.items()
    },
)
targeting_keys = mostly(
    st.one_of(st.none(), texts, st.text(min_size=1, max_size=12)), st.sampled_from(["", 5, True]), 20
)
contexts = st.tuples(targeting_keys, attributes)
