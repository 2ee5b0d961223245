"""What one caller may see of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.api import flagset
from controller.api.kinds import FEATURE_FLAG, FEATURE_FLAG_CONFIGURATION
from controller.api.objects.meta import NOTHING, ObjectKey
from controller.app.page import flag_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.objects.meta import Resource
    from controller.app.page.cluster_objects import ClusterObjects
    from controller.app.page.shown_sets import KnownStates, ShownSets
    from controller.delivery.state.set_state import SetState
    from controller.delivery.state.wait_model import Wait
    from controller.page.delivery.proxy_members import FleetMember
    from controller.page.delivery.shown_events import ShownEvent
    from controller.page.page_source import FlagHistory, ShownSet, VariantRates

_KINDS: Final = (FEATURE_FLAG_CONFIGURATION.kind, FEATURE_FLAG.kind)
"""What holds flags; of two objects with one name the first is served."""

MOST_ENVIRONMENTS: Final = 8
"""Most sets in which a flag is compared."""


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Implements PageSource."""

    cluster: ClusterObjects
    shown: ShownSets
    namespaces: frozenset[str] | None = None
    """Those that the caller may see; None: all."""
    fleet: Mapping[str, Sequence[FleetMember]] = field(default_factory=lambda: NOTHING)
    """Evaluators of all namespaces, by the object that they follow."""
    known_faults: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Another one after each change that the caller may see, and in each process."""
        return self.cluster.version(self.namespaces)

    def sets(self) -> Sequence[str]:
        """NAMESPACE/NAME of each object with flags."""
        return sorted(
            {
                f"{resource.namespace}/{resource.name}"
                for kind in _KINDS
                for resource in self.cluster.objects.of_kind(kind)
                if self._may_see(resource.namespace)
            }
        )

    def shown_set(self, name: str) -> ShownSet | None:
        """The flag set of an object."""
        resource = self._resource(name)
        if resource is None:
            return None
        state = next((state for state in self.states() if state.key == resource.key), None)
        if state is None:
            return None
        events = self._events_about(resource)
        return self.shown.of(resource, state, partial(flag_events.last_changes, events))

    def environments(self, name: str, key: str) -> Sequence[ShownSet]:
        """The sets that FlagSets of the same source make, MOST_ENVIRONMENTS at most."""
        resource = self._resource(name)
        writer = None if resource is None else self.cluster.objects.get(flagset.writer_key(resource))
        source = None if writer is None else flagset.source_key(writer)
        if writer is None or source is None:
            return ()
        siblings = self.cluster.objects.of_kind(flagset.KIND, writer.namespace)
        names = sorted(
            f"{sibling.namespace}/{flagset.target_name(sibling)}"
            for sibling in siblings
            if flagset.source_key(sibling) == source
        )
        sets = (self.shown_set(other) for other in names[:MOST_ENVIRONMENTS])
        having = [shown for shown in sets if shown is not None and key in shown.flag_set.flags]
        return having if len(having) > 1 else ()

    def history(self, name: str, key: str) -> FlagHistory:
        """The changes of a flag that Events list."""
        resource = self._resource(name)
        return flag_events.history(() if resource is None else self._events_about(resource), key)

    def rates(self, name: str, keys: Sequence[str]) -> Mapping[str, VariantRates]:
        """Evaluators report theirs to Prometheus alone."""
        del name, keys
        return {}

    def states(self) -> Sequence[SetState]:
        """The state of each set that the caller may see."""
        return self._read().states

    def other_waits(self) -> Sequence[Wait]:
        """What objects wait for that are about no set, as far as the caller may see them."""
        return self._read().other_waits

    def _read(self) -> KnownStates:
        return self.shown.states(self.namespaces, self.version)

    def events(self) -> Sequence[ShownEvent]:
        """The Events that the caller may see."""
        return self.cluster.events(self.namespaces)

    def members(self) -> Mapping[str, Sequence[FleetMember]]:
        """The evaluators of objects that the caller may see."""
        return {
            place: members for place, members in self.fleet.items() if self._may_see(place.partition("/")[0])
        }

    def faults(self) -> Sequence[str]:
        """What cannot be read of the cluster."""
        return self.known_faults

    def _may_see(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def _resource(self, name: str) -> Resource | None:
        namespace, _, rest = name.partition("/")
        if not self._may_see(namespace):
            return None
        resources = (self.cluster.objects.get(ObjectKey(kind, namespace, rest)) for kind in _KINDS)
        return next(filter(None, resources), None)

    def _events_about(self, resource: Resource) -> list[ShownEvent]:
        """The Events of the FlagSet that writes an object, the newest first."""
        key = flagset.writer_key(resource)
        return [event for event in self.events() if event.about == str(key)]
