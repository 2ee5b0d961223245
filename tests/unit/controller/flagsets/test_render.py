from __future__ import annotations

import json
import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.featureflagconfiguration import flag_document
from controller.api.fields import InvalidSpecError
from controller.api.meta import Resource
from controller.delivery.delivered import LARGEST, SHARD_BYTES, TooLargeError
from controller.flagsets.build import RenderTarget, configuration_manifests, flag_manifest
from evaluator.flags.canonical import canonical, digest
from evaluator.flags.model import Flag, FlagSet, State
from tests.worlds.flags import flag_set_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET = RenderTarget("shop", "checkout", "checkout", {"kind": "FlagSet", "uid": "u1"})
METADATA = {"flagSetId": "shop/checkout", "flagstaff.dev/revision": "main@sha1:r1"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def flags(count: int, weight: int = 300) -> dict[str, Flag]:
    keys = [f"flag-{number:05}" for number in range(count)]
    return {key: Flag(key, State.ENABLED, {"on": "x" * weight, "off": key}, "on") for key in keys}


def flag_set(of: Mapping[str, Flag], **metadata: Any) -> FlagSet:
    return FlagSet(of, {"staff": {"==": [1, 2]}}, MappingProxyType({**METADATA, **metadata}))


def read(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """As readers of the objects see them, after their way through the API server."""
    bodies = json.loads(json.dumps(manifests))
    shards = {each["metadata"]["name"]: Resource.of(each) for each in bodies[:-1]}
    document: dict[str, Any] = json.loads(flag_document(Resource.of(bodies[-1]), shards.get).content)
    return document


def shard_names(manifests: list[dict[str, Any]]) -> list[str]:
    return [each["metadata"]["name"] for each in manifests[:-1]]


def test_a_set_that_fits_is_one_object_as_flagd_reads_it() -> None:
    whole = flag_set(flags(3))
    (made,) = configuration_manifests(whole, TARGET)
    assert made["spec"] == {"flagSpec": json.loads(canonical(whole, provenance=True))}
    assert made["metadata"]["annotations"] == {"flagstaff.dev/revision": "main@sha1:r1"}
    assert flag_manifest(whole, TARGET)["spec"] == made["spec"]


def test_ten_thousand_flags_come_back_as_they_were() -> None:
    whole = flag_set(flags(10_000))
    manifests = configuration_manifests(whole, TARGET)
    kinds = [each["kind"] for each in manifests]
    assert kinds == ["FlagShard"] * (len(kinds) - 1) + ["FeatureFlagConfiguration"]
    assert max(len(json.dumps(each)) for each in manifests) < SHARD_BYTES + 10_000
    document = read(manifests)
    assert document == json.loads(canonical(whole, provenance=True))
    assert digest(flag_set_of(document)) == digest(whole)


def test_the_index_lists_each_shard_with_digest_and_count() -> None:
    manifests = configuration_manifests(flag_set(flags(5_000)), TARGET)
    index = manifests[-1]["spec"]
    assert [each["name"] for each in index["shards"]] == shard_names(manifests)
    assert [each["digest"] for each in index["shards"]] == [each["spec"]["digest"] for each in manifests[:-1]]
    assert sum(each["flags"] for each in index["shards"]) == 5_000
    assert index["revision"] == "main@sha1:r1"


def test_the_same_content_has_the_same_shards_and_another_target_its_own() -> None:
    whole = flag_set(flags(5_000))
    one = configuration_manifests(whole, TARGET)
    assert one == configuration_manifests(whole, TARGET)
    other = configuration_manifests(whole, replace(TARGET, name="other"))
    assert not set(shard_names(one)) & set(shard_names(other))


@pytest.mark.parametrize("at", [0, 2_500, 4_999])
def test_a_flag_more_or_less_changes_few_shards(at: int) -> None:
    before = flags(5_000)
    after = {key: each for number, (key, each) in enumerate(before.items()) if number != at}
    old = shard_names(configuration_manifests(flag_set(before), TARGET))
    new = shard_names(configuration_manifests(flag_set(after), TARGET))
    assert len(set(new) - set(old)) <= 2
    assert len(new) >= 4


def test_a_revision_alone_changes_one_small_shard() -> None:
    old = configuration_manifests(flag_set(flags(5_000)), TARGET)
    new = configuration_manifests(
        flag_set(flags(5_000), **{"flagstaff.dev/revision": "main@sha1:r2"}), TARGET
    )
    changed = [each for each in new[:-1] if each not in old]
    assert [len(each["spec"]["flagSpec"]["flags"]) for each in changed] == [0]


def test_a_shard_names_no_revision_for_it_outlives_one() -> None:
    shard = configuration_manifests(flag_set(flags(5_000)), TARGET)[1]
    assert "annotations" not in shard["metadata"]
    assert shard["metadata"]["ownerReferences"] == [TARGET.owner]


@pytest.mark.parametrize("name", ["a" * 253, "a" * 199 + ".b", "a" * 199 + "-b"])
def test_a_shard_s_name_is_one_whatever_the_target_s(name: str) -> None:
    made = configuration_manifests(flag_set(flags(5_000)), replace(TARGET, name=name))
    assert all(NAME.fullmatch(each) and len(each) <= 253 for each in shard_names(made))


def test_without_an_owner_none_is_named() -> None:
    made = configuration_manifests(flag_set(flags(1)), replace(TARGET, owner=None))
    assert "ownerReferences" not in made[0]["metadata"]


def test_a_feature_flag_is_never_cut() -> None:
    with pytest.raises(TooLargeError, match=r"take FeatureFlag out of spec\.target\.kinds"):
        flag_manifest(flag_set(flags(5_000)), TARGET)


def test_a_flag_that_no_shard_can_hold_is_named() -> None:
    with pytest.raises(TooLargeError, match=r"the flag flag-00000 takes \d+ bytes"):
        configuration_manifests(flag_set(flags(1, LARGEST)), TARGET)


def test_evaluators_that_no_shard_can_hold_are_refused() -> None:
    big = replace(flag_set(flags(1)), evaluators={"big": {"==": ["x" * LARGEST, 1]}})
    with pytest.raises(TooLargeError, match=r"\$evaluators and metadata take"):
        configuration_manifests(big, TARGET)


def test_an_index_lists_so_many_shards_and_no_more() -> None:
    large = flag_set(flags(5_000))
    *shards, _ = configuration_manifests(large, TARGET)
    assert len(configuration_manifests(large, TARGET, len(shards))) == len(shards) + 1
    with pytest.raises(TooLargeError, match=f"of {len(shards) - 1} that there may be"):
        configuration_manifests(large, TARGET, len(shards) - 1)


WEIGHTS = st.lists(st.integers(1, 400_000), min_size=4, max_size=12)


@settings(max_examples=25, deadline=None)
@given(WEIGHTS, st.booleans())
def test_shards_put_together_are_the_document(weights: list[int], shared: bool) -> None:
    keys = [f"k{number}" for number in range(len(weights))]
    made = {
        key: Flag(key, State.ENABLED, {"v": "ü" * (weight // 2)}, "v")
        for key, weight in zip(keys, weights, strict=True)
    }
    whole = flag_set(made) if shared else FlagSet(made)
    assert read(configuration_manifests(whole, TARGET)) == json.loads(canonical(whole, provenance=True))


def users(count: int) -> list[str]:
    return [f"6f1c2d3e-0000-4000-8000-{number:012}" for number in range(count)]


def with_users(listed: list[str]) -> FlagSet:
    shared = {"beta": {"or": [{"==": [{"var": "tier"}, "beta"]}, {"in": [{"var": "targetingKey"}, listed]}]}}
    return FlagSet(flags(3), {**shared, "staff": {"==": [1, 2]}}, MappingProxyType(METADATA))


def test_a_hundred_thousand_users_of_a_shared_rule_come_back_as_they_were() -> None:
    whole = with_users(users(100_000))
    manifests = configuration_manifests(whole, TARGET)
    assert read(manifests) == json.loads(canonical(whole, provenance=True))
    assert max(len(json.dumps(each)) for each in manifests) <= SHARD_BYTES * 1.1


def test_one_user_more_changes_few_shards() -> None:
    listed = users(100_000)
    before = shard_names(configuration_manifests(with_users(listed), TARGET))
    more = [*listed[:50_000], "new", *listed[50_000:]]
    after = shard_names(configuration_manifests(with_users(more), TARGET))
    assert len(before) > 8
    assert len({*after} - {*before}) <= 2


def test_a_shard_whose_list_cannot_be_read_is_named() -> None:
    *shards, index = configuration_manifests(with_users(users(50_000)), TARGET)
    broken = next(each for each in shards if "$lists" in each["spec"]["flagSpec"])
    broken["spec"]["flagSpec"]["$lists"] = [{"path": 1}]
    with pytest.raises(InvalidSpecError, match=broken["metadata"]["name"]):
        read([*shards, index])


def test_a_flag_set_with_a_long_list_is_no_single_flag_of_stock_flagd() -> None:
    with pytest.raises(TooLargeError, match="take FeatureFlag out of"):
        flag_manifest(with_users(users(100_000)), TARGET)
