"""From what a reconcile came to, to the status that is written, the Events that are said and the next look.
Pure.

The only place that decides on `Ready`, `Reconciling` and `Stalled`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.conditions import (
    FALSE,
    READY,
    RECONCILING,
    STALLED,
    TRUE,
    UNKNOWN,
    Condition,
    find,
    read,
    short,
    written,
)
from controller.api.meta import NOTHING, REQUESTED_AT
from controller.runtime.news import News
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.api.meta import Resource

_SHARED: Final = frozenset({"conditions", "observedGeneration", "lastHandledReconcileAt"})
"""Status fields that stand in every kind and are settled here."""
_SUMMARY: Final = (READY, RECONCILING, STALLED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A reconcile that did what it should."""

    message: str
    """Of `Ready`."""
    reason: str = "Succeeded"
    status: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    """All fields of the kind's own status: one that is missing here, or None, is removed."""
    details: tuple[Condition, ...] = ()
    """All detail conditions of the kind."""
    news: tuple[News, ...] = ()
    """What changed, as the difference to the status before: the same reconcile again has none."""
    requeue_after: float | None = None
    """Seconds to the next look; None: only when something changes."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What to do after a reconcile."""

    status: dict[str, Any]
    """Whole. Equal to the old one where nothing is to be written."""
    news: tuple[News, ...]
    requeue_after: float | None
    retry: bool
    """True: look again after the key's backoff."""


def settle(resource: Resource, result: Outcome | Setback, now: datetime) -> Settled:
    """Sum `result` up. `now`: aware."""
    if isinstance(result, Outcome):
        ready = Condition(READY, TRUE, result.reason, result.message)
        status = _status(resource, result.status, (ready, *result.details), now)
        news = (*_recovery(resource, result), *result.news)
        return Settled(status, news, result.requeue_after, retry=False)
    own = {name: value for name, value in resource.status.items() if name not in _SHARED}
    own.update(result.status)
    found = {*result.ended, *(each.type for each in result.details)}
    kept = tuple(each for each in _details(resource) if each.type not in found)
    summary = _summary_of(result)
    status = _status(resource, own, (*summary, *result.details, *kept), now)
    news = (*_failure(resource, result), *result.news)
    return Settled(status, news, result.requeue_after, retry=isinstance(result, Failed))


def progressing(resource: Resource, message: str, now: datetime) -> dict[str, Any]:
    """The status while a reconcile takes its time. Ready stays what it was, unless it was said of an older
    generation.
    """
    before = find(resource.status.get("conditions", ()), READY)
    current = resource.status.get("observedGeneration") == resource.generation
    if before is not None and current:
        ready = Condition(READY, before["status"], before["reason"], before.get("message", ""))
    else:
        ready = Condition(READY, UNKNOWN, "Progressing", message)
    # That it failed before must not be lost: what works again is news.
    again = _failing(resource) and current
    going = "ProgressingWithRetry" if again else "Progressing"
    working = Condition(RECONCILING, TRUE, going, message)
    own = {name: value for name, value in resource.status.items() if name not in _SHARED}
    status = _status(resource, own, (ready, working, *_details(resource)), now)
    # Neither this generation nor this request is done yet.
    for name in ("observedGeneration", "lastHandledReconcileAt"):
        status.pop(name, None)
        if name in resource.status:
            status[name] = resource.status[name]
    return status


def _summary_of(setback: Setback) -> tuple[Condition, ...]:
    reason, message = setback.reason, setback.message
    ready = Condition(READY, FALSE, reason, message)
    if isinstance(setback, Stalled):
        return ready, Condition(STALLED, TRUE, reason, message)
    going = "Progressing" if isinstance(setback, Waiting) else "ProgressingWithRetry"
    return ready, Condition(RECONCILING, TRUE, going, message)


def _details(resource: Resource) -> tuple[Condition, ...]:
    return tuple(
        read(each) for each in resource.status.get("conditions", ()) if each.get("type") not in _SUMMARY
    )


def _status(
    resource: Resource,
    own: Mapping[str, Any],
    conditions: tuple[Condition, ...],
    now: datetime,
) -> dict[str, Any]:
    before = resource.status.get("conditions", ())
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {
        **{name: value for name, value in own.items() if value is not None},
        "observedGeneration": resource.generation,
        "conditions": [
            written(each, find(before, each.type), generation=resource.generation, now=moment)
            for each in conditions
        ],
    }
    asked = resource.annotations.get(REQUESTED_AT, resource.status.get("lastHandledReconcileAt"))
    if asked is not None:
        status["lastHandledReconcileAt"] = asked
    return status


def _recovery(resource: Resource, outcome: Outcome) -> tuple[News, ...]:
    """A word about what works again, after a word about what did not."""
    return (News("Recovered", outcome.message),) if _failing(resource) else ()


def _failing(resource: Resource) -> bool:
    """Whether something was said to have gone wrong; to wait is nothing wrong."""
    before = find(resource.status.get("conditions", ()), READY)
    going = find(resource.status.get("conditions", ()), RECONCILING)
    waiting = going is not None and going.get("reason") == "Progressing"
    return before is not None and before.get("status") == FALSE and not waiting


def _failure(resource: Resource, setback: Setback) -> tuple[News, ...]:
    """A failure is news the first time; one that waits is none."""
    before = find(resource.status.get("conditions", ()), READY)
    known = before is not None and before.get("status") == FALSE
    said = known and before is not None and (before["reason"], before["message"])
    if isinstance(setback, Waiting) or said == (setback.reason, short(setback.message)):
        return ()
    return (News(setback.reason, setback.message, warning=True),)
