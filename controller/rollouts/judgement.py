"""Which metrics and webhooks of a candidate are due, and what their results mean for it. Pure.

A webhook says yes, says no, or does not answer. No answer is an error whatever its type: it is never taken
for a no, and counts for `onError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api.rollout_status import Approval, CandidateStatus, CheckCounts, MetricStatus, Verdict
from controller.rollouts.clocks import is_check_due
from controller.rollouts.gates import (
    Gate,
    confirmation,
    interruption,
    is_approved,
    is_served,
    start_gate,
    step_gate,
)
from controller.rollouts.verdicts import BADNESS, stops, worst
from controller.runtime.event import Occurrence
from evaluator.host.times import precise_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.flagrollout import FlagRolloutSpec, Webhook, WebhookType
    from controller.rollouts.observation import Tick


IN_STEP: Final = frozenset({"Progressing", "Paused", "WaitingPromotion"})
"""Phases in which a step is served."""


class Due(NamedTuple):
    """The checks and webhook calls that are made before the state machine decides."""

    metrics: bool = False
    hooks: tuple[Webhook, ...] = ()


def due(status: CandidateStatus, tick: Tick) -> Due:
    """Return what is due by the status of a candidate; the tick has no answers yet."""
    spec, now, phase = tick.spec, tick.now, status.phase
    if phase == "Failed":
        return Due(hooks=tuple(_of_type(spec, "post-rollout")) if status.post_rollout_at is None else ())
    if phase == "Promoting":
        hooks = list(_of_type(spec, "rollback") if _is_due(status, tick, status.step_started_at) else ())
        if not hooks and tick.promotion is not None and is_served(tick) and status.verdict != "Error":
            # The candidate is promoted with their answers, whatever they are.
            hooks += _of_type(spec, "post-rollout")
        return Due(hooks=tuple(hooks))
    if phase == "Pending":
        check = is_check_due(spec, status, None, now)
        rollback = tuple(_of_type(spec, "rollback")) if check else ()
        return Due(hooks=(*rollback, *_gate_webhooks(status, start_gate(status, tick), check=check)))
    return _due_in_step(status, tick) if phase in IN_STEP else Due()


def _due_in_step(status: CandidateStatus, tick: Tick) -> Due:
    spec = tick.spec
    exposed = status.propagated_at is not None and is_served(tick) and interruption(status, tick) is None
    check = _is_due(status, tick, status.measured_since or status.step_started_at)
    hooks = list(_of_type(spec, "rollback")) if check else []
    # While nobody is exposed, what is measured is not of this candidate.
    if check and exposed and not tick.skips:
        hooks += _of_type(spec, "rollout")
    hooks += _gate_webhooks(status, step_gate(status, tick), check=check)
    return Due(bool(spec.analysis.metrics) and check and exposed and not tick.skips, tuple(hooks))


def _is_due(status: CandidateStatus, tick: Tick, since: str | None) -> bool:
    return is_check_due(tick.spec, status, since, tick.now)


def _gate_webhooks(status: CandidateStatus, gate: Gate | None, *, check: bool) -> tuple[Webhook, ...]:
    """Return the webhooks that a gate waits for: at once if the gate is new, then with each check."""
    if gate is None or not (check or status.reason != gate.reason):
        return ()
    return gate.hooks


def _of_type(spec: FlagRolloutSpec, type_: str) -> Iterator[Webhook]:
    return (hook for hook in spec.webhooks if hook.type == type_)


_EVENTS: Final = {"Fail": "CheckFailed", "Inconclusive": "Inconclusive", "Error": "CheckError"}
_CONFIRMING: Final[tuple[WebhookType, ...]] = (
    "confirm-rollout", "pre-rollout", "confirm-increase", "confirm-promotion",
)  # fmt: skip
_NAMED: Final = 3
"""Most checks that a message names."""
_KEPT: Final = 40
"""Most approvals in a status."""
_LONGEST: Final = 1024
"""Most characters of a cause."""


class RollbackCause(NamedTuple):
    """Why a candidate is rolled back."""

    reason: str
    message: str


class Judgement(NamedTuple):
    """The outcome of the checks made now."""

    status: CandidateStatus
    events: tuple[Occurrence, ...]
    cause: RollbackCause | None
    """Why the candidate is rolled back; None: it is not."""


def judge(status: CandidateStatus, tick: Tick) -> Judgement:
    """Count the checks and answers of now, if any was due, and open the gates that webhooks confirmed."""
    if tick.metrics is None and not tick.answers:
        return Judgement(status, (), None)
    confirmed = _with_confirmations(status, tick)
    counted, events, cause = _count(confirmed, tick)
    since = status.measured_since or status.step_started_at
    if tick.metrics is not None or is_check_due(tick.spec, status, since, tick.now):
        # After a confirmation before the first step, the webhooks of the next gate are asked at once.
        again = status.step is None and confirmed is not status
        counted = counted.model_copy(update={"last_check_at": None if again else precise_timestamp(tick.now)})
    return Judgement(counted, events, cause)


def _count(status: CandidateStatus, tick: Tick) -> Judgement:
    spec, metrics = tick.spec, tick.metrics
    before = status.checks or CheckCounts()
    update: dict[str, Any] = {}
    checked = [*answers_of(tick, "rollout"), *_silent(tick, "rollback")]
    # The webhooks whose answer is of the step; others open gates.
    judged = metrics is not None or bool(checked) or any(answers_of(tick, "rollback"))
    verdicts: list[Verdict] = [worst(spec.analysis.metrics, metrics or ()), *(own for _, own, _ in checked)]
    verdict = max(verdicts, key=BADNESS.index)
    refused = [answer for answer in answers_of(tick, "pre-rollout") if answer[1] == "Fail"]
    silent = [answer for type_ in _CONFIRMING for answer in _silent(tick, type_)]
    inconclusive = before.inconclusive + 1 if verdict == "Inconclusive" else 0
    # Failed checks add up over the step, one for each time; errors and checks without a value only while they
    # follow one another.
    checks = CheckCounts(
        failed=before.failed + (verdict == "Fail" or bool(refused)),
        consecutive_errors=before.consecutive_errors + 1 if "Error" in verdicts or silent else 0,
        inconclusive=inconclusive if judged else before.inconclusive,
    )
    text = "; ".join(_texts(spec, metrics or (), checked, verdict))
    events = []
    if judged:
        update |= {"verdict": verdict, "metrics": status.metrics if metrics is None else metrics}
        # Each failed check counts, so each has an Event; of other verdicts, only the first in a row.
        if verdict == "Fail" or verdict not in {"Pass", status.verdict}:
            events.append(Occurrence(_EVENTS[verdict], text, warning=True))
    if refused:
        events.append(Occurrence("CheckFailed", _answers_text(refused), warning=True))
    if silent and not before.consecutive_errors:
        events.append(Occurrence("CheckError", _answers_text(silent), warning=True))
    open_gates = [
        answer for type_ in _CONFIRMING for answer in answers_of(tick, type_) if answer[1] != "Pass"
    ]
    causes = [text] * (verdict != "Pass") + [_answers_text(open_gates)] * bool(open_gates)
    counted = status.model_copy(
        update={**update, "checks": checks, "message": "; ".join(causes)[:_LONGEST] or None}
    )
    return Judgement(counted, tuple(events), _cause(tick, checks, counted.message or ""))


def _with_confirmations(status: CandidateStatus, tick: Tick) -> CandidateStatus:
    """Record the webhooks that have confirmed now."""
    hooks = {hook.name: hook for hook in tick.spec.webhooks}
    for type_ in _CONFIRMING:
        for name, verdict, _ in answers_of(tick, type_):
            if verdict == "Pass":
                status = with_approval(status, confirmation(hooks[name], status), tick)
    return status


def with_approval(status: CandidateStatus, gate: str, tick: Tick) -> CandidateStatus:
    """Record that a gate is open for the candidate."""
    if is_approved(status, gate):
        return status
    approval = Approval(gate=gate, digest=status.digest, at=precise_timestamp(tick.now))
    return status.model_copy(update={"approvals": (*status.approvals, approval)[-_KEPT:]})


def answers_of(tick: Tick, type_: WebhookType) -> Iterator[tuple[str, Verdict, str]]:
    """Yield (name, verdict, message) of each webhook of a type that was asked now."""
    for hook in tick.spec.webhooks:
        answer = tick.answers.get(hook.name)
        if hook.type == type_ and answer is not None:
            yield hook.name, answer.verdict, answer.message


def report_answers(tick: Tick, type_: WebhookType) -> tuple[Occurrence, ...]:
    """Return the Events of webhooks on which nothing depends: those that say no, or do not answer."""
    return tuple(
        Occurrence(_EVENTS[verdict], _answer_text((name, verdict, message)), warning=True)
        for name, verdict, message in answers_of(tick, type_)
        if verdict != "Pass"
    )


def _silent(tick: Tick, type_: WebhookType) -> list[tuple[str, Verdict, str]]:
    return [answer for answer in answers_of(tick, type_) if answer[1] == "Error"]


def _cause(tick: Tick, checks: CheckCounts, text: str) -> RollbackCause | None:
    analysis = tick.spec.analysis
    if tick.metrics is not None and (test := stops(analysis.metrics, tick.metrics)) is not None:
        return RollbackCause("GuardrailFailed", _metric_text(test))
    if checks.failed >= analysis.failure_limit:
        return RollbackCause("FailureLimit", f"{checks.failed} checks failed: {text}")
    if analysis.on_error == "Rollback" and checks.consecutive_errors >= analysis.consecutive_error_limit:
        return RollbackCause("CheckErrors", text)
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
    texts += [_answer_text(answer) for answer in answers if answer[1] == verdict]
    yield from texts[:_NAMED]
    if len(texts) > _NAMED:
        yield f"{len(texts) - _NAMED} more"


def _metric_text(status: MetricStatus) -> str:
    value = "" if status.value is None else f" is {status.value:g}"
    wanted = f", it must be {status.threshold}" if status.threshold and status.value is not None else ""
    return f"metric {status.name}{value}{wanted}" + (f": {status.message}" if status.message else "")


def _answers_text(answers: Iterable[tuple[str, Verdict, str]]) -> str:
    return "; ".join(map(_answer_text, answers))


def _answer_text(answer: tuple[str, Verdict, str]) -> str:
    name, verdict, message = answer
    said = "does not answer" if verdict == "Error" else "says no"
    return f"webhook {name} {said}: {message}"
