"""Finds what a watch does not report: objects from before its start, and deletions from before it was begun
anew.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.objects.meta import about
from controller.runtime.objects.cache import take
from controller.runtime.reconciling.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.kinds import ResourceType
    from controller.runtime.objects.cache import Cache

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


class Collector:
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
