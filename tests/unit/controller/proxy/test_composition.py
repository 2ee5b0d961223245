"""Composed sets answer as an evaluator that merges the same sets as sources."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.proxy.streams.building import EncodedFlagSet
from controller.proxy.streams.composition import compose
from evaluator.flags.canonical import digest
from evaluator.flags.layers.catalog import Catalog
from evaluator.flags.layers.merge import parse
from evaluator.flags.model import DIGEST_KEY, FLAG_SET_KEY, LEFT_OUT_KEY, PROVENANCE_KEYS, FlagSet
from evaluator.wire.encoding import encode

KEYS = ("a", "b", "c", "d")
values = st.sampled_from(["on", "off"])
documents = st.builds(
    lambda flags, metadata, shared: {
        "flags": {
            key: {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": value,
                  "targeting": {"if": [{"$ref": "shared"}, "on"]}}
            for key, value in flags.items()
        },
        "$evaluators": {"shared": {"==": [{"var": "tier"}, shared]}},
        "metadata": metadata,
    },
    st.dictionaries(st.sampled_from(KEYS), values),
    st.dictionaries(
        st.sampled_from(["flagSetId", "team", "flagstaff.dev/revision", "flagstaff.dev/bucketing"]),
        st.sampled_from(["v2", "v3"]),
    ),
    values,
)  # fmt: skip


def read(document: Any) -> FlagSet:
    return parse(json.dumps(document).encode(), file="flags.json").flag_set


def encode_set(flag_set: FlagSet, *left_out: str) -> EncodedFlagSet:
    return EncodedFlagSet(encode(flag_set), b"", digest(flag_set), "r1", len(flag_set.flags), (), left_out)


@given(st.lists(documents, min_size=1, max_size=4))
def test_a_composition_is_what_an_evaluator_makes_of_the_same_sources(written: list[Any]) -> None:
    sets = [read(document) for document in written]
    composed = compose([(f"FlagSet/{number}", encode_set(one)) for number, one in enumerate(sets)])
    catalog = Catalog([str(number) for number in range(len(sets))])
    for number, one in enumerate(sets):
        # As a source delivers it: with its rules expanded.
        delivered = parse(encode(one), file="flags.json").flag_set
        catalog = catalog.with_source(str(number), delivered)
    received = parse(composed.document, file="flags.json")
    merged = catalog.everything
    assert not received.errors
    assert received.flag_set.flags.keys() == merged.flags.keys()
    for key, flag in received.flag_set.flags.items():
        expected = merged.flags[key]
        assert (flag.state, flag.variants, flag.default_variant, flag.targeting) == (
            expected.state, expected.variants, expected.default_variant, expected.targeting
        )  # fmt: skip
        inherited = expected.metadata_under(merged.metadata)
        content = {name: value for name, value in inherited.items() if name not in PROVENANCE_KEYS}
        assert {
            name: value for name, value in flag.metadata.items() if name not in PROVENANCE_KEYS
        } == content
        assert flag.metadata.get("flagstaff.dev/revision") == inherited.get("flagstaff.dev/revision")


@given(st.lists(documents, min_size=1, max_size=4))
def test_each_flag_names_the_last_set_that_has_it(written: list[Any]) -> None:
    composed = compose([(f"FlagSet/{n}", encode_set(read(one))) for n, one in enumerate(written)])
    flags = json.loads(composed.document)["flags"]
    for key, flag in flags.items():
        last = max(number for number, one in enumerate(written) if key in one["flags"])
        assert flag["metadata"][FLAG_SET_KEY] == f"FlagSet/{last}"


@given(documents, documents)
def test_the_digest_changes_with_the_order_and_with_a_losing_flag(one: Any, other: Any) -> None:
    parts = [("FlagSet/a", encode_set(read(one))), ("FlagSet/b", encode_set(read(other)))]
    first, second = compose(parts), compose(parts[::-1])
    assert first == compose(parts)
    assert first.digest != second.digest
    assert json.loads(first.document)["metadata"][DIGEST_KEY] == first.digest


def test_a_flag_that_is_left_out_is_not_replaced_by_that_of_an_earlier_set() -> None:
    document = {"flags": {"a": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "on"}}}
    good, bad = encode_set(read(document)), encode_set(read({"flags": {}}), "a")
    composed = compose([("FlagSet/good", good), ("FlagSet/bad", bad)])
    assert (json.loads(composed.document)["flags"], composed.left_out) == ({}, ("a",))
    assert json.loads(composed.document)["metadata"][LEFT_OUT_KEY] == '["a"]'
    assert compose([("FlagSet/bad", bad), ("FlagSet/good", good)]).left_out == ()
