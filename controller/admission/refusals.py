"""The Event on the owner of a pod that says why the pod was refused. No I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from cachetools import TTLCache

from controller.api.meta import ObjectKey
from controller.runtime.events import Event, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.runtime.events import EventSink

REASON: Final = "InjectionRefused"
MOST: Final = 100
"""Events a minute: any client that reaches the port may ask in the API server's name."""
MOST_OF_ONE: Final = 20
"""Of these, those of one namespace."""
_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0


class Refusals:
    """Hands each to `events` once, without waiting; those beyond MOST and MOST_OF_ONE are left out until the
    pod is tried again.
    """

    def __init__(self, events: EventSink, now: Callable[[], datetime]) -> None:
        """`now`: aware."""
        self._events = events
        self._now = now
        self._since = now()
        self._counts: Counter[str] = Counter()
        """By namespace, of this minute."""
        self._reported: TTLCache[str, bool] = TTLCache(60 * MOST, _HOUR, lambda: now().timestamp())
        """Keys: a pod that is refused is tried again and again."""

    def report(self, request: Mapping[str, Any], message: str) -> None:
        """A review of this request was refused with this message."""
        now = self._now()
        event = refusal(request, message, now)
        if event is None or event.key in self._reported:
            return
        if not 0 <= (now - self._since).total_seconds() < _MINUTE:
            self._since = now
            self._counts.clear()
        namespace = event.object.namespace
        if self._counts[namespace] < MOST_OF_ONE and self._counts.total() < MOST:
            self._counts[namespace] += 1
            self._reported[event.key] = True
            self._events.accept(event)


def refusal(request: Mapping[str, Any], message: str, now: datetime) -> Event | None:
    """The Event on a refused review's request. None on a dry run, and for a pod without an owner, whose
    creator gets the refusal itself. `now`: aware. The same refusal of an owner that keeps trying is reported
    once an hour.
    """
    meta = request["object"].get("metadata")
    owner = _owner(meta) if isinstance(meta, dict) else None
    namespace = request.get("namespace")
    if owner is None or request.get("dryRun") is True or not isinstance(namespace, str):
        return None
    said = (namespace, owner["uid"], message, now.strftime("%Y-%m-%dT%H"))
    return Event(
        key=hashlib.sha256("\n".join(said).encode()).hexdigest(),
        object=ObjectKey(owner["kind"], namespace, owner["name"]),
        api_version=owner["apiVersion"],
        uid=owner["uid"],
        resource_version="",
        severity=Severity.WARNING,
        reason=REASON,
        message=message,
        time=now,
        failure=REASON,
    )


def _owner(meta: Mapping[str, Any]) -> dict[str, str] | None:
    """The one that manages the pod, or else the first."""
    found = meta.get("ownerReferences")
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    first = next((each for each in listed if each.get("controller") is True), listed[0] if listed else {})
    owner = {name: first.get(name) for name in ("apiVersion", "kind", "name", "uid")}
    whole = all(isinstance(text, str) and text for text in owner.values())
    return {name: str(text) for name, text in owner.items()} if whole else None
