"""Who serves an object, by the FlagReceipts of living proxies: fields of its status, a condition and Events.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from controller.api import receipt
from controller.api.conditions import FALSE, PROPAGATED, TRUE, UNKNOWN, Condition, find, read
from controller.api.meta import ObjectKey
from controller.api.receipt import FlagReceiptStatus
from controller.runtime.events import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.meta import Resource
    from controller.api.receipt import Laggard
    from controller.delivery.members import Count
    from controller.runtime.objects.cache import Cache

SERVED, PROGRESSING, LAGGING, NOBODY = "Served", "Progressing", "Lagging", "NobodySubscribed"
"""Reasons."""
FIELDS: Final = ("served", "total", "delivered", "latency", "laggards")
"""Of the status: all that this module sets."""
PATIENCE: Final = 15.0
"""Seconds after which an evaluator that does not follow lags."""
MOST_LAGGARDS: Final = 20
_NAMED: Final = 5
"""Laggards that a message names."""
PACE: Final = 1.0
"""Seconds between two writes of who serves an object."""
BYTES_PER_SECOND: Final = 100_000
"""A status is written together with its spec: that of a megabyte every ten seconds."""


@dataclass(frozen=True, slots=True)
class Propagation:
    """Who serves an object, as its status says it."""

    status: Mapping[str, Any] = field(default_factory=dict)
    """FIELDS, as far as there is something to report."""
    details: tuple[Condition, ...] = ()
    """PROPAGATED; empty where no proxy reports on the object."""
    again: float | None = field(default=None, compare=False)
    """Seconds until time alone changes it, or until it may be written."""


def written(status: Mapping[str, Any]) -> Propagation:
    """What a status says now."""
    known = find(status, PROPAGATED)
    fields = {name: status[name] for name in FIELDS if name in status}
    return Propagation(fields, () if known is None else (read(known),))


def pace(spec_bytes: int) -> float:
    """Seconds between two writes, of an object with a spec of that size."""
    return max(PACE, spec_bytes / BYTES_PER_SECOND)


def receipts(resource: Resource, objects: Cache, proxies: Iterable[str]) -> list[FlagReceiptStatus]:
    """What `proxies`, by identity, report on this very object."""
    found = []
    for proxy in proxies:
        name = receipt.receipt_name(resource.name, proxy)
        each = objects.get(ObjectKey(receipt.KIND, resource.namespace, name))
        if each is None or not any(one.get("uid") == resource.uid for one in each.owners):
            continue
        try:
            found.append(FlagReceiptStatus.model_validate(each.status))
        except ValidationError:
            # Only proxies write these; what cannot be read counts for nothing.
            continue
    return found


def propagation(count: Count, what: str, before: Mapping[str, Any], now: datetime) -> Propagation:
    """`what` is the revision, or the digest, that `count` is about; `before` the status until now."""
    status: dict[str, Any] = {"served": f"{count.served}/{count.total}", "total": count.total}
    if count.delivered:
        status["delivered"] = count.delivered
    if count.p50 and count.p99:
        status["latency"] = {"p50": count.p50, "p99": count.p99}
    if count.laggards:
        status["laggards"] = [
            each.model_dump(by_alias=True, exclude={"id"}, exclude_defaults=True)
            for each in count.laggards[:MOST_LAGGARDS]
        ]
    if not count.total:
        message = "no evaluator that sends receipts is subscribed"
        return Propagation(status, (Condition(PROPAGATED, UNKNOWN, NOBODY, message),))
    message = f"{count.served} of {count.total} evaluators serve {what}"
    if not count.lagging:
        return Propagation(status, (Condition(PROPAGATED, TRUE, SERVED, message),))
    left = _patience_left(before, now)
    if left > 0 and not count.silent:
        message = f"{message}; {count.lagging} to follow"
        return Propagation(status, (Condition(PROPAGATED, FALSE, PROGRESSING, message),), left)
    message = f"{message}; {_who(count)}"
    return Propagation(status, (Condition(PROPAGATED, FALSE, LAGGING, message),))


def propagation_events(
    before: Mapping[str, Any], status: Mapping[str, Any], details: Iterable[Condition], reported: str
) -> tuple[Occurrence, ...]:
    """Events about the propagation of a content, from the status `before` to `status` and `details`: that all
    pods serve it, once for each digest (`reported`: the last one that had this Event), and that some lag,
    until none does.
    """
    known = find(before, PROPAGATED) or {}
    lagged = known.get("reason") == LAGGING
    same = before.get("digest", "") == status.get("digest", "")
    now = next((each for each in details if each.type == PROPAGATED), None)
    if now is None or now.reason == NOBODY:
        message = "no proxy reports who serves it" if now is None else now.message
        return (Occurrence(NOBODY, message, ends=True),) if lagged else ()
    if now.reason == LAGGING:
        return () if lagged and same else (Occurrence(LAGGING, now.message, warning=True),)
    if now.reason == SERVED and (lagged or reported != status.get("digest", "")):
        latency = status.get("latency") or {}
        times = f"; p50 {latency['p50']}, p99 {latency['p99']}" if latency else ""
        return (Occurrence(PROPAGATED, f"{now.message}{times}", ends=lagged),)
    return ()


def _patience_left(before: Mapping[str, Any], now: datetime) -> float:
    known = find(before, PROPAGATED)
    if known is None or known.get("status") != FALSE:
        return PATIENCE
    if known.get("reason") == LAGGING:
        return 0.0
    try:
        since = datetime.fromisoformat(str(known.get("lastTransitionTime")))
    except ValueError:
        return PATIENCE
    # The condition's time has whole seconds.
    left = (since + timedelta(seconds=PATIENCE + 1) - now).total_seconds()
    # Clocks of replicas differ; one that was set back is no reason to wait until it is there again.
    return left if left <= 2 * PATIENCE else 0.0


def _who(count: Count) -> str:
    named = [_described(each) for each in count.laggards[:_NAMED]]
    rest = count.lagging - len(named)
    if rest:
        named.append(f"{rest} more" if named else f"{rest} do not, at proxies that do not name them yet")
    return ", ".join(named)


def _described(laggard: Laggard) -> str:
    """`shop/checkout-1 (silent, last served main@sha1:…)`."""
    serves = laggard.serves or "nothing"
    if laggard.silent:
        return f"{laggard.name} (silent, last served {serves})"
    return f"{laggard.name} (serves {serves})"
