"""Turns a count of who serves what into status: SERVED, laggards by name, the latency. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.conditions import FALSE, PROPAGATED, TRUE, UNKNOWN, Condition, find
from controller.runtime.events import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.receipt import Laggard
    from controller.delivery.members import Count

SERVED, PROGRESSING, LAGGING, NOBODY = "Served", "Progressing", "Lagging", "NobodySubscribed"
"""Reasons."""
FIELDS: Final = ("served", "total", "delivered", "latency", "laggards")
"""Of the status: all that this module sets."""
PATIENCE: Final = 15.0
"""Seconds after which an evaluator that does not follow lags."""
MOST_LAGGARDS: Final = 20
_NAMED: Final = 5
"""Laggards that a message names."""


@dataclass(frozen=True, slots=True)
class Propagation:
    """How far a content has come."""

    status: dict[str, Any]
    """FIELDS, as far as there is something to report."""
    condition: Condition
    again: float | None = None
    """Seconds until time alone makes something else of it."""


def propagation(count: Count, what: str, before: Mapping[str, Any], now: datetime) -> Propagation:
    """`what` is the revision, or the digest, that `count` is about; `before` the status until now."""
    status: dict[str, Any] = {"served": f"{count.served}/{count.total}", "total": count.total}
    if count.delivered:
        status["delivered"] = count.delivered
    if count.p50 and count.p99:
        status["latency"] = {"p50": count.p50, "p99": count.p99}
    if count.laggards:
        status["laggards"] = [_laggard(each) for each in count.laggards[:MOST_LAGGARDS]]
    if not count.total:
        message = "no evaluator that sends receipts is subscribed"
        return Propagation(status, Condition(PROPAGATED, UNKNOWN, NOBODY, message))
    message = f"{count.served} of {count.total} evaluators serve {what}"
    if not count.lagging:
        return Propagation(status, Condition(PROPAGATED, TRUE, SERVED, message))
    left = _patience_left(before, now)
    if left > 0 and not count.silent:
        message = f"{message}; {count.lagging} to follow"
        return Propagation(status, Condition(PROPAGATED, FALSE, PROGRESSING, message), left)
    message = f"{message}; {_who(count)}"
    return Propagation(status, Condition(PROPAGATED, FALSE, LAGGING, message))


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


def _laggard(each: Laggard) -> dict[str, Any]:
    fields = {
        "name": each.name,
        "node": each.node,
        "serves": each.serves,
        "since": each.since,
        "silent": each.silent,
        "claimed": each.claimed,
    }
    return {name: value for name, value in fields.items() if value}


def _who(count: Count) -> str:
    named = [described(each) for each in count.laggards[:_NAMED]]
    rest = count.lagging - len(named)
    if rest:
        named.append(f"{rest} more" if named else f"{rest} do not, at proxies that do not name them yet")
    return ", ".join(named)


def described(laggard: Laggard) -> str:
    """`shop/checkout-1 (silent, last served main@sha1:…)`."""
    serves = laggard.serves or "nothing"
    if laggard.silent:
        return f"{laggard.name} (silent, last served {serves})"
    return f"{laggard.name} (serves {serves})"
