"""How often a step at the defaults is rolled back, as the page about the analysis tells, by simulation."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from controller.api.flagrollout import Analysis
from controller.api.rollout_status import MetricStatus
from controller.rollouts.verdicts import judge_guardrail, judge_threshold, too_few
from tests.unit.controller.rollouts.poisson import poisson
from tests.worlds.metrics import metric_of

if TYPE_CHECKING:
    from collections.abc import Callable

if TYPE_CHECKING:
    Step = Callable[[Random, int, float], "bool | None"]

PAGE: Final = Path(__file__).parents[4] / "docs" / "rollout-analysis.md"
REQUESTS: Final = (20, 50, 200, 1000)
"""Of the candidate, in each check."""
CHECKS: Final = 30
RUNS: Final = 1000
GOOD, BAD = 0.005, 0.02
"""Rates of errors; others have the rate GOOD."""
LIMIT: Final = metric_of(thresholdRange={"max": 0.01})
GUARDRAIL: Final = metric_of(
    type="guardrail", numerator={"templateRef": {"name": "bad"}}, denominator={"templateRef": {"name": "all"}}
)
NOTHING: Final = MetricStatus(name="errors", verdict="Pass")


def threshold(random: Random, requests: int, rate: float, checks: int = 1, needed: int = 0) -> bool | None:
    """Whether a threshold rolls a step back; None: it never has enough samples. `checks`: whose requests a
    value is of.
    """
    assert LIMIT.threshold_range is not None
    window: deque[int] = deque(maxlen=checks)
    failed = judged = 0
    for _ in range(CHECKS):
        window.append(poisson(random, requests * rate))
        samples = requests * len(window)
        few = too_few(samples, needed)
        status = judge_threshold(NOTHING, LIMIT.threshold_range, sum(window) / samples, few)
        judged += few is None
        failed += status.verdict == "Fail"
    return failed >= Analysis().failure_limit if judged else None


def five_minutes(random: Random, requests: int, rate: float) -> bool | None:
    return threshold(random, requests, rate, 5, 500)


def guardrail(random: Random, requests: int, rate: float) -> bool:
    """Whether a guardrail rolls a step back whose candidate has 10 % of the requests."""
    counts: tuple[float, ...] = (0.0,) * 4
    status = judge_guardrail(NOTHING, GUARDRAIL, counts, 0)
    for _ in range(CHECKS):
        gained = (
            poisson(random, requests * rate),
            poisson(random, 9 * requests * GOOD),
            requests,
            9 * requests,
        )
        counts = tuple(map(sum, zip(counts, gained, strict=True)))
        status = judge_guardrail(status, GUARDRAIL, counts, 0)
        if status.verdict == "Fail":
            return True
    return False


def rollback_percent(step: Step, requests: int, rate: float) -> str:
    """Percent of the runs that are rolled back."""
    runs = [step(Random(seed), requests, rate) for seed in range(RUNS)]
    if None in runs:
        return "held"
    share = 100 * sum(map(bool, runs)) / RUNS
    return f"{share:.1f} %" if share < 1 else f"{share:.0f} %"


ROWS: Final[dict[str, tuple[Step, float]]] = {
    "`thresholdRange: {max: 0.01}`, a good candidate": (threshold, GOOD),
    "the same with `minSamples: 500`, `interval: 5m`": (five_minutes, GOOD),
    "`guardrail`, a good candidate": (guardrail, GOOD),
    "`guardrail`, errors of 2 %": (guardrail, BAD),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_page_tells_how_often_a_step_is_rolled_back(name: str) -> None:
    step, rate = ROWS[name]
    row = " | ".join((name, *(rollback_percent(step, requests, rate) for requests in REQUESTS)))
    assert f"| {row} |" in PAGE.read_text()
