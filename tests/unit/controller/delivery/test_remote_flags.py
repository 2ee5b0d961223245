"""The composition of an object's own flags with those of its remote provider, as every reader delivers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.featureflagconfiguration import MissingShardsError
from controller.delivery.delivered import Delivered, RemoteFlags, compose, delivery_of
from evaluator.flags.canonical import digest
from evaluator.flags.model import BUCKETING_KEY, Bucketing, FlagSet
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.worlds.flags import flag_set_of
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.api.meta import Resource

NOW = 1_700_000_000
CONTEXT = {"targetingKey": "user-1", "tier": "gold"}
STRATEGIES = st.sampled_from(["merge", "override"])

metadata = st.fixed_dictionaries(
    {},
    optional={
        "flagSetId": st.sampled_from(["shop", "bank"]),
        "team": st.sampled_from(["a", "b"]),
        BUCKETING_KEY: st.sampled_from(["v2", "v3"]),
        "flagstaff.dev/author": st.just("Ada"),
        "flagstaff.dev/revision": st.just("main@sha1:1"),
    },
)
rules = st.sampled_from(
    [None, {"if": [{"$ref": "gold"}, "on", "off"]}, {"fractional": [["on", 1], ["off", 1]]}]
)
bodies = st.sampled_from([{"==": [{"var": "tier"}, "gold"]}, {"==": [{"var": "tier"}, "x"]}])


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    flags = {
        key: {
            "state": draw(st.sampled_from(["ENABLED", "DISABLED"])),
            "variants": {"on": True, "off": False},
            "defaultVariant": draw(st.sampled_from(["on", "off"])),
            "targeting": draw(rules),
            "metadata": {"own": draw(st.sampled_from(["a", "b"]))},
        }
        for key in draw(st.sets(st.sampled_from("abcdef")))
    }
    return {"flags": flags, "$evaluators": {"gold": draw(bodies)}, "metadata": draw(metadata)}


def nothing(_: str) -> Resource | None:
    return None


def merge(local: dict[str, Any], remote: dict[str, Any], strategy: str, **entry: Any) -> Delivered:
    """What an object with these own flags delivers, whose provider has these."""
    shard = thing("FlagShard", "s", {"digest": "d", "flagSpec": remote})
    fetched = {"name": "there", "version": "v1", "shards": [{"name": "s", "digest": "d"}], **entry}
    spec = {"flagSpec": local, "remoteFlagProvider": {"type": "http", "strategy": strategy}}
    return delivery_of(configuration(spec, fetched), {"s": shard}.get)


def configuration(spec: dict[str, Any], *providers: Any) -> Resource:
    return thing("FeatureFlagConfiguration", "web", spec, {"providers": list(providers)})


def answers(flag_set: FlagSet) -> dict[str, tuple[Any, ...]]:
    compiled = compile_flag_set(flag_set, bucketing=Bucketing.V2)
    resolved = {key: resolve(compiled, key, None, CONTEXT, NOW) for key in compiled.keys_in_order}
    return {
        key: (it.value, it.variant, it.reason, it.error_code, it.metadata["own"])
        for key, it in resolved.items()
    }


@given(local=documents(), remote=documents(), strategy=STRATEGIES)
def test_each_flag_answers_as_in_the_set_that_has_it(
    local: dict[str, Any], remote: dict[str, Any], strategy: str
) -> None:
    one, other = answers(flag_set_of(local)), answers(flag_set_of(remote))
    wanted = {**other, **one} if strategy == "merge" else {**one, **other}
    assert answers(merge(local, remote, strategy).flag_set) == wanted


@given(local=documents(), remote=documents(), strategy=STRATEGIES)
def test_merging_again_changes_nothing(local: dict[str, Any], remote: dict[str, Any], strategy: str) -> None:
    once = merge(local, remote, strategy)
    filled = {
        key: flag for key, flag in once.flag_set.flags.items() if "flagstaff.dev/provider" in flag.metadata
    }
    again = compose(once.flag_set, RemoteFlags(filled, overrides=strategy == "override"))
    assert again == once.flag_set
    assert digest(again) == once.digest


@given(local=documents(), remote=documents(), strategy=STRATEGIES)
def test_own_flags_metadata_and_shared_rules_stay_those_of_the_object(
    local: dict[str, Any], remote: dict[str, Any], strategy: str
) -> None:
    alone, made = flag_set_of(local), merge(local, remote, strategy)
    assert (made.flag_set.metadata, made.flag_set.evaluators) == (alone.metadata, alone.evaluators)
    assert (made.desired, made.local_digest) == (alone, digest(alone))
    keys = alone.flags.keys() if strategy == "merge" else alone.flags.keys() - remote["flags"].keys()
    assert all(made.flag_set.flags[key] == alone.flags[key] for key in keys)
    assert {flag.flag_set_id_in("of the set") for flag in made.flag_set.flags.values()} <= {"of the set"}


@given(local=documents(), strategy=STRATEGIES)
def test_a_provider_without_flags_is_as_none(local: dict[str, Any], strategy: str) -> None:
    spec = {"flagSpec": local, "remoteFlagProvider": {"type": "http", "strategy": strategy}}
    alone = delivery_of(configuration({"flagSpec": local}), nothing)
    assert delivery_of(configuration(spec, {"name": "there", "flags": 0}), nothing) == alone


@given(local=documents(), remote=documents(), strategy=STRATEGIES)
def test_provenance_and_staleness_change_no_digest(
    local: dict[str, Any], remote: dict[str, Any], strategy: str
) -> None:
    current = merge(local, remote, strategy)
    stale = merge(local, remote, strategy, staleSince="2026-01-01T00:00:00Z", version="v2", name="else")
    assert current.digest == stale.digest


@pytest.mark.parametrize("providers", ["text", ["text"], [{"shards": "text"}], None, [{}]], ids=str)
def test_a_status_that_is_malformed_has_no_remote_flags_or_says_so(providers: Any) -> None:
    local: dict[str, Any] = {"flags": {}}
    spec = {"flagSpec": local, "remoteFlagProvider": {"type": "http"}}
    broken = thing("FeatureFlagConfiguration", "web", spec, {"providers": providers})
    assert delivery_of(broken, nothing).flag_set.flags == {}


def test_flags_of_a_shard_that_is_not_there_yet_are_waited_for() -> None:
    spec = {"flagSpec": {"flags": {}}, "remoteFlagProvider": {"type": "http"}}
    fetched = {"name": "there", "shards": [{"name": "s", "digest": "d"}]}
    with pytest.raises(MissingShardsError):
        delivery_of(configuration(spec, fetched), nothing)
