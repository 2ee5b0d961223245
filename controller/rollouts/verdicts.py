"""Judges a step by the values of its metrics, with tests in closed form. Pure.

`guardrail`: is the candidate's rate of bad events more than `margin` times that of the others? In each check,
`a` of `n1` events of the candidate were bad, and `b` of `n2` events of the others. If the ratio of the rates
is `r`, a bad event is the candidate's with the probability `r n1 / (r n1 + n2)`. The evidence is the mean of
the likelihood ratios of some `r` greater than the margin against the margin. Its expectation is at most 1
while the ratio is at most the margin, so the probability that it ever reaches 1/alpha is at most alpha,
however often it is computed (Ville's inequality), and the share of users may change between checks.

`sample_ratio`: do the candidate's users have the share that they should? The Bayes factor of a
Dirichlet-multinomial against the shares (Lindon and Malek, "Anytime-Valid Inference for Multinomial Count
Data", NeurIPS 2022), with the same promise.

Both count events of users who are independent of each other: ten bad events of one user count as ten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.rollouts.metric_values import NoValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.flagrollout import Metric, ThresholdRange
    from controller.api.rollout_status import MetricStatus, Verdict


RATIOS: Final = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""How many times the margin each alternative is."""
_CONCENTRATION: Final = 100.0
"""The concentration of the prior, as a number of users."""
_MOST: Final = 690.0
"""The greatest logarithm whose exponential is a finite float, about."""


@dataclass(frozen=True, slots=True)
class Events:
    """What happened between two checks; all are at least 0."""

    bad: float
    """Bad events of the candidate."""
    bad_others: float
    total: float
    """All events of the candidate."""
    total_others: float


def add_events(weights: Sequence[float], events: Events, margin: float) -> tuple[float, ...]:
    """Return the logarithm of the evidence for each of RATIOS, with these events. `weights`: before them;
    empty: none yet.
    """
    before = tuple(weights) if len(weights) == len(RATIOS) else (0.0,) * len(RATIOS)
    if events.total <= 0 or events.total_others <= 0:
        # Nothing can be compared: the events of one side say nothing.
        return before
    null = _odds(margin, events)
    return tuple(
        weight
        + events.bad * math.log(_share(odds) / _share(null))
        + events.bad_others * math.log((1 + null) / (1 + odds))
        for weight, odds in zip(before, (_odds(ratio * margin, events) for ratio in RATIOS), strict=True)
    )


def evidence(weights: Sequence[float]) -> float:
    """Return the evidence against the candidate, 1 without any; a rate is too high from 1/alpha on."""
    if not weights:
        return 1.0
    greatest = max(weights)
    total = sum(math.exp(weight - greatest) for weight in weights) / len(weights)
    return math.exp(min(_MOST, greatest + math.log(total)))


def sample_ratio(candidates: float, others: float, share: float) -> float:
    """Return the Bayes factor against `share` (between 0 and 1) of users in the candidate, 1 without users;
    the ratio is wrong from 1/alpha on.
    """
    expected = (share, 1 - share)
    prior = tuple(_CONCENTRATION * part for part in expected)
    counts = (candidates, others)
    logarithm = math.lgamma(_CONCENTRATION) - math.lgamma(_CONCENTRATION + sum(counts))
    for weight, part, count in zip(prior, expected, counts, strict=True):
        logarithm += math.lgamma(weight + count) - math.lgamma(weight) - count * math.log(part)
    return math.exp(min(_MOST, logarithm))


def _odds(ratio: float, events: Events) -> float:
    """Return the odds that a bad event is the candidate's."""
    return ratio * events.total / events.total_others


def _share(odds: float) -> float:
    return odds / (1 + odds)


_ALPHAS: Final = {"guardrail": 0.05, "sampleRatio": 0.001}
"""Of metrics that set none."""
BADNESS: Final[tuple[Verdict, ...]] = ("Pass", "Inconclusive", "Error", "Fail")
"""Verdicts from the best to the worst."""
_RECENT: Final = 10
_COUNTS: Final = 5
"""Counts of a guardrail: bad events and all events, of the candidate and of the others, and how many events
of the candidate the evidence is of.
"""


def worst(metrics: Sequence[Metric], statuses: Sequence[MetricStatus]) -> Verdict:
    """Return the worst verdict of the metrics that count; `Pass` if there is none."""
    verdicts = [status.verdict for _, status in _counting_metrics(metrics, statuses)]
    return max(verdicts, key=BADNESS.index, default="Pass")


