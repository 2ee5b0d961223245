"""What a proxy delivers, as our evaluator takes it."""

from __future__ import annotations

import json
from typing import Any

from controller.api.meta import Resource
from controller.proxy.building import EncodedFlagSet, build
from evaluator.flags.model import LEFT_OUT_KEY, Flag
from evaluator.sync.follower import Accepted, accept
from evaluator.sync.source import Delivery

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
