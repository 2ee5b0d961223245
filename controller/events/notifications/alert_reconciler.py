"""Reconciler of FlagAlert: reports whether the alert is usable, and how its messages were delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import provider
from controller.api.alert import FlagAlertSpec
from controller.api.objects.meta import ObjectKey
from controller.runtime.reconciling.result import Done, Result, spec_of
from controller.runtime.reconciling.setbacks import Setback, Waiting

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.objects.meta import Resource
    from controller.events.notifications.outbox import Outbox
    from controller.runtime.objects.cache import Cache


@dataclass(frozen=True, slots=True)
class FlagAlertReconciler:
    """Writes the status of alerts: whether they are usable, and the outcomes of their messages."""

    objects: Cache
    outbox: Outbox

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Check the spec and the providers, and return the outcomes of the messages."""
        del now
        status = self.outbox.of_alert(resource)
        try:
            return Result(Done(self._use(resource)), status=status)
        except Setback as setback:
            return Result.of(setback, status=status)

    def _use(self, resource: Resource) -> str:
        """Return where alerts go. Raises Setback."""
        spec = spec_of(FlagAlertSpec, resource)
        keys = {name: ObjectKey(provider.KIND, resource.namespace, name) for name in spec.providers}
        found = {name: self.objects.get(key) for name, key in keys.items()}
        lacking = ", ".join(name for name, each in found.items() if each is None)
        if lacking:
            others = "others" if len(found) > 1 else "no alert"
            sent = "are sent alerts" if len(found) > 1 else "is sent"
            raise Waiting("ProviderNotFound", f"FlagProvider {lacking} not found; {others} {sent}")
        asleep = ", ".join(name for name, each in found.items() if each is not None and each.suspended)
        if asleep:
            return f"FlagProvider {asleep} is suspended; no alert is sent"
        return f"alerts go to FlagProvider {', '.join(found)}"

    def forget(self, key: ObjectKey) -> None:
        """Forget the outcomes of its messages."""
        self.outbox.forget_alert(key)
