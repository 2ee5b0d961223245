"""Judges a step by the values of its metrics. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.rollouts.analysis.readings import NoValueError
from controller.rollouts.analysis.statistics import Events, add_events, evidence, sample_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.rollouts.rollout_analysis import Metric, ThresholdRange
    from controller.api.rollouts.rollout_status import MetricStatus, Verdict

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
