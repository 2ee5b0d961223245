"""Events about subscribers that `--auth enforce` would refuse, each subscriber once. Pure.

A proxy that was restarted repeats them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import Resource
    from controller.delivery.claim import Place
    from controller.proxy.catalog import Catalog

MOST_PLACES: Final = 1_000
MOST_NAMES: Final = 200
"""Subscribers of one object that are remembered."""
MOST_LISTED: Final = 5
"""Names in one Event."""
_WHY: Final = {
    "no_token": "sent no token",
    "invalid_token": "sent a token that the cluster does not know",
    "forbidden": "may not get this object",
}


class Notices:
    """Remembers the callers that Events have named."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._named: dict[tuple[Place, str], dict[str, bool]] = {}
        """Subscribers by place and reason, and whether an Event has named them."""

    def add(self, place: Place, who: str, why: str) -> None:
        """`who` was served the flags at `place`, which it may not read; `why` is the result of a review."""
        key = place, why
        if key not in self._named and len(self._named) >= MOST_PLACES:
            return
        names = self._named.setdefault(key, {})
        if len(names) < MOST_NAMES:
            names.setdefault(who, False)

    def take(self) -> list[tuple[Resource, Occurrence]]:
        """(object, Event) of every subscriber that no Event has named yet."""
        events = []
        for (place, why), names in self._named.items():
            served = self._catalog.object_at(place)
            new = [name for name, named in names.items() if not named]
            if not new or served is None:
                continue
            names.update(dict.fromkeys(new, True))
            who, them = ("subscribers", "them") if len(new) > 1 else ("subscriber", "it")
            message = f"{who} {_list_names(new)} {_WHY[why]}; --auth enforce would reject {them}"
            events.append((served, Occurrence("UnauthenticatedSubscriber", message, warning=True)))
        return events


def _list_names(names: Iterable[str]) -> str:
    some = sorted(names)
    rest = f" and {len(some) - MOST_LISTED} more" if len(some) > MOST_LISTED else ""
    return ", ".join(some[:MOST_LISTED]) + rest