def stops(metrics: Sequence[Metric], statuses: Sequence[MetricStatus]) -> MetricStatus | None:
    """Return a test that failed: its promise is about the whole step, so no further check is waited for."""
    failed = (
        status
        for metric, status in _counting_metrics(metrics, statuses)
        if metric.type != "threshold" and status.verdict == "Fail"
    )
    return next(failed, None)


def threshold_of(metric: Metric) -> str:
    """Return in words what a value is compared with."""
    if metric.threshold_range is None:
        return f"less than {1 / alpha_of(metric):g}"
    least, most = metric.threshold_range.min, metric.threshold_range.max
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"


def alpha_of(metric: Metric) -> float:
    """Return the greatest probability of a false alarm."""
    return _ALPHAS.get(metric.type, 1.0) if metric.alpha is None else metric.alpha


def with_value(status: MetricStatus, value: float, verdict: Verdict, message: str | None) -> MetricStatus:
    """Return a status with one more value."""
    recent = (*status.recent, value)[-_RECENT:]
    changes = {"value": value, "verdict": verdict, "message": message, "recent": recent}
    return status.model_copy(update=changes)


def judge_threshold(
    status: MetricStatus, allowed: ThresholdRange, value: float, few: str | None
) -> MetricStatus:
    """Judge one value. `few`: says that the samples are too few."""
    if few is not None:
        return with_value(status, value, "Inconclusive", few)
    low = allowed.min is not None and value < allowed.min
    high = allowed.max is not None and value > allowed.max
    return with_value(status, value, "Fail" if low or high else "Pass", None)


def judge_guardrail(
    status: MetricStatus, metric: Metric, counts: Sequence[float], needed: int
) -> MetricStatus:
    """Judge the counters of bad events and of all events, each of the candidate and of the others, by what
    was added since the check before. The first check of a step has none before it.
    """
    before = status.counts if len(status.counts) == _COUNTS else ()
    samples = before[-1] if before else 0.0
    rebased = status.model_copy(update={"counts": (*counts, samples)})
    if not before:
        return _without_value(rebased, "the first check of the step: later ones count what is added")
    added = tuple(now - then for now, then in zip(counts, before, strict=False))
    if min(added) < 0:
        return _without_value(rebased, "a counter went back, as it does where a pod restarts")
    events = Events(*added)
    samples += events.total
    weights = add_events(status.weights, events, metric.margin)
    value = evidence(weights)
    newer = status.model_copy(update={"counts": (*counts, samples), "weights": weights, "samples": samples})
    return _judge_evidence(newer, value, metric, samples, needed)


def judge_ratio(
    status: MetricStatus, metric: Metric, counts: tuple[float, float], share: float, needed: int
) -> MetricStatus:
    """Judge the numbers of users (the candidate's, the others'). `share`: that the candidate should have,
    between 0 and 1. Raises NoValueError where there are none.
    """
    total = sum(counts)
    if min(counts) < 0 or total <= 0:
        raise NoValueError("there are no users yet")
    newer = status.model_copy(update={"counts": counts, "samples": total})
    return _judge_evidence(newer, sample_ratio(*counts, share), metric, total, needed)


def too_few(samples: float | None, needed: int | None) -> str | None:
    """Say that there are fewer samples than needed; None if there are enough, or none were counted."""
    if samples is None or needed is None or samples >= needed:
        return None
    return f"{samples:g} samples, {needed} are needed"


def _judge_evidence(
    status: MetricStatus, value: float, metric: Metric, samples: float, needed: int
) -> MetricStatus:
    if value >= 1 / alpha_of(metric):
        return with_value(status, value, "Fail", None)
    few = too_few(samples, needed)
    return with_value(status, value, "Pass" if few is None else "Inconclusive", few)


def _without_value(status: MetricStatus, message: str) -> MetricStatus:
    return status.model_copy(update={"verdict": "Inconclusive", "message": message})


def _counting_metrics(
    metrics: Sequence[Metric], statuses: Sequence[MetricStatus]
) -> list[tuple[Metric, MetricStatus]]:
    by_name = {metric.name: metric for metric in metrics if not metric.dry_run}
    return [(by_name[status.name], status) for status in statuses if status.name in by_name]
