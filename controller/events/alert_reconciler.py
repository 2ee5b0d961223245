"""Reconciler of FlagAlert: reports whether the alert is usable, and how its messages were delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api import flagprovider
from controller.api.flagalert import FlagAlertSpec, FlagAlertStatus
from controller.api.meta import ObjectKey, Resource
from controller.delivery.object_bounds import ALERTS, TOO_MANY_ALERTS
from controller.events.alert_selection import MOST_INSTRUCTIONS, MOST_REFERENCES
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import Setback, Stalled, Waiting

if TYPE_CHECKING:
    from datetime import datetime

    from controller.events.outbox import Outbox
    from controller.runtime.cache import Cache


_TOO_MANY: Final = (
    f"this alert is not used: a namespace may have {ALERTS.most} FlagAlerts, with {MOST_REFERENCES} "
    f"references to FlagProviders and {MOST_INSTRUCTIONS} instructions in expressions and globs, counted in "
    "the order of their age; delete alerts, or merge them"
)


@dataclass(frozen=True, slots=True)
class FlagAlertReconciler:
    """Writes the status of alerts: whether they are usable, and the outcomes of their messages."""

    objects: Cache
    outbox: Outbox

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Check the spec and the providers, and return the outcomes of the messages."""
        del now
        status = alert_status(resource, self.outbox)
        try:
            return Result(Done(self._use(resource)), status=status)
        except Setback as setback:
            return Result.of(setback, status=status)

    def _use(self, resource: Resource) -> str:
        """Return where alerts go. Raises Setback."""
        spec = spec_of(FlagAlertSpec, resource)
        if self.outbox.alerts.exceeds_limits(resource):
            raise Stalled(TOO_MANY_ALERTS, _TOO_MANY)
        keys = {name: ObjectKey(flagprovider.KIND, resource.namespace, name) for name in spec.providers}
        providers = {name: self.objects.get(key) for name, key in keys.items()}
        missing = ", ".join(name for name, provider in providers.items() if provider is None)
        if missing:
            sent = "others are sent alerts" if len(providers) > 1 else "no alert is sent"
            raise Waiting("ProviderNotFound", f"FlagProvider {missing} not found; {sent}")
        suspended = ", ".join(name for name, provider in providers.items() if provider and provider.suspended)
        if suspended:
            return f"FlagProvider {suspended} is suspended; no alert is sent"
        return f"alerts go to FlagProvider {', '.join(providers)}"

    def forget(self, key: ObjectKey) -> None:
        """Forget the outcomes of its messages."""
        self.outbox.forget_alert(key)


def alert_status(resource: Resource, outbox: Outbox) -> FlagAlertStatus:
    """Return the outcomes of an alert's messages as fields of its status; None for empty ones."""
    before = FlagAlertStatus.of(resource)
    deliveries, failures, waiting = [before.last_delivery], [before.last_failure], 0
    used = outbox.alerts.alerts_in(resource.namespace).get(resource.name)
    for key in () if used is None else used.providers:
        box = outbox.box(key)
        if box is None:
            continue
        waiting += sum(message.alert == resource.name for message in box.pending.values())
        outcomes = box.of_alerts.get(resource.name)
        if outcomes is None:
            continue
        deliveries.append(outcomes.last_delivery)
        if (failed := outcomes.last_failure) is not None:
            words = f"FlagProvider {key.name}: {failed.message}"
            failures.append(failed.model_copy(update={"message": words}))
    return FlagAlertStatus(
        waiting=waiting,
        last_delivery=max(filter(None, deliveries), default=None),
        last_failure=max(filter(None, failures), key=lambda failure: failure.time, default=None),
    )
