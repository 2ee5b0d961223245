"""FeatureFlagSource and InProcessConfiguration: judged as if a pod of their namespace named them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.api import featureflagsource
from controller.injection import names
from controller.injection.adding.containers import warnings
from controller.injection.making import in_process
from controller.injection.options import SERVED, Refused
from controller.injection.reading.wanted import read
from controller.runtime.reconciling.result import Done, Result
from controller.runtime.reconciling.setbacks import Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.injection.options import Known, Options


@dataclass(frozen=True, slots=True)
class SettingsReconciler:
    """Judges by the function that injects; changes nothing but status."""

    known: Known
    options: Options

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """What is refused stalls with its words; a flag set that is not there is waited for."""
        del now
        try:
            return Result(self._judged(resource))
        except Refused as refusal:
            return Result(Stalled("InvalidSpec", str(refusal)))
        except Setback as setback:
            return Result(setback)

    def forget(self, key: ObjectKey) -> None:
        """Nothing is kept of it."""

    def _judged(self, resource: Resource) -> Done:
        """Raises Refused and Waiting."""
        if resource.key.kind == featureflagsource.KIND:
            selectors, warnings = self._source(resource)
        else:
            selectors, warnings = self._in_process(resource)
        missing = [each for each in selectors if not self._there(each)]
        if missing:
            raise Waiting("FlagSetNotFound", f"there is no flag set {', '.join(missing)}")
        followed = f"follows {', '.join(selectors)}" if selectors else "follows what is not of this cluster"
        return Done("; ".join((followed, *warnings)))

    def _source(self, resource: Resource) -> tuple[list[str], Iterable[str]]:
        """(the flag sets of the cluster that are followed, warnings)."""
        annotations = {names.SOURCES: resource.name}
        wanted = read(annotations, resource.namespace, self.options, self.known)
        selectors = [each["selector"] for each in wanted.follows if "provider" not in each]
        selectors += [f"{each.namespace}/{each.name}" for each in wanted.files]
        return selectors, warnings(wanted)

    def _in_process(self, resource: Resource) -> tuple[list[str], Iterable[str]]:
        annotations = {names.IN_PROCESS: resource.name}
        made = in_process.provided(annotations, resource.namespace, self.options, self.known)
        return [made.selector] if made.selector else [], made.warnings

    def _there(self, selector: str) -> bool:
        namespace, _, name = selector.partition("/")
        try:
            self.known.flag_set(namespace, name, SERVED)
        except Refused:
            return False
        return True
