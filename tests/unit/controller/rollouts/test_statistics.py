"""The promises of the tests, by simulation with a fixed seed."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from controller.rollouts.verdicts import Events, add_events, evidence, sample_ratio
from tests.unit.controller.rollouts.poisson import poisson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARGIN: Final = 1.25
CHECKS: Final = 100
RATE: Final = 0.01
"""Of bad events of those who do not get the candidate."""
SHARES: Final = (0.01,) * 20 + (0.1,) * 40 + (0.5,) * 40
"""Of users in the candidate, by check: a rollout's own."""


def rolled_back_after(random: Random, ratio: float, alpha: float, requests: int = 1000) -> int | None:
    """How many bad events of the candidate it takes to find that its rate is `ratio` times the others'; None:
    it is not found in the whole rollout, with so many requests in each check.
    """
    weights: tuple[float, ...] = ()
    bad = 0
    for share in SHARES:
        total, others = requests * share, requests * (1 - share)
        events = Events(poisson(random, total * RATE * ratio), poisson(random, others * RATE), total, others)
        bad += int(events.bad)
        weights = add_events(weights, events, MARGIN)
        if evidence(weights) >= 1 / alpha:
            return bad
    return None


def of_runs(runs: int, run: Callable[[Random], int | None]) -> list[int]:
    """Results of those runs that have one."""
    return sorted(result for seed in range(runs) if (result := run(Random(seed))) is not None)


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 0.005), (0.7, 0.005), (MARGIN, 0.05)])
def test_a_candidate_within_the_margin_is_rarely_rolled_back_however_often_one_looks(
    ratio: float, most: float
) -> None:
    false_alarms = of_runs(1000, lambda random: rolled_back_after(random, ratio, 0.05))
    assert len(false_alarms) / 1000 <= most


@pytest.mark.parametrize(("ratio", "least", "events"), [(2.0, 0.9, 130), (3.0, 0.99, 50), (6.0, 1.0, 15)])
def test_a_bad_candidate_is_found_after_few_of_its_bad_events(
    ratio: float, least: float, events: int
) -> None:
    found = of_runs(300, lambda random: rolled_back_after(random, ratio, 0.05))
    assert len(found) / 300 >= least
    assert found[len(found) // 2] <= events


def test_bad_events_in_bursts_of_one_user_break_the_promise() -> None:
    """What the page tells: ten bad events of one user are no ten independent ones."""

    def run(random: Random) -> int | None:
        weights: tuple[float, ...] = ()
        for share in SHARES:
            total, others = 1000 * share, 1000 * (1 - share)
            bad, bad_others = poisson(random, total * RATE / 10), poisson(random, others * RATE / 10)
            weights = add_events(weights, Events(10 * bad, 10 * bad_others, total, others), MARGIN)
            if evidence(weights) >= 20:
                return bad
        return None

    assert len(of_runs(300, run)) / 300 > 0.2


def test_events_of_one_side_alone_are_no_evidence() -> None:
    assert evidence(add_events((), Events(50, 0, 100, 0), MARGIN)) == 1
    assert evidence(add_events((), Events(0, 50, 0, 100), MARGIN)) == 1
    assert evidence(()) == 1


def test_the_evidence_is_a_number_whatever_happens() -> None:
    weights: Sequence[float] = ()
    for _ in range(1000):
        weights = add_events(weights, Events(1e6, 0, 1e6, 1e9), MARGIN)
    assert math.isfinite(evidence(weights))
    for _ in range(1000):
        weights = add_events(weights, Events(0, 1e6, 1e9, 1e6), MARGIN)
    assert evidence(weights) >= 0


def test_each_bad_event_of_the_candidate_is_evidence_against_it() -> None:
    less, more = (evidence(add_events((), Events(bad, 90, 1000, 9000), MARGIN)) for bad in (20, 21))
    assert less < more


def users_until_mismatch(random: Random, actual: float, alpha: float) -> int | None:
    """How many users it takes to find that their ratio is not 10 %, with a look after each 50."""
    candidates = users = 0
    for _ in range(200):
        candidates += sum(random.random() < actual for _ in range(50))
        users += 50
        if sample_ratio(candidates, users - candidates, 0.1) >= 1 / alpha:
            return users
    return None


def test_a_right_ratio_of_users_is_rarely_called_wrong() -> None:
    assert len(of_runs(300, lambda random: users_until_mismatch(random, 0.1, 0.01))) / 300 <= 0.01


def test_a_wrong_ratio_of_users_is_found() -> None:
    found = of_runs(100, lambda random: users_until_mismatch(random, 0.08, 0.01))
    assert len(found) == 100
    assert found[50] <= 3_500


def test_the_bayes_factor_is_that_of_the_definition() -> None:
    """Against the product of its predictive probabilities, user by user."""
    seen, factor = [0, 0], 1.0
    for arm in (0, 1, 1, 1, 0, 1, 1):
        share = (0.3, 0.7)[arm]
        predicted = (100 * share + seen[arm]) / (100 + sum(seen))
        factor *= predicted / share
        seen[arm] += 1
    assert sample_ratio(2, 5, 0.3) == pytest.approx(factor)


def test_the_weights_are_logarithms_of_likelihood_ratios() -> None:
    """Against the binomial distribution of whose a bad event is."""

    def likelihood(ratio: float) -> float:
        share = ratio * 100 / (ratio * 100 + 900)
        return math.comb(10, 3) * share**3 * (1 - share) ** 7

    weights = add_events((), Events(3, 7, 100, 900), MARGIN)
    assert math.exp(weights[3]) == pytest.approx(likelihood(2 * MARGIN) / likelihood(MARGIN))
