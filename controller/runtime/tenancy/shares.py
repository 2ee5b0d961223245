"""Shares a few places fairly among groups, some of which keep a place for long. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Item = TypeVar("Item", bound="Hashable")
_NO_GROUP: Final = object()


class FairShare(Generic[Item]):
    """Waiting items by group. Free places go to groups round robin, within a group first in, first out.

    A group may hold at most as many places as are free. So a group that is alone gets half of them, the next
    one half of the rest, and n groups that always want more end with 1/(n + 1) of the places each: a group
    that comes late finds a place although none was given back.

    Many groups that keep their places would hold all of them in the end. Beyond the places there are
    `firsts`, and each of these is given only to a group that has no place.
    """

    def __init__(
        self, places: float, firsts: int = 0, most: Callable[[Hashable], float] = lambda _group: math.inf
    ) -> None:
        """`places`: infinity for no limit. `most`: returns how many a group may have in any case."""
        self._free = places
        """Free places; negative if `firsts` are in use."""
        self._firsts = firsts
        self._most = most
        self._taken: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, dict[Item, None]] = {}

    def usage(self) -> dict[Hashable, int]:
        """Return how many places each group has. Any thread may call this."""
        return dict(self._taken)

    def count_waiting(self) -> dict[Hashable, int]:
        """Return how many items of each group wait."""
        return {group: len(items) for group, items in self._waiting.items()}

    def add(self, group: Hashable, item: Item) -> None:
        """Add `item` to the waiting ones, once."""
        self._waiting.setdefault(group, {})[item] = None

    def remove(self, group: Hashable, item: Item) -> None:
        """Remove `item` from the waiting ones, if it is there."""
        items = self._waiting.get(group, {})
        items.pop(item, None)
        if not items:
            self._waiting.pop(group, None)

    def take(self) -> Item | None:
        """Return the next item, which has a place until `release`; None if no place is available."""
        if self._free <= -self._firsts:
            # Checked before the waiting items are searched: there may be thousands.
            return None
        below_share = (name for name in self._waiting if self._taken[name] < self._share(name))
        group = next(below_share, _NO_GROUP)
        if group is _NO_GROUP:
            return None
        items = self._waiting[group]
        item = next(iter(items))
        del items[item]
        del self._waiting[group]
        if items:
            # Behind all others.
            self._waiting[group] = items
        self._free -= 1
        self._taken[group] += 1
        return item

    def _share(self, group: Hashable) -> float:
        return min(max(self._free, 1), self._most(group))

    def release(self, group: Hashable) -> None:
        """Free a place of the group."""
        self._free += 1
        self._taken[group] -= 1
        if not self._taken[group]:
            del self._taken[group]
