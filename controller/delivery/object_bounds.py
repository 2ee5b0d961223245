"""How many objects count together: the oldest up to a bound, so that no product of objects grows without end.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from controller.api import (
    featureflagconfiguration,
    flagalert,
    flaggrant,
    flagoverride,
    flagreceiver,
    flagrollout,
)
from controller.api.kinds import ORDERED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from controller.api.meta import ObjectKey, Resource


@dataclass(frozen=True, slots=True)
class ObjectBound:
    """How many objects count of one group."""

    kinds: tuple[str, ...]
    group: str
    """What the objects of a group have in common."""
    most: int
    reason: str
    """Why one beyond the bound is Stalled; empty for a kind without a status."""

    def oldest(self, group: Iterable[Resource]) -> list[Resource]:
        """Return the objects of a group that count: the oldest, by name where they are of one second."""
        return nsmallest(self.most, group, key=age)

    def front(self, group: Iterable[Resource]) -> list[Resource]:
        """Return the objects that count, and the first that does not where there are more."""
        return nsmallest(self.most + 1, group, key=age)

    def is_behind(self, resource: Resource, front: Sequence[Resource]) -> bool:
        """Whether an object is beyond the bound of the group with this front."""
        return len(front) > self.most and age(resource) > age(front[self.most - 1])

    def excludes(self, resource: Resource, group: Collection[Resource]) -> bool:
        """Whether an object of the group is beyond the bound."""
        return len(group) > self.most and age(resource) > age(self.oldest(group)[-1])

    def edge(self, group: Collection[Resource]) -> Iterator[ObjectKey]:
        """Yield the last object that counts and the first that does not, where there are as many: one that
        comes or goes concerns these.
        """
        if len(group) >= self.most:
            oldest = nsmallest(self.most + 1, group, key=age)
            yield from (resource.key for resource in oldest[self.most - 1 :])

    def message(self, name: str, remedy: str) -> str:
        """Return why an object beyond the bound does not count; `name` is that of the group."""
        counted = " or ".join(f"{kind}s" for kind in self.kinds)
        return f"{self.group} {name} has {self.most} older {counted}, and no more count; {remedy}"


def age(resource: Resource) -> tuple[str, str]:
    """Return what orders objects, the oldest first."""
    return resource.created, resource.name


TOO_MANY_ROLLOUTS: Final = "TooManyRollouts"
TOO_MANY_OBJECTS: Final = "TooManyObjects"
TOO_MANY_ALERTS: Final = "TooManyAlerts"
TOO_MANY_RECEIVERS: Final = "TooManyReceivers"
TOO_MANY_ORDERS: Final = "TooManyOrders"
_FLAG_SET: Final = "flag set"
_NAMESPACE: Final = "namespace"
OVERRIDES: Final = ObjectBound((flagoverride.KIND,), _FLAG_SET, 100, flagoverride.TOO_MANY)
"""In force: whoever delivers the set applies each of them, at every change."""
ROLLOUTS: Final = ObjectBound((flagrollout.KIND,), _FLAG_SET, 100, TOO_MANY_ROLLOUTS)
WRITTEN: Final = ObjectBound(
    (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND), "FlagSet", 20, TOO_MANY_OBJECTS
)
"""A FlagSet writes two, and owner references can be forged."""
ALERTS: Final = ObjectBound((flagalert.KIND,), _NAMESPACE, 100, TOO_MANY_ALERTS)
RECEIVERS: Final = ObjectBound((flagreceiver.KIND,), _NAMESPACE, 100, TOO_MANY_RECEIVERS)
GRANTS: Final = ObjectBound((flaggrant.KIND,), _NAMESPACE, 100, "")
ORDERS: Final = ObjectBound(tuple(type_.kind for type_ in ORDERED), _NAMESPACE, 500, TOO_MANY_ORDERS)
"""With a standing order: each may have its pods sent another set, which is composed for them."""
BOUNDS: Final = (OVERRIDES, ROLLOUTS, WRITTEN, ALERTS, RECEIVERS, GRANTS, ORDERS)
