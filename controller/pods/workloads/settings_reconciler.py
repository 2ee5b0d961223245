"""Reconciler of FeatureFlagSource and InProcessConfiguration: checks them as for a pod of their namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api.openfeature import featureflagsource
from controller.pods.injection.evaluator_container import warnings
from controller.pods.injection.in_process import make_in_process
from controller.pods.settings import well_known
from controller.pods.settings.installation import SERVED, Refused
from controller.pods.settings.pod_settings import read
from controller.runtime.reconciling.result import Done, Result
from controller.runtime.reconciling.setbacks import Setback, Stalled, Waiting

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.pods.settings.installation import Known, Options


@dataclass(frozen=True, slots=True)
class SettingsReconciler:
    """Checks the objects with the function that injects; writes only their status."""

    known: Known
    options: Options

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Stall with the message of a refusal; wait for a missing flag set."""
        del now
        try:
            return Result(self._judge(resource))
        except Refused as refusal:
            return Result(Stalled("InvalidSpec", str(refusal)))
        except Setback as setback:
            return Result(setback)

    def forget(self, key: ObjectKey) -> None:
        """Do nothing: there is no state."""

    def _judge(self, resource: Resource) -> Done:
        """Raises Refused and Waiting."""
        namespace = resource.namespace
        if resource.key.kind == featureflagsource.KIND:
            wanted = read({well_known.SOURCES: resource.name}, namespace, self.options, self.known)
            warned = warnings(wanted)
            selectors = [source["selector"] for source in wanted.follows if "provider" not in source]
            selectors += [f"{file.namespace}/{file.name}" for file in wanted.files]
        else:
            asks = {well_known.IN_PROCESS: resource.name}
            addition, selector = make_in_process(asks, namespace, self.options, self.known)
            warned, selectors = addition.warnings, [selector] if selector else []
        missing = [selector for selector in selectors if not self._there(selector)]
        if missing:
            raise Waiting("FlagSetNotFound", f"there is no flag set {', '.join(missing)}")
        followed = f"follows {', '.join(selectors)}" if selectors else "follows what is not of this cluster"
        return Done("; ".join((followed, *warned)))

    def _there(self, selector: str) -> bool:
        namespace, _, name = selector.partition("/")
        try:
            self.known.flag_set(namespace, name, SERVED)
        except Refused:
            return False
        return True
