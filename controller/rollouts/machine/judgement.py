"""Judges a step by the checks that were made now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.objects.meta import precise_timestamp
from controller.api.rollouts.rollout_status import Checks
from controller.rollouts.analysis.verdicts import BADNESS, stops, worst
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_analysis import WebhookType
    from controller.api.rollouts.rollout_status import FlagRolloutStatus, MetricStatus, Verdict
    from controller.rollouts.machine.observation import Observation

_EVENTS: Final = {"Fail": "CheckFailed", "Inconclusive": "Inconclusive", "Error": "CheckError"}
_NAMED: Final = 3
"""Most checks that a message names."""


class Cause(NamedTuple):
    """Why a candidate is rolled back."""

    reason: str
    message: str


class Judgement(NamedTuple):
    """The outcome of the checks made now."""

    status: FlagRolloutStatus
    events: tuple[Occurrence, ...]
    cause: Cause | None
    """Why the candidate is rolled back; None: it is not."""


def judge(
    spec: FlagRolloutSpec, status: FlagRolloutStatus, observation: Observation, now: datetime
) -> Judgement:
    """Count the checks made now, if any was due."""
    metrics = observation.metrics
    answers = tuple(answers_of(spec, observation, "rollout"))
    if metrics is None and not answers:
        return Judgement(status, (), None)
    metrics = metrics or ()
    verdicts: list[Verdict] = [worst(spec.analysis.metrics, metrics), *(verdict for _, verdict, _ in answers)]
    verdict = max(verdicts, key=BADNESS.index)
    checks = _add_checks(status.checks or Checks(), verdicts, verdict)
    counted = status.model_copy(
        update={
            "metrics": metrics,
            "verdict": verdict,
            "checks": checks,
            "last_check_at": precise_timestamp(now),
        }
    )
    text = "; ".join(_texts(spec, metrics, answers, verdict))
    # Each failed check counts, so each has an Event; of other verdicts, only the first in a row.
    is_reported = verdict == "Fail" or verdict not in {"Pass", status.verdict}
    events = (Occurrence(_EVENTS[verdict], text, warning=True),) if is_reported else ()
    return Judgement(counted, events, _cause(spec, metrics, checks, text))


def answers_of(
    spec: FlagRolloutSpec, observation: Observation, type_: WebhookType
) -> Iterator[tuple[str, Verdict, str]]:
    """Yield (name, verdict, message) of each webhook of a type that answered now."""
    for hook in spec.webhooks:
        answer = observation.answers.get(hook.name)
        if hook.type == type_ and answer is not None:
            yield hook.name, answer.verdict, answer.message


def _add_checks(before: Checks, verdicts: Iterable[Verdict], verdict: Verdict) -> Checks:
    """Failed checks add up over the step, one for each time; errors and checks without a value only while
    they follow one another.
    """
    return Checks(
        failed=before.failed + (verdict == "Fail"),
        consecutive_errors=before.consecutive_errors + 1 if "Error" in verdicts else 0,
        inconclusive=before.inconclusive + 1 if verdict == "Inconclusive" else 0,
    )


def _cause(
    spec: FlagRolloutSpec, metrics: tuple[MetricStatus, ...], checks: Checks, text: str
) -> Cause | None:
    analysis = spec.analysis
    if (test := stops(analysis.metrics, metrics)) is not None:
        return Cause("GuardrailFailed", _metric_text(test))
    if checks.failed >= analysis.failure_limit:
        return Cause("FailureLimit", f"{checks.failed} checks failed: {text}")
    if analysis.on_error == "Rollback" and checks.consecutive_errors >= analysis.consecutive_error_limit:
        return Cause("CheckErrors", text)
    return None


def _texts(
    spec: FlagRolloutSpec,
    metrics: Iterable[MetricStatus],
    answers: Iterable[tuple[str, Verdict, str]],
    verdict: Verdict,
) -> Iterator[str]:
    """Yield the text of each check with this verdict, up to the number that a message names."""
    counting = {metric.name for metric in spec.analysis.metrics if not metric.dry_run}
    texts = [
        _metric_text(metric) for metric in metrics if metric.verdict == verdict and metric.name in counting
    ]
    texts += [f"webhook {name}: {message}" for name, own, message in answers if own == verdict]
    yield from texts[:_NAMED]
    if len(texts) > _NAMED:
        yield f"{len(texts) - _NAMED} more"


def _metric_text(status: MetricStatus) -> str:
    value = "" if status.value is None else f" is {status.value:g}"
    wanted = f", it must be {status.threshold}" if status.threshold and status.value is not None else ""
    return f"metric {status.name}{value}{wanted}" + (f": {status.message}" if status.message else "")
