"""What a proxy delivers, as our evaluator takes it; composed sets answer as it merges them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.meta import Resource
from controller.proxy.building import EncodedFlagSet, build, compose
from evaluator.flags.canonical import digest
from evaluator.flags.catalog import Catalog
from evaluator.flags.merge import parse
from evaluator.flags.model import (
    DIGEST_KEY,
    FLAG_SET_KEY,
    LEFT_OUT_KEY,
    PROVENANCE_KEYS,
    SETS_KEY,
    Flag,
    FlagSet,
)
from evaluator.flags.saved import Saved, decode
from evaluator.flags.saved import encode as encode_saved
from evaluator.sync.follower import Accepted, accept
from evaluator.sync.source import Delivery
from evaluator.wire.sync_messages import encode
from tests.worlds.flags import flag_set_of

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


def encode_set(flag_set: FlagSet, *left_out: str) -> EncodedFlagSet:
    return EncodedFlagSet(encode(flag_set), b"", digest(flag_set), "r1", len(flag_set.flags), (), left_out)


@given(st.lists(documents, min_size=1, max_size=4))
def test_a_composition_is_what_an_evaluator_makes_of_the_same_sources(written: list[Any]) -> None:
    sets = [flag_set_of(document) for document in written]
    composed = compose(
        [(str(number), f"FlagSet/{number}", encode_set(one)) for number, one in enumerate(sets)]
    )
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
    composed = compose(
        [(str(n), f"FlagSet/{n}", encode_set(flag_set_of(one))) for n, one in enumerate(written)]
    )
    flags = json.loads(composed.document)["flags"]
    for key, flag in flags.items():
        last = max(number for number, one in enumerate(written) if key in one["flags"])
        assert flag["metadata"][FLAG_SET_KEY] == f"FlagSet/{last}"


@given(documents, documents)
def test_the_digest_changes_with_the_order_and_with_a_losing_flag(one: Any, other: Any) -> None:
    parts = [
        ("1", "FlagSet/a", encode_set(flag_set_of(one))),
        ("2", "FlagSet/b", encode_set(flag_set_of(other))),
    ]
    first, second = compose(parts), compose(parts[::-1])
    assert first == compose(parts)
    assert first.digest != second.digest
    assert json.loads(first.document)["metadata"][DIGEST_KEY] == first.digest


def test_a_flag_that_is_left_out_is_not_replaced_by_that_of_an_earlier_set() -> None:
    document = {"flags": {"a": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "on"}}}
    good, bad = encode_set(flag_set_of(document)), encode_set(flag_set_of({"flags": {}}), "a")
    composed = compose([("1", "FlagSet/good", good), ("2", "FlagSet/bad", bad)])
    assert (json.loads(composed.document)["flags"], composed.left_out) == ({}, ("a",))
    assert json.loads(composed.document)["metadata"][LEFT_OUT_KEY] == '["a"]'
    assert compose([("1", "FlagSet/bad", bad), ("2", "FlagSet/good", good)]).left_out == ()


ORDERS = ("namespace", "workload", "pod")
contents = st.one_of(st.none(), st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9)))


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(ORDERS, contents)), min_size=1, max_size=5))
def test_an_evaluator_keeps_what_it_serves_of_sets_that_it_is_not_sent_and_follows_the_others(
    deliveries: list[dict[str, dict[str, int] | None]],
) -> None:
    served: FlagSet | None = None
    visible: dict[str, dict[str, int]] = {order: {} for order in ORDERS}
    for sent in deliveries:
        composed = compose(
            [
                (order, f"FlagSet/{order}", None if content is None else encode_set(read_values(content)))
                for order, content in sent.items()
            ]
        )
        judged = accept(Delivery((("flags.json", composed.document),)), served)
        assert isinstance(judged, Accepted)
        # As after a restart.
        served = decode(encode_saved(Saved(judged.flag_set, datetime(2026, 1, 1, tzinfo=UTC)))).flag_set
        layers = {order: visible[order] if content is None else content for order, content in sent.items()}
        expected = {key: (order, value) for order, layer in layers.items() for key, value in layer.items()}
        values = {
            key: (str(flag.metadata[FLAG_SET_KEY]).removeprefix("FlagSet/"), flag.variants["on"])
            for key, flag in served.flags.items()
        }
        assert values == expected
        assert served.metadata[DIGEST_KEY] == composed.digest
        visible = {
            order: {key: value for key, (by, value) in expected.items() if by == order} for order in ORDERS
        }


def read_values(content: dict[str, int]) -> FlagSet:
    flags = {
        key: {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"}
        for key, value in content.items()
    }
    return flag_set_of({"flags": flags})


@pytest.mark.parametrize("text", ["", "7", "{", "[7]", '[["a"]]', '[["a", "b", "c", "d", "e"]]', "[" * 9999])
def test_malformed_parts_of_a_delivery_are_ignored(text: str) -> None:
    document = json.loads(compose([("namespace", "FlagSet/a", encode_set(read_values({"a": 1})))]).document)
    document["metadata"][SETS_KEY] = text
    judged = accept(Delivery((("flags.json", json.dumps(document).encode()),)), None)
    assert isinstance(judged, Accepted)
    assert list(judged.flag_set.flags) == ["a"]
    assert SETS_KEY not in judged.flag_set.metadata


GOOD: dict[str, Any] = {"state": "ENABLED", "variants": {"on": 1, "off": 2}, "defaultVariant": "on"}
BAD: dict[str, Any] = {**GOOD, "defaultVariant": "none"}


def build_set(document: dict[str, Any], previous: bytes | None = None) -> EncodedFlagSet:
    meta = {"name": "web", "namespace": "shop"}
    resource = Resource.of(
        {"kind": "FeatureFlagConfiguration", "metadata": meta, "spec": {"flagSpec": document}}
    )
    found = build(resource, lambda _: None, previous)
    assert isinstance(found, EncodedFlagSet)
    return found


def receive(one: EncodedFlagSet, after: Accepted | None = None) -> Accepted:
    found = accept(Delivery((("flags.json", one.document),), {}), after.flag_set if after else None)
    assert isinstance(found, Accepted)
    return found


def flag(accepted: Accepted, key: str) -> Flag | None:
    return accepted.flag_set.flags.get(key)


def test_a_proxy_that_never_saw_a_flag_valid_leaves_clients_their_last_good_one() -> None:
    before = receive(build_set({"flags": {"a": GOOD, "b": GOOD}}))
    restarted = build_set({"flags": {"a": BAD, "b": {**GOOD, "defaultVariant": "off"}}})
    after = receive(restarted, before)
    found = flag(after, "a"), flag(after, "b")
    assert [each and each.default_variant for each in found] == ["on", "off"]
    assert (after.held, restarted.left_out) == (("a",), ("a",))


def test_a_new_subscriber_gets_the_siblings_of_a_bad_flag() -> None:
    assert set(receive(build_set({"flags": {"a": BAD, "b": GOOD}})).flag_set.flags) == {"b"}


def test_a_flag_that_is_gone_is_gone() -> None:
    before = receive(build_set({"flags": {"a": GOOD, "b": GOOD}}))
    assert set(receive(build_set({"flags": {"b": GOOD}}), before).flag_set.flags) == {"b"}


def test_the_mark_is_delivered_once_and_not_kept_in_the_flag_set() -> None:
    one = build_set({"flags": {"a": BAD, "b": GOOD}})
    document = json.loads(one.document)
    assert LEFT_OUT_KEY in document["metadata"]
    assert "metadata" not in document["flags"]["b"]
    assert LEFT_OUT_KEY not in receive(one).flag_set.metadata


def test_a_mark_that_cannot_be_read_holds_nothing() -> None:
    document = {"flags": {"b": GOOD}, "metadata": {LEFT_OUT_KEY: "[["}}
    delivery = Delivery((("flags.json", json.dumps(document).encode()),), {})
    found = accept(delivery, receive(build_set({"flags": {"a": GOOD, "b": GOOD}})).flag_set)
    assert isinstance(found, Accepted)
    assert set(found.flag_set.flags) == {"b"}


def test_a_set_that_is_served_as_desired_has_the_digest_of_the_desired() -> None:
    one = build_set({"flags": {"a": GOOD}})
    assert build_set(json.loads(one.good), one.good).digest == one.digest


def test_held_flags_stay_held_over_several_bad_contents() -> None:
    first = build_set({"flags": {"a": GOOD}, "metadata": {"flagstaff.dev/revision": "main@sha1:1"}})
    second = build_set({"flags": {"a": BAD, "b": GOOD}}, first.good)
    third = build_set({"flags": {"a": BAD}}, second.good)
    document = json.loads(third.document)
    assert document["flags"]["a"]["defaultVariant"] == "on"
    assert document["flags"]["a"]["metadata"]["flagstaff.dev/held-from"] == "main@sha1:1"
