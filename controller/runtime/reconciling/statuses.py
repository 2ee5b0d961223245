"""Writes statuses, and keeps those in memory that the kind's definition in the cluster would prune."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from controller.api.objects.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Cache

log = logging.getLogger(__name__)


class StatusWriter(Protocol):
    """Writes statuses to the cluster."""

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone. Raises Failed."""


class Statuses:
    """The statuses of one kind's objects."""

    def __init__(
        self,
        objects: Cache,
        writer: StatusWriter,
        wake: Callable[[ObjectKey, float], None],
        room_again: float,
    ) -> None:
        """`wake` receives each object to reconcile again, and the delay in seconds; `room_again`: see
        LoopTiming.
        """
        self._objects = objects
        self._writer = writer
        self._wake = wake
        self._room_again = room_again
        self._unwritten: dict[ObjectKey, Mapping[str, Any]] | None = None
        """Statuses of a kind that has no room for them."""
        self._ask_at = 0.0

    def newest(self, key: ObjectKey) -> Resource | None:
        """Return the object as last seen, with the status to be written."""
        resource = self._objects.get(key)
        if resource is None or self._unwritten is None or key not in self._unwritten:
            return resource
        return replace(resource, status=self._unwritten[key])

    def forget(self, key: ObjectKey) -> None:
        """Forget the status of a deleted object."""
        if self._unwritten is not None:
            self._unwritten.pop(key, None)

    def on_relist(self) -> None:
        """Check again whether the kind has our status fields: its definition may have changed."""
        self._ask_at = 0.0
        for key in self._unwritten or ():
            self._wake(key, 0.0)

    async def write(self, resource: Resource, status: Mapping[str, Any]) -> None:
        """Make `status` the object's where it differs. Raises Failed."""
        if status != resource.status or self._asks_for_room():
            await self._store(resource, status)
        if self._unwritten is not None:
            self._wake(resource.key, self._room_again)

    async def _store(self, resource: Resource, status: Mapping[str, Any]) -> None:
        if self._unwritten is not None:
            if not self._asks_for_room():
                self._unwritten[resource.key] = status
                return
            resource = self._objects.get(resource.key) or resource
        written = await self._writer.write_status(resource, status)
        if written is None:
            return
        self._objects.learn(written)
        if Status.of(written).conditions:
            # Those that were not written differ now from what they should say.
            for key in self._unwritten or ():
                self._wake(key, 0.0)
            self._unwritten = None
            return
        if self._unwritten is None:
            # Another project's definition of the kind: it prunes what it does not know.
            log.warning(
                "%s in this cluster has no status field for our status: none is written from now "
                "on; see the Events and the logs",
                resource.key.kind,
            )
            self._unwritten = {}
        self._unwritten[resource.key] = status
        self._ask_at = asyncio.get_running_loop().time() + self._room_again

    def _asks_for_room(self) -> bool:
        """Return whether to check again if a status that was pruned is stored now."""
        return self._unwritten is not None and asyncio.get_running_loop().time() >= self._ask_at
