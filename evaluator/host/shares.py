"""Shares a few places fairly among groups, some of which keep a place for long. Pure."""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Hashable

Item = TypeVar("Item", bound="Hashable")
_NO_GROUP: Final = object()
_NAMED: Final[WeakSet[FairShare[Any]]] = WeakSet()
"""What has a name, and is in use in this process."""
_NAMING: Final = threading.Lock()


class Usage(NamedTuple):
    """How one resource is used."""

    held: int
    """Places that are taken."""
    waiting: int
    """Items that wait for a place."""
    groups: int
    """Groups that wait for a place."""


def usage_by_resource() -> dict[str, Usage]:
    """Return the usage of each resource that has a name. Any thread may call this."""
    with _NAMING:
        named = list(_NAMED)
    usage: dict[str, Usage] = {}
    for share in named:
        held, waiting, groups = usage.get(share.resource, Usage(0, 0, 0))
        usage[share.resource] = Usage(held + share.held, waiting + share.waiting, groups + share.groups)
    return usage


class FairShare(Generic[Item]):
    """Waiting items by group. Free places go to groups round robin, within a group first in, first out.

    A group may hold at most as many places as are free. So a group that is alone gets half of them, the next
    one half of the rest, and n groups that always want more end with 1/(n + 1) of the places each: a group
    that comes late finds a place although none was given back.

    Many groups that keep their places would hold all of them in the end. Beyond the places there are
    `firsts`, and each of these is given only to a group that has no place.
    """

    def __init__(
        self,
        places: float,
        firsts: int = 0,
        most: float = math.inf,
        *,
        resource: str = "",
        most_waiting: float = math.inf,
    ) -> None:
        """`places`: infinity for no limit. `most`: that a group may have in any case. `resource`:
        its name in metrics. `most_waiting`: beyond so many items `is_full`.
        """
        self._free = places
        """Free places; negative if `firsts` are in use."""
        self._firsts = firsts
        self._most = most
        self._taken: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, dict[Item, None]] = {}
        self._most_waiting = most_waiting
        self.resource = resource
        self.held = 0
        """Places that are taken."""
        self.waiting = 0
        """Items that wait."""
        if resource:
            with _NAMING:
                _NAMED.add(self)

    @property
    def groups(self) -> int:
        """How many groups wait."""
        return len(self._waiting)

    def is_full(self, group: Hashable) -> bool:
        """Whether no more items of the group may wait. As of the places, a group may have as many as are
        left, so one that is alone half of them; beyond them there are as many, for groups that have none.
        """
        left = self._most_waiting - self.waiting
        return left <= -self._most_waiting or len(self._waiting.get(group, ())) >= max(left, 1)

    def usage(self) -> dict[Hashable, int]:
        """Return how many places each group has. Any thread may call this."""
        return dict(self._taken)

    def count_waiting(self) -> dict[Hashable, int]:
        """Return how many items of each group wait."""
        return {group: len(items) for group, items in self._waiting.items()}

    def add(self, group: Hashable, item: Item) -> None:
        """Add `item` to the waiting ones, once."""
        items = self._waiting.setdefault(group, {})
        self.waiting += item not in items
        items[item] = None

    def remove(self, group: Hashable, item: Item) -> None:
        """Remove `item` from the waiting ones, if it is there."""
        items = self._waiting.get(group, {})
        if item in items:
            del items[item]
            self.waiting -= 1
        if not items:
            self._waiting.pop(group, None)

    def drop(self) -> Item:
        """Remove and return the oldest waiting item of the group that has most of them."""
        group = max(self._waiting, key=lambda name: len(self._waiting[name]))
        item = next(iter(self._waiting[group]))
        self.remove(group, item)
        return item

    def take(self) -> Item | None:
        """Return the next item, which has a place until `release`; None if no place is available."""
        if self._free <= -self._firsts:
            # Checked before the waiting items are searched: there may be thousands.
            return None
        below_share = (name for name in self._waiting if self._taken[name] < self._share())
        group = next(below_share, _NO_GROUP)
        if group is _NO_GROUP:
            return None
        items = self._waiting[group]
        item = next(iter(items))
        del items[item]
        self.waiting -= 1
        del self._waiting[group]
        if items:
            # Behind all others.
            self._waiting[group] = items
        self.hold(group)
        return item

    def has_place(self, group: Hashable) -> bool:
        """Whether another place is within the group's share."""
        return self._free > -self._firsts and self._taken[group] < self._share()

    def hold(self, group: Hashable) -> None:
        """Give the group a place, until `release`."""
        self._free -= 1
        self.held += 1
        self._taken[group] += 1

    def _share(self) -> float:
        return min(max(self._free, 1), self._most)

    def release(self, group: Hashable) -> None:
        """Free a place of the group."""
        self._free += 1
        self.held -= 1
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
