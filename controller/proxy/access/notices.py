"""What a proxy says as Events: subscribers whom `--auth enforce` would refuse. Each once. Pure.

What is said again is counted up by the API server, so a proxy that was restarted says nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.runtime.news import News

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.meta import Resource
    from controller.delivery.claims import Place
    from controller.proxy.catalog import Catalog

MOST_PLACES: Final = 1_000
MOST_NAMES: Final = 200
"""Of one object's subscribers that are remembered as named."""
MOST_TOLD: Final = 5
"""Names in one Event."""
_WHY: Final = {
    "no_token": "sent no token",
    "invalid_token": "sent a token that the cluster does not know",
    "forbidden": "may not get this object",
}


class Notices:
    """Remembers what was said."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._named: dict[tuple[Place, str], dict[str, bool]] = {}
        """Who came to a place for which reason, and whether that was said."""

    def unwelcome(self, place: Place, who: str, why: str) -> None:
        """`who` was served the flags at `place` without the right to."""
        key = place, why
        if key not in self._named and len(self._named) >= MOST_PLACES:
            return
        names = self._named.setdefault(key, {})
        if len(names) < MOST_NAMES:
            names.setdefault(who, False)

    def take(self) -> list[tuple[Resource, News]]:
        """What is to be said now."""
        return list(self._new())

    def _new(self) -> Iterator[tuple[Resource, News]]:
        for (place, why), names in tuple(self._named.items()):
            seen = self._catalog.served(place)
            new = [name for name, said in names.items() if not said]
            if not new or seen is None:
                continue
            names.update(dict.fromkeys(new, True))
            who, them = ("subscribers", "them") if len(new) > 1 else ("subscriber", "it")
            message = f"{who} {_listed(new)} {_WHY[why]}; --auth enforce would reject {them}"
            yield seen.meta, News("UnauthenticatedSubscriber", message, warning=True)


def _listed(names: Iterable[str]) -> str:
    some = sorted(names)
    rest = f" and {len(some) - MOST_TOLD} more" if len(some) > MOST_TOLD else ""
    return ", ".join(some[:MOST_TOLD]) + rest
