"""The health of each watch, and the changes that a watch does not report.

A watch does not report objects from before its start, and deletions from before it was begun anew.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.meta import about
from controller.runtime.cache import Cache, take
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.api.kind import ResourceType


STALE_SECONDS: Final = 120.0
"""A watch is opened anew once a minute: one that the API server has not confirmed for two is stale."""


@dataclass(slots=True)
class _Watch:
    """One watched path, whose state others report."""

    kind: str
    clock: Callable[[], float]
    confirmed: float | None = None
    fault: str = ""

    def age(self) -> float | None:
        return None if self.confirmed is None else self.clock() - self.confirmed


@dataclass(frozen=True, slots=True)
class WatchReport:
    """The states of all watches of one kind."""

    kind: str
    """The plural: `flagsets`."""
    connected: bool
    age: float | None
    """Seconds since the API server last confirmed the oldest of them; None: never."""
    fault: str
    """Why it is not connected."""

    @property
    def is_stale(self) -> bool:
        """Whether changes may be missed."""
        return self.age is None or self.age > STALE_SECONDS

    def page(self) -> dict[str, Any]:
        """Return the entry of `/readyz`."""
        age = None if self.age is None else round(self.age, 1)
        return {
            "kind": self.kind,
            "connected": self.connected,
            "stale": self.is_stale,
            "ageSeconds": age,
            "fault": self.fault,
        }


class Watching(Protocol):
    """A watch that reports its own health."""

    fault: str
    """Why it is not connected."""

    def age(self) -> float | None:
        """Return the seconds since the API server last confirmed its view; None: never."""


class WatchHealth:
    """The watches of one process. Written by the thread that watches, read by any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._followed: dict[str, tuple[str, Watching]] = {}

    def follow(self, kind: str, path: str, watch: Watching) -> None:
        """Include the health of `watch`, until `unfollow`."""
        self._followed[path] = kind, watch

    def unfollow(self, path: str) -> None:
        """Stop reporting the watch of `path`."""
        self._followed.pop(path, None)

    def record_answer(self, kind: str, path: str) -> bool:
        """The API server answered on `path`. True where that ends a fault, and no other is left."""
        watch = self._watches.setdefault(path, _Watch(kind, self._clock))
        ended, watch.fault = watch.fault, ""
        watch.confirmed = self._clock()
        return bool(ended) and not any(other.fault for other in tuple(self._watches.values()))

    def record_failure(self, kind: str, path: str, why: str) -> bool:
        """`path` was refused, or could not be reached. True where no other watch has this fault yet."""
        new = all(other.fault != why for other in tuple(self._watches.values()))
        self._watches.setdefault(path, _Watch(kind, self._clock)).fault = why
        return new

    def remove_kind(self, kind: str) -> None:
        """Remove the watches of a kind that is not installed."""
        self._watches = {path: watch for path, watch in tuple(self._watches.items()) if watch.kind != kind}

    def of(self, kind: str) -> WatchReport | None:
        """Return the report on the watches of one kind, or None if it is not watched."""
        watches = [watch for of, watch in self._all() if of == kind]
        if not watches:
            return None
        ages = [age for watch in watches if (age := watch.age()) is not None]
        age = max(0.0, *ages) if len(ages) == len(watches) else None
        fault = next((watch.fault for watch in watches if watch.fault), "")
        return WatchReport(kind, not fault and age is not None, age, fault)

    def reports(self) -> tuple[WatchReport, ...]:
        """Return a report for each watched kind, by name."""
        kinds = sorted({kind for kind, _ in self._all()})
        return tuple(report for kind in kinds if (report := self.of(kind)) is not None)

    def _all(self) -> list[tuple[str, Watching]]:
        """Each watch with its kind."""
        reported = [(watch.kind, watch) for watch in tuple(self._watches.values())]
        return [*reported, *tuple(self._followed.values())]


log = logging.getLogger(__name__)

LIST_AGAIN: Final = 1.0
"""Seconds after a list that failed, and at least from one comparison to the next: a new watch lists
thousands, one by one.
"""


class Lister(Protocol):
    """Lists objects of the cluster."""

    async def everywhere(
        self, api_version: str, plural: str, namespaces: Sequence[str], *, content: bool = True
    ) -> list[dict[str, Any]]:
        """Return all objects of one kind, in `namespaces` or in all. Raises Setback."""

    async def present(
        self, api_version: str, plural: str, namespaces: Sequence[str]
    ) -> tuple[frozenset[str], int]:
        """(uids of all objects of one kind, the version up to which that is true); version 0: the kind is not
        installed. Raises Setback.
        """


class CacheFiller:
    """Fills the cache at the start, and removes objects whose deletion no watch reported."""

    def __init__(
        self,
        cache: Cache,
        lister: Lister,
        types: Sequence[ResourceType],
        namespaces: Sequence[str],
        *,
        again: float = LIST_AGAIN,
    ) -> None:
        """`namespaces`: none for all of them. `again`: seconds, see LIST_AGAIN."""
        self.synced = False
        """Whether everything was listed once."""
        self._cache = cache
        self._lister = lister
        self._types = types
        self._namespaces = namespaces
        self._stale = asyncio.Event()
        self._again = again

    async def fill(self) -> None:
        """List everything once, so that an unlisted object is not taken for a missing one."""
        for type_ in self._types:
            for body in await self._list(type_):
                take(self._cache, type_, body)
        self.synced = True

    def on_relist(self) -> None:
        """Handle a restarted watch: compare soon."""
        self._stale.set()

    async def compare(self) -> None:
        """Wait until a watch began anew, then remove objects that were deleted before."""
        await self._stale.wait()
        self._stale.clear()
        failed: dict[str, str] = {}
        for type_ in self._types:
            try:
                await self._compare(type_)
            except Setback as setback:
                failed[type_.plural] = setback.message
            except Exception:
                # Continue with the other kinds.
                log.exception("comparing %s with the cluster failed", type_.plural)
        if failed:
            log.warning(
                "not compared with the cluster: %s: %s", ", ".join(failed), next(iter(failed.values()))
            )
        await asyncio.sleep(self._again)

    async def _list(self, type_: ResourceType) -> list[dict[str, Any]]:
        """List all objects of a kind; retries until it succeeds."""
        logged = ""
        while True:
            try:
                return await self._lister.everywhere(
                    type_.api_version, type_.plural, self._namespaces, content=type_.content
                )
            except Setback as setback:
                why = setback.message
            except Exception as error:  # noqa: BLE001 - a proxy in between may send any answer
                why = f"{type(error).__name__}: {error}"
            if why != logged:
                log.warning("%s cannot be listed yet: %s", type_.plural, why)
                logged = why
            await asyncio.sleep(self._again)

    async def _compare(self, type_: ResourceType) -> None:
        uids, version = await self._lister.present(type_.api_version, type_.plural, self._namespaces)
        for resource in self._cache.of_kind(type_.kind):
            if resource.uid not in uids and int(resource.resource_version) <= version:
                log.info("it was deleted while no watch was open", extra=about(resource.key))
                self._cache.forget(resource.key)
