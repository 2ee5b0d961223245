"""Events of refused pods: on the pod's owner, and on the flag set that it asks for."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cachetools import LRUCache, TTLCache

from controller.api import flagset
from controller.api.kinds import EVENT, FLAG_SET
from controller.api.meta import ObjectKey, Resource, owner_of
from controller.pods import installation
from controller.pods.installation import FLAG_SETS
from controller.runtime.cache import Cache, Change
from controller.runtime.event import Event, EventSink, EventType, Occurrence, event_of
from controller.runtime.informer import Informer, body_as_spec
from controller.runtime.limits import Pace
from controller.runtime.plain_text import one_line
from evaluator.host.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime


REASON: Final = "InjectionRefused"
MOST: Final = 100
"""Events at once, and again each minute: whoever reaches the port may ask in the API server's name."""
MOST_OF_ONE: Final = 20
"""Most of these of one namespace."""
APART: Final = 60.0
"""Seconds between Events of a flag set, or of all missing ones in a namespace: pods are tried repeatedly."""


class Refusals:
    """Hands each to `events` once, up to MOST and MOST_OF_ONE; the next try of a pod reports the others."""

    def __init__(self, events: EventSink, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        """`now`: aware; `clock`: seconds, does not jump."""
        self._events = events
        self._now = now
        self._clock = clock
        self._pace = Pace(MOST, MOST / 60)
        self._paces: LRUCache[str, Pace] = LRUCache(1_024)
        """By namespace."""
        self._reported: TTLCache[str, bool] = TTLCache(60 * MOST, 3_600.0, clock)
        """Keys: a pod that is refused is tried again and again."""

    def report(self, request: Mapping[str, Any], message: str) -> None:
        """Report a refused review of `request` with its message."""
        event = refusal(request, message, self._now())
        if event is None or event.key in self._reported:
            return
        pace = self._paces.setdefault(event.object.namespace, Pace(MOST_OF_ONE, MOST_OF_ONE / 60))
        seconds = self._clock()
        if not pace.wait(seconds, most=0.0) and not self._pace.wait(seconds, most=0.0):
            self._reported[event.key] = True
            self._events.accept(event)


def refusal(request: Mapping[str, Any], message: str, now: datetime) -> Event | None:
    """The Event on a refused review's request. None on a dry run, and for a pod without an owner, whose
    creator gets the refusal itself. `now`: aware. The same refusal of an owner that keeps trying is reported
    once an hour.
    """
    owner = owner_of(_meta(request))
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
        severity=EventType.WARNING,
        reason=REASON,
        message=message,
        time=now,
        failure=REASON,
    )


def _meta(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod's metadata, which may be anything."""
    meta = request["object"].get("metadata")
    return meta if isinstance(meta, dict) else {}


@dataclass(slots=True)
class FlagSetRefusals:
    """Reports refusals as Events of flag sets, so that alerts can forward them."""

    objects: Cache
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds; does not jump."""
    _reported: TTLCache[tuple[str, str], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._reported = TTLCache(1_024, APART, self.clock)

    def take(self, request: Mapping[str, Any], why: str) -> None:
        """`request`: of an AdmissionReview of a pod. One that names no flag set is not reported here."""
        meta = _meta(request)
        annotations, namespace = meta.get("annotations"), str(request.get("namespace", ""))
        name = str(annotations.get(installation.FLAG_SET, "")) if isinstance(annotations, dict) else ""
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name) or request.get("dryRun") is True:
            return
        flag_sets = [self.objects.get(ObjectKey(kind, namespace, name)) for kind in FLAG_SETS]
        thing = next((flag_set for flag_set in flag_sets if flag_set is not None), None)
        known = (namespace, "" if thing is None else name)
        if known in self._reported:
            return
        self._reported[known] = True
        if thing is None:
            key = ObjectKey(flagset.KIND, namespace, name)
            thing = Resource(key, "", 0, "", api_version=FLAG_SET.api_version)
        pod = one_line(str(meta.get("name") or f"{meta.get('generateName') or ''}…"), 253)
        occurrence = Occurrence(REASON, f"pod {pod} is refused: {one_line(why, 1_000)}", warning=True)
        event = event_of(thing, occurrence, self.now())
        for sink in self.sinks:
            sink.accept(event)


FIELDS: Final = f"reason={REASON}"
"""The field selector of these Events."""


@dataclass(slots=True)
class ReportedRefusals:
    """Reports Events of refused pods, which it does not keep, as Events of flag sets."""

    objects: Cache
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds; does not jump."""
    since: datetime = field(init=False)
    """Earlier Events were handed on by whoever led then."""
    informer: Informer = field(init=False)
    _reported: TTLCache[ObjectKey, bool] = field(init=False)
    """One a minute of each object: anyone who may create Events in its namespace makes alerts."""

    def __post_init__(self) -> None:
        self.since = self.now().replace(microsecond=0)
        self._reported = TTLCache(1_024, APART, self.clock)
        self.informer = Informer(Cache(), {EVENT.kind: body_as_spec(EVENT)})
        self.informer.store.react(self._on_change)

    def _on_change(self, change: Change) -> None:
        if change.after is not None:
            self._report(change.after.spec)
            self.informer.store.forget(change.after.key)

    def _report(self, body: Mapping[str, Any]) -> None:
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
        moment = parse_time(stamp)
        return moment is not None and moment >= self.since
