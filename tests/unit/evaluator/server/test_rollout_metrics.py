from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.resolving.resolution import FlagType
from evaluator.server.rollout_metrics import HASHES, MOST_UNITS_OF_FLAG, UnitSample
from evaluator.store.history import KEPT_SECONDS
from tests.rollout_sets import NEW, OLD, PLAIN, flags, rolled_out
from tests.stores import swap
from tests.unit.evaluator.server.test_management import ask, samples
from tests.unit.evaluator.server.test_ofrep import post
from tests.worlds.evaluator import NOW, World, answer_of, call, world

ARM = "flagstaff.dev/rollout-arm"


def serve_rollout(share: float = 50, **more: Any) -> World:
    served = world()
    swap(served.store, rolled_out(share, **more), now=NOW)
    return served


def values(served: World, metric: str, *names: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by some of its labels."""
    return {
        tuple(dict(labels).get(name, "") for name in names): value
        for (name, labels), value in samples(served).items()
        if name == metric
    }


def test_evaluations_are_counted_by_arm_for_flags_in_a_rollout_only() -> None:
    served = serve_rollout(100)
    user = {"context": {"targetingKey": "user-1"}}
    for _ in range(3):
        post(served, NEW.key, user)
    post(served, NEW.key, {"context": {}})
    post(served, PLAIN.key, user)
    names = ("feature_flag_key", "feature_flag_result_variant", "feature_flag_result_reason", "arm")
    assert values(served, "feature_flag_evaluations_total", *names) == {
        (NEW.key, "on", "TARGETING_MATCH", "candidate"): 3,
        (NEW.key, "off", "TARGETING_MATCH", "excluded"): 1,
    }
    [(revision,)] = {key[:1] for key in values(served, "feature_flag_evaluations_total", "rollout_revision")}
    assert revision.startswith("sha256:")
    impressions = ("feature_flag_key", "feature_flag_result_variant")
    assert values(served, "feature_flag_flagd_impression_total", *impressions) == {
        (NEW.key, "on"): 3,
        (NEW.key, "off"): 1,
        (PLAIN.key, "on"): 1,
    }


def test_every_protocol_and_a_bulk_answer_name_the_arm() -> None:
    served = serve_rollout(100)
    _, bulk = post(served, None, {"context": {"targetingKey": "user-1"}})
    arms = {flag["key"]: flag["metadata"].get(ARM) for flag in bulk["flags"]}
    assert arms == {NEW.key: "candidate", PLAIN.key: None}
    message = v1.ResolveAllRequest()
    message.context["targetingKey"] = "user-1"
    encoded = answer_of(served.evaluation.resolve_all(call(), message.SerializeToString()))
    answered = v1.ResolveAllResponse.FromString(encoded).flags[NEW.key]
    assert dict(answered.metadata)[ARM] == "candidate"
    one = orjson.loads(
        answer_of(
            served.json.unary("v2", FlagType.BOOLEAN)(
                call(), b'{"flagKey":"new-checkout","context":{"targetingKey":"user-1"}}'
            )
        )
    )
    assert one["metadata"][ARM] == "candidate"


def test_an_error_is_counted_for_the_arm_that_has_it() -> None:
    served = serve_rollout(100, new=replace(NEW, targeting={"no_such_operator": [1]}))
    post(served, NEW.key, {"context": {"targetingKey": "user-1"}})
    names = ("feature_flag_result_reason", "arm")
    assert values(served, "feature_flag_evaluations_total", *names) == {("ERROR", "candidate"): 1}


def test_users_are_counted_once_each_by_arm() -> None:
    served = serve_rollout(50)
    for number in range(300):
        post(served, NEW.key, {"context": {"targetingKey": f"user-{number % 100}"}})
    post(served, NEW.key)
    units = values(served, "feature_flag_units", "arm")
    assert set(units) == {("candidate",), ("baseline",)}
    assert sum(units.values()) == 100
    assert values(served, "feature_flag_units_sample_ratio", "feature_flag_key") == {(NEW.key,): 1.0}


@pytest.mark.parametrize("step", ["2/4", "3/4"])
def test_a_new_step_or_share_counts_users_anew_and_evaluations_on(step: str) -> None:
    served = serve_rollout(50)
    post(served, NEW.key, {"context": {"targetingKey": "user-1"}})
    swap(served.store, rolled_out(100, step=step), now=NOW + 60)
    assert values(served, "feature_flag_units", "arm") == {}
    post(served, NEW.key, {"context": {"targetingKey": "user-2"}})
    assert values(served, "feature_flag_units", "arm") == {("candidate",): 1}
    assert sum(values(served, "feature_flag_evaluations_total", "arm").values()) == 2


def test_the_sample_of_users_is_bounded() -> None:
    served = serve_rollout(100)
    for number in range(MOST_UNITS_OF_FLAG + 1):
        post(served, NEW.key, {"context": {"targetingKey": f"user-{number}"}})
    [units] = values(served, "feature_flag_units", "arm").values()
    [ratio] = values(served, "feature_flag_units_sample_ratio").values()
    assert (units <= MOST_UNITS_OF_FLAG, ratio) == (True, 0.5)


@pytest.mark.parametrize("later", [60.0, KEPT_SECONDS + 120])
def test_the_series_of_a_rollout_stay_for_a_while_after_its_end(later: float) -> None:
    served = serve_rollout(100)
    post(served, NEW.key, {"context": {"targetingKey": "user-1"}})
    swap(served.store, flags(NEW, PLAIN), now=NOW + 60)
    swap(served.store, flags(OLD, PLAIN), now=NOW + 60 + later)
    assert len(values(served, "feature_flag_evaluations_total", "arm")) == (later < KEPT_SECONDS)
    assert values(served, "feature_flag_units", "arm") == {}
    assert ask(served, NEW.key)


hashes = st.integers(0, HASHES - 1)


def hash_number(number: int) -> int:
    return int.from_bytes(hashlib.blake2b(str(number).encode(), digest_size=8).digest())


@given(st.dictionaries(hashes, st.sampled_from(["candidate", "baseline"]), max_size=20), st.data())
def test_counts_are_exact_while_all_users_are_in_the_sample(
    arms: dict[int, str], data: st.DataObject
) -> None:
    sample = UnitSample(20)
    for user in data.draw(st.permutations([*arms, *arms])):
        sample.add(user, arms[user])
    assert sample.share == 1
    assert dict(sample.counts()) == {
        arm: list(arms.values()).count(arm) for arm in ("candidate", "baseline") if arm in arms.values()
    }


@given(st.lists(st.tuples(hashes, st.sampled_from(["a", "b"])), max_size=200), st.integers(1, 8))
def test_a_sample_has_exactly_the_users_below_its_limit(users: list[tuple[int, str]], most: int) -> None:
    sample = UnitSample(most)
    for user, arm in users:
        sample.add(user, arm)
    last = {user: arm for user, arm in users if user < sample.share * HASHES}
    assert sum(sample.counts().values()) == len(last) <= most


def test_a_large_sample_keeps_the_proportion_of_the_arms() -> None:
    sample = UnitSample(4_096)
    for number in range(200_000):
        sample.add(hash_number(number), "candidate" if number % 10 == 0 else "baseline")
    counts = sample.counts()
    total = sum(counts.values())
    assert 2_048 < total <= 4_096
    assert abs(total / sample.share / 200_000 - 1) < 0.1
    assert abs(counts["candidate"] / total - 0.1) < 0.02


def test_a_smaller_size_halves_the_sample_at_once() -> None:
    sample = UnitSample(1_000)
    for number in range(1_000):
        sample.add(hash_number(number), "candidate")
    sample.resize(100)
    assert sum(sample.counts().values()) <= 100
    assert sample.share < 1
