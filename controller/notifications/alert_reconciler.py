"""FlagAlert: says whether it can be used; what it chooses is decided at each Event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import provider
from controller.api.fields import InvalidSpecError
from controller.api.meta import ObjectKey
from controller.notifications.matching import usable
from controller.runtime.result import Done, Result
from controller.runtime.setbacks import Stalled, Waiting

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache


@dataclass(frozen=True, slots=True)
class FlagAlertReconciler:
    """Keeps nothing but conditions."""

    objects: Cache

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Read the spec, and look for the provider."""
        del now
        try:
            spec = usable(resource)
        except InvalidSpecError as error:
            raise Stalled("InvalidSpec", str(error)) from error
        name = spec.provider_ref.name
        found = self.objects.get(ObjectKey(provider.KIND, resource.namespace, name))
        if found is None:
            raise Waiting("ProviderNotFound", f"FlagProvider {name} not found; no alert is sent")
        if found.suspended:
            return Result(Done(f"FlagProvider {name} is suspended; no alert is sent"))
        return Result(Done(f"alerts go to FlagProvider {name}"))

    def forget(self, key: ObjectKey) -> None:
        """Nothing is kept."""
