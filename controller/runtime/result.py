"""The result of a reconcile, and the conditions, status, Events and next time that it leads to. Pure.

The only place that decides on `Ready`, `Reconciling` and `Stalled`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from controller.api.fields import Model, parse_spec
from controller.api.meta import REQUESTED_AT, Resource
from controller.api.status import (
    FALSE,
    MESSAGE_CHARACTERS,
    READY,
    RECONCILING,
    STALLED,
    TRUE,
    UNKNOWN,
    Condition,
    Status,
    condition_json,
)
from controller.runtime.event import Event, Occurrence, event_of
from controller.runtime.plain_text import clean
from controller.runtime.setbacks import Failed, Passing, Setback, Stalled, Waiting, stall_on_invalid_text
from evaluator.host.texts import cut
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


M = TypeVar("M", bound=Model)


def spec_of(model: type[M], resource: Resource) -> M:
    """An object's spec as `model`, see `parse_spec`. Raises Stalled, with the reason of the first problem."""
    with stall_on_invalid_text():
        return parse_spec(model, resource)


NOTHING: Final = Status()


@dataclass(frozen=True, slots=True)
class Done:
    """A successful reconcile: the reason and message of `Ready`."""

    message: str
    reason: str = "Succeeded"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile. After a setback it holds the partial results."""

    outcome: Done | Setback
    status: Status = NOTHING
    """The kind's own fields that are given; None removes one. Done: all of them, what is not given here is
    removed. Setback: the others stay as they are.
    """
    details: tuple[Condition, ...] = ()
    """Detail conditions. Done: all of the kind's. Setback: those that are known now; the others stay, unless
    they are `ended`.
    """
    ended: tuple[str, ...] = ()
    """Types of detail conditions that hold no longer unless they are among `details`."""
    events: tuple[Occurrence, ...] = ()
    """What changed, as the difference to the status before: the same reconcile again has none."""
    requeue_after: float | None = None
    """Seconds; None: only when something changes. A `Failed` is tried again after its backoff instead."""

    @classmethod
    def of(
        cls,
        setback: Setback,
        *,
        status: Status = NOTHING,
        details: tuple[Condition, ...] = (),
        events: tuple[Occurrence, ...] = (),
        requeue_after: float | None = None,
    ) -> Self:
        """Return the result of a raised `setback`, whose own delay is the default."""
        return cls(
            setback,
            status=status,
            details=details,
            events=events,
            requeue_after=setback.delay if requeue_after is None else requeue_after,
        )

    @property
    def kind(self) -> str:
        """`success`, `stalled`, `waiting` or `failed`."""
        if isinstance(self.outcome, Done):
            return "success"
        if isinstance(self.outcome, Stalled):
            return "stalled"
        return "failed" if isinstance(self.outcome, Failed) else "waiting"


_SHARED: Final = frozenset(field.alias for field in Status.model_fields.values())
"""Status fields that stand in every kind and are settled here."""
_SUMMARY: Final = (READY, RECONCILING, STALLED)


@dataclass(frozen=True, slots=True)
class Settled:
    """What to do after a reconcile."""

    status: dict[str, Any]
    """Whole. Equal to the old one where nothing is to be written."""
    events: tuple[Event, ...]
    requeue_after: float | None
    """Seconds."""
    retry: bool
    """True: reconcile again after the key's backoff."""


