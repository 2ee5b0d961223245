"""Reports who serves an object, by the FlagReceipts of live proxies: status, a condition and Events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.api import flagreceipt
from controller.api.featureflagconfiguration import ConfigurationStatus, LaggardStatus
from controller.api.flagreceipt import FlagReceiptStatus, Laggard
from controller.api.meta import ObjectKey, Resource
from controller.api.status import FALSE, LAST_GOOD_SAVED, PROPAGATED, TRUE, UNKNOWN, Condition
from controller.runtime.event import Occurrence
from evaluator.host.times import duration_text, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.delivery.fleet_members import Count
    from controller.runtime.cache import Cache

SERVED: Final = "Served"
PROGRESSING: Final = "Progressing"
LAGGING: Final = "Lagging"
NOBODY: Final = "NobodySubscribed"
NOT_SAVED: Final = "NotSaved"
LAST_GOOD_NOT_SAVED: Final = "LastGoodNotSaved"
"""The reason of an Event."""
"""Reasons."""
SETTLE_SECONDS: Final = 15.0
"""Seconds after which an evaluator that does not follow lags."""
MOST_LAGGARDS: Final = 20
_NAMED: Final = 5
"""Laggards that a message names."""
PACE: Final = 1.0
"""Seconds between two writes of who serves an object."""
BYTES_PER_SECOND: Final = 100_000
"""A status is written together with its spec: that of a megabyte every ten seconds."""


NOBODY_REPORTS: Final = ConfigurationStatus(
    served=None, total=None, delivered=None, served_within=None, laggards=None
)
"""A status without any of the fields that this module sets."""


@dataclass(frozen=True, slots=True)
class ObjectPropagation:
    """Who serves an object, in the form of its status."""

    status: ConfigurationStatus = NOBODY_REPORTS
    """The status fields; each is None if there is nothing to report."""
    details: tuple[Condition, ...] = ()
    """PROPAGATED, and LAST_GOOD_SAVED where that is False; empty where no proxy reports on the object."""
    again: float | None = field(default=None, compare=False)
    """Seconds until time alone changes it, or until it may be written."""


def propagation_of(status: ConfigurationStatus) -> ObjectPropagation:
    """What a status says now."""
    fields = {name: getattr(status, name) for name in NOBODY_REPORTS.model_fields_set}
    return ObjectPropagation(
        NOBODY_REPORTS.model_copy(update=fields),
        (*status.conditions_of(PROPAGATED), *status.conditions_of(LAST_GOOD_SAVED)),
    )


def pace(spec_bytes: int) -> float:
    """Seconds between two writes, of an object with a spec of that size."""
    return max(PACE, spec_bytes / BYTES_PER_SECOND)


def receipts(resource: Resource, objects: Cache, proxies: Iterable[str]) -> list[FlagReceiptStatus]:
    """What `proxies`, by identity, report on this very object."""
    keys = (
        ObjectKey(flagreceipt.KIND, resource.namespace, flagreceipt.receipt_name(resource.name, proxy))
        for proxy in proxies
    )
    resources = filter(None, map(objects.get, keys))
    return [FlagReceiptStatus.of(receipt) for receipt in resources if receipt.is_owned_by(resource)]


def propagation(count: Count, what: str, before: ConfigurationStatus, now: datetime) -> ObjectPropagation:
    """`what` is the revision, or the digest, that `count` is about; `before` the status until now."""
    status = ConfigurationStatus(
        served=f"{count.served}/{count.total}",
        total=count.total,
        delivered=count.delivered or None,
        served_within=None if count.slowest is None else duration_text(max(0.001, count.slowest)),
        laggards=tuple(_laggard(laggard) for laggard in count.laggards[:MOST_LAGGARDS]) or None,
    )
    if not count.total:
        message = "no evaluator that sends receipts is subscribed"
        return ObjectPropagation(status, (Condition(PROPAGATED, UNKNOWN, NOBODY, message),))
    unsaved = _unsaved_conditions(count)
    message = f"{count.served} of {count.total} evaluators serve {what}"
    if not count.lagging:
        return ObjectPropagation(status, (Condition(PROPAGATED, TRUE, SERVED, message), *unsaved))
    left = _patience_left(before, now)
    if left > 0 and not count.silent:
        message = f"{message}; {count.lagging} still updating"
        return ObjectPropagation(status, (Condition(PROPAGATED, FALSE, PROGRESSING, message), *unsaved), left)
    message = f"{message}; {_who(count)}"
    return ObjectPropagation(status, (Condition(PROPAGATED, FALSE, LAGGING, message), *unsaved))


def propagation_events(
    before: ConfigurationStatus, status: ConfigurationStatus, details: Iterable[Condition], reported: str
) -> tuple[Occurrence, ...]:
    """Events about the propagation of a content, from the status `before` to `status` and `details`: that all
    pods serve it, once for each digest (`reported`: the last one that had this Event), that some lag, until
    none does, and that some cannot save it, until all can.
    """
    details = tuple(details)
    return (*_following_events(before, status, details, reported), *_saving_events(before, details))


def _saving_events(before: ConfigurationStatus, details: Iterable[Condition]) -> Iterator[Occurrence]:
    was_unsaved = before.condition(LAST_GOOD_SAVED).status == FALSE
    now = next((detail for detail in details if detail.type == LAST_GOOD_SAVED), None)
    if now is not None and not was_unsaved:
        yield Occurrence(LAST_GOOD_NOT_SAVED, now.message, warning=True)
    elif now is None and was_unsaved:
        yield Occurrence(LAST_GOOD_NOT_SAVED, "all evaluators save their last good flags again", ends=True)


def _following_events(
    before: ConfigurationStatus, status: ConfigurationStatus, details: Iterable[Condition], reported: str
) -> tuple[Occurrence, ...]:
    lagged = before.condition(PROPAGATED).reason == LAGGING
    now = next((detail for detail in details if detail.type == PROPAGATED), None)
    if now is None or now.reason == NOBODY:
        message = "no proxy reports who serves it" if now is None else now.message
        return (Occurrence(NOBODY, message, ends=True),) if lagged else ()
    if now.reason == LAGGING:
        return (
            ()
            if lagged and before.digest == status.digest
            else (Occurrence(LAGGING, now.message, warning=True),)
        )
    if now.reason == SERVED and (lagged or reported != (status.digest or "")):
        times = f" within {status.served_within}" if status.served_within else ""
        return (Occurrence(PROPAGATED, f"{now.message}{times}", ends=lagged),)
    return ()


def _unsaved_conditions(count: Count) -> tuple[Condition, ...]:
    if not count.unsaved:
        return ()
    named = [f"{member.name} ({member.message})" for member in count.unsaved_members[:_NAMED]]
    rest = count.unsaved - len(named)
    named += [f"{rest} more"] if rest else []
    message = f"a restart may bring back older flags in {', '.join(named)}; make room on their state volumes"
    return (Condition(LAST_GOOD_SAVED, FALSE, NOT_SAVED, message),)


def _laggard(member: Laggard) -> LaggardStatus:
    return LaggardStatus(
        name=member.name,
        node=member.node or None,
        serves=member.serves or None,
        since=member.since or None,
        silent=member.silent,
        claimed=member.claimed,
        reason=member.reason or None,
    )


def _patience_left(before: ConfigurationStatus, now: datetime) -> float:
    known = before.condition(PROPAGATED)
    if known.status != FALSE:
        return SETTLE_SECONDS
    if known.reason == LAGGING:
        return 0.0
    since = parse_time(known.since)
    if since is None:
        return SETTLE_SECONDS
    # The condition's time has whole seconds.
    left = (since + timedelta(seconds=SETTLE_SECONDS + 1) - now).total_seconds()
    # Clocks of replicas differ; one that was set back is no reason to wait until it is there again.
    return left if left <= 2 * SETTLE_SECONDS else 0.0


def _who(count: Count) -> str:
    named = [_describe(laggard) for laggard in count.laggards[:_NAMED]]
    rest = count.lagging - len(named)
    if rest:
        named.append(f"{rest} more" if named else f"{rest} do not, at proxies that do not name them yet")
    return ", ".join(named)


def _describe(laggard: Laggard) -> str:
    """`shop/checkout-1 (silent, last served main@sha1:…)`."""
    serves = laggard.serves or "nothing"
    if laggard.silent:
        return f"{laggard.name} (silent, last served {serves})"
    if laggard.reason:
        return f"{laggard.name} (keeps {serves}: {laggard.reason})"
    return f"{laggard.name} (serves {serves})"
