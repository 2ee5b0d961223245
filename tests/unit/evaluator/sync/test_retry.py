from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from evaluator.sync.schedule import CAP, RetryPauses


@given(st.lists(st.floats(min_value=0, max_value=1), min_size=20, max_size=20))
def test_pauses_begin_short_and_stay_under_the_cap(numbers: list[float]) -> None:
    backoff = RetryPauses(iter(numbers).__next__)
    pauses = [backoff.pause() for _ in range(20)]
    assert 0.1 <= pauses[0] < 0.25
    assert all(CAP / 2 <= pause <= CAP for pause in pauses[7:])


def test_pauses_double_and_are_short_again_after_a_success() -> None:
    backoff = RetryPauses(lambda: 0.0)
    assert [backoff.pause() for _ in range(4)] == [0.2, 0.4, 0.8, 1.6]
    backoff.reset()
    assert backoff.pause() == 0.2
    backoff.reset(spread=True)
    assert [backoff.pause() for _ in range(2)] == [2.0, 0.4]


def test_evaluators_that_lose_a_server_at_once_come_back_over_two_seconds() -> None:
    random, starts = Random(1), Counter[int]()
    for _ in range(20_000):
        backoff = RetryPauses(random.random)
        backoff.reset(spread=True)
        starts[int(backoff.pause() * 10)] += 1
    assert set(starts) == set(range(1, 20))
    assert max(starts.values()) < 1_300