def settle(resource: Resource, result: Result, now: datetime) -> Settled:
    """Turn `result` into what to write of `resource`, the object with its old status. `now`: aware."""
    outcome = result.outcome
    if isinstance(outcome, Done):
        ready = Condition(READY, TRUE, outcome.reason, outcome.message)
        status = _status(resource, result.status.fields(), (ready, *result.details), now)
        occurrences = _recovery(resource, outcome)
    else:
        types = {*result.ended, *(condition.type for condition in result.details)}
        kept = tuple(condition for condition in _details(resource) if condition.type not in types)
        own = {**_own(resource), **result.status.fields()}
        passing = isinstance(outcome, Passing)
        summary = _under_way(resource, outcome.message) if passing else _summary_of(outcome)
        status = _status(resource, own, (*summary, *result.details, *kept), now)
        if passing:
            # Of a new object nothing is written until then.
            new = not Status.of(resource).conditions
            status = dict(resource.status) if new else _not_done(status, resource)
        occurrences = _failure(resource, outcome)
    after = replace(resource, status=status)
    events = tuple(event_of(after, occurrence, now) for occurrence in (*occurrences, *result.events))
    return Settled(status, events, result.requeue_after, retry=isinstance(outcome, Failed))


def progressing_status(resource: Resource, message: str, now: datetime) -> dict[str, Any]:
    """The status while a reconcile takes its time. Ready stays what it was, unless it was said of an older
    generation.
    """
    conditions = (*_under_way(resource, message), *_details(resource))
    return _not_done(_status(resource, _own(resource), conditions, now), resource)


def _under_way(resource: Resource, message: str) -> tuple[Condition, ...]:
    """Return the conditions with Ready unchanged, and Reconciling."""
    before = Status.of(resource)
    ready, current = before.condition(READY), before.observed_generation == resource.generation
    if not ready.status or not current:
        ready = Condition(READY, UNKNOWN, "Progressing", message)
    # That it failed before must not be lost: its recovery is an Event.
    again = before.failure and current
    return ready, Condition(RECONCILING, TRUE, "ProgressingWithRetry" if again else "Progressing", message)


def _not_done(status: dict[str, Any], resource: Resource) -> dict[str, Any]:
    """Neither this generation nor this request is done yet."""
    asked = ("observedGeneration", "lastHandledReconcileAt")
    status = {name: value for name, value in status.items() if name not in asked}
    return status | {name: resource.status[name] for name in asked if name in resource.status}


def _summary_of(setback: Setback) -> tuple[Condition, ...]:
    reason, message = setback.reason, setback.message
    ready = Condition(READY, FALSE, reason, message)
    if isinstance(setback, Stalled):
        return ready, Condition(STALLED, TRUE, reason, message)
    going = "Progressing" if isinstance(setback, Waiting) else "ProgressingWithRetry"
    return ready, Condition(RECONCILING, TRUE, going, message)


def _own(resource: Resource) -> dict[str, Any]:
    return {name: value for name, value in resource.status.items() if name not in _SHARED}


def _details(resource: Resource) -> tuple[Condition, ...]:
    return tuple(condition for condition in Status.of(resource).conditions if condition.type not in _SUMMARY)


def _status(
    resource: Resource, own: Mapping[str, Any], conditions: tuple[Condition, ...], now: datetime
) -> dict[str, Any]:
    before, moment = Status.of(resource), timestamp(now)
    status = {
        **clean({name: value for name, value in own.items() if value is not None}),
        "observedGeneration": resource.generation,
        "conditions": [
            clean(
                condition_json(
                    condition, before.condition(condition.type), generation=resource.generation, now=moment
                )
            )
            for condition in conditions
        ],
    }
    asked = resource.annotations.get(REQUESTED_AT, before.last_handled_reconcile_at)
    if asked is not None:
        status["lastHandledReconcileAt"] = asked
    return status


def _recovery(resource: Resource, outcome: Done) -> tuple[Occurrence, ...]:
    """Return an Event of recovery, after a reported failure."""
    return (Occurrence("Recovered", outcome.message),) if Status.of(resource).failure else ()


def _failure(resource: Resource, setback: Setback) -> tuple[Occurrence, ...]:
    """Return an Event for the first occurrence of a failure; none for waiting."""
    before = Status.of(resource).condition(READY)
    said = before.status == FALSE and (before.reason, before.message)
    if isinstance(setback, Waiting) or said == (setback.reason, cut(setback.message, MESSAGE_CHARACTERS)):
        return ()
    return (Occurrence(setback.reason, setback.message, warning=True),)
