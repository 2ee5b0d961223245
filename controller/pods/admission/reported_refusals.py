"""Hands the Events of refused pods, which admission posts under flag sets, to the controller's alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cachetools import TTLCache

from controller.api.objects.meta import ObjectKey, Resource
from controller.pods.admission.refusals import APART, REASON
from controller.pods.settings.installation import FLAG_SETS
from controller.runtime.event import Occurrence, event_of
from controller.runtime.user_text.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.runtime.event import EventSink
    from controller.runtime.objects.cache import Cache

FIELDS: Final = f"reason={REASON}"
"""The field selector of these Events."""


@dataclass(slots=True)
class ReportedRefusals:
    """Implements the Reflector's `Sink`."""

    objects: Cache
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds; does not jump."""
    since: datetime = field(init=False)
    """Earlier Events were handed on by whoever led then."""
    _reported: TTLCache[ObjectKey, bool] = field(init=False)
    """One a minute of each object: anyone who may create Events in its namespace makes alerts."""

    def __post_init__(self) -> None:
        self.since = self.now().replace(microsecond=0)
        self._reported = TTLCache(1_024, APART, self.clock)

    def learn(self, kind: str, body: dict[str, Any]) -> None:
        """Report an Event."""
        del kind
        about, stamp = body.get("involvedObject") or {}, str(body.get("lastTimestamp") or "")
        key = ObjectKey(*(str(about.get(name) or "") for name in ("kind", "namespace", "name")))
        if key.kind not in FLAG_SETS or key in self._reported or not self._is_new(stamp):
            return
        self._reported[key] = True
        resource = self.objects.get(key)
        if resource is None:
            resource = Resource(key, "", 0, "", api_version=str(about.get("apiVersion") or ""))
        message = one_line(str(body.get("message") or ""), 1_024)
        event = event_of(resource, Occurrence(REASON, message, warning=True), self.now())
        for sink in self.sinks:
            sink.accept(event)

    def _is_new(self, stamp: str) -> bool:
        try:
            return datetime.fromisoformat(stamp) >= self.since
        except (ValueError, TypeError):
            return False

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Nothing to do: Kubernetes deletes Events after an hour."""

    def end_listing(self, kind: str, namespace: str) -> None:
        """Nothing to do: Events that are there already are reported or not by their time."""
