from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from evaluator.server.rollout_metrics import HASHES, UnitSample

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
