"""The FlagOverrides, and the moments at which they end: the proxy applies them without the controller."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagoverride import KIND
from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.meta import ObjectKey, Resource
from controller.delivery.overrides import BY_FLAG_SET, override_of, progress_of, set_name
from controller.runtime.objects.cache import Cache

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from evaluator.flags.accept import Progress

_log = logging.getLogger(__name__)

LONGEST_WAIT: Final = 60.0
"""Seconds after which the clock is read again: it may have been set."""


class OverrideObjects:
    """Keeps FlagOverrides, and calls `changed` with the namespace and the set's name of each that begins,
    changes or ends. Used on the loop alone.
    """

    def __init__(self, clock: Callable[[], float], loop: asyncio.AbstractEventLoop) -> None:
        """`clock`: Unix seconds."""
        self.changed: Callable[[str, str], None] = lambda _namespace, _name: None
        self._clock = clock
        self._loop = loop
        self._objects = Cache([BY_FLAG_SET])
        self._ends: dict[ObjectKey, int] = {}
        """When each override that has not ended yet ends, in Unix seconds."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._ends)

    def progress(self, target: Resource) -> Progress:
        """The overrides in force for an object with flags."""
        return progress_of(self._objects, target, self._clock())

    def learn(self, body: Mapping[str, Any]) -> None:
        """Take in an object. Raises KeyError, TypeError, AttributeError if it is malformed."""
        resource = Resource.of({**body, "kind": KIND})
        known = self._objects.get(resource.key)
        self._objects.put(resource)
        if known is not None and _content(known) == _content(resource):
            return
        self._note_end(resource)
        for name in {set_name(each) for each in (known, resource) if each is not None}:
            self.changed(resource.namespace, name)

    def forget(self, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        key = ObjectKey(KIND, namespace, name)
        known = self._objects.get(key)
        self._objects.forget(key)
        self._ends.pop(key, None)
        self._arm()
        if known is not None:
            self.changed(namespace, set_name(known))

    def close(self) -> None:
        """End nothing more."""
        self._ends.clear()
        self._arm()

    def _note_end(self, resource: Resource) -> None:
        self._ends.pop(resource.key, None)
        try:
            expires = override_of(resource).expires
        except InvalidSpecError as error:
            _log.warning("a FlagOverride is not applied: %s", error, extra={"object": str(resource.key)})
            expires = None
        if expires is not None and expires > self._clock():
            self._ends[resource.key] = expires
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            wait = max(0.0, min(self._ends.values()) - self._clock())
            self._timer = self._loop.call_later(min(wait, LONGEST_WAIT), self._end)

    def _end(self) -> None:
        now = self._clock()
        ended = [key for key, expires in self._ends.items() if expires <= now]
        for key in ended:
            del self._ends[key]
        self._timer = None
        self._arm()
        for key in ended:
            if (resource := self._objects.get(key)) is not None:
                self.changed(resource.namespace, set_name(resource))


def _content(resource: Resource) -> object:
    return resource.uid, resource.generation, resource.deleting
