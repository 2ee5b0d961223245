"""Histograms that add up, and durations as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.objects.histogram import LAST, added, bound, quantile, shown, step

DURATIONS = st.floats(0.0, 80_000.0)


@given(DURATIONS)
def test_a_bucket_gives_a_duration_within_a_tenth(seconds: float) -> None:
    assert seconds <= bound(step(seconds)) * (1 + 1e-9)
    assert bound(step(seconds)) <= max(0.001, seconds * 1.0906)


@given(st.lists(DURATIONS), st.lists(DURATIONS), st.sampled_from([0.5, 0.99]))
def test_the_sum_of_two_is_the_histogram_of_both(one: list[float], other: list[float], share: float) -> None:
    def histogram(durations: list[float]) -> dict[int, int]:
        return added({step(each): 1} for each in durations)

    assert quantile(added([histogram(one), histogram(other)]), share) == quantile(
        histogram(one + other), share
    )


@pytest.mark.parametrize(
    ("share", "seconds"), [(0.5, 0.001), (0.75, 0.001), (0.76, bound(80)), (1.0, bound(80))]
)
def test_a_quantile_is_the_bound_within_which_so_many_were_done(share: float, seconds: float) -> None:
    assert quantile({0: 3, 80: 1}, share) == seconds


def test_nothing_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None


def test_what_takes_longer_than_a_day_is_in_the_last_step() -> None:
    assert step(1e9) == LAST


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "1ms"), (0.038, "38ms"), (0.254, "250ms"), (0.998, "1.0s"), (1.24, "1.2s"), (12.4, "12s"),
     (59.8, "1m0s"), (250.0, "4m10s")],
)  # fmt: skip
def test_durations_are_written_with_two_digits(seconds: float, text: str) -> None:
    assert shown(seconds) == text
