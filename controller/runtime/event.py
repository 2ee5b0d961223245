"""Events as values, and the port of sinks that accept them. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.kinds import status_of
from controller.api.meta import GROUP, NOTHING, ObjectKey, Resource
from controller.runtime.plain_text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


_METADATA: Final = 4_000
"""Most characters of an Event's metadata."""


class EventType(StrEnum):
    """Kubernetes' two types of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to an object, as its reconciler reports it."""

    reason: str
    """CamelCase and stable."""
    message: str
    """Text without times and counters: a repeated reconcile has the same message."""
    warning: bool = False
    version: str = ""
    """Distinguishes it from an earlier one with the same message, where the object's status does not."""
    metadata: Mapping[str, str] = field(default_factory=lambda: NOTHING, hash=False)
    """Further facts for alerts, by keys such as `flagstaff.dev/author`; never a secret."""
    flags: tuple[str, ...] = ()
    """Keys of the changed flags; may be empty."""
    ends: bool = False
    """Whether it ends a reported failure: recipients of warnings receive it, too."""


@dataclass(frozen=True, slots=True)
class Event:
    """An occurrence with the data that a sink needs."""

    key: str
    """Idempotency key, 64 hexadecimal digits: a reconcile that is repeated after a crash gives the same,
    the same failure after a recovery another.
    """
    object: ObjectKey
    api_version: str
    uid: str
    resource_version: str
    """The object's version before its status was written."""
    severity: EventType
    reason: str
    message: str
    time: datetime
    """Aware."""
    revision: str = ""
    """The revision of the source; empty if none is known."""
    digest: str = ""
    """The digest of the artifact or the flag set at `revision`; empty if none is known."""
    failure: str = ""
    """The reason for which the object is not ready after it; empty while it is, or only waits."""
    metadata: Mapping[str, str] = field(default_factory=lambda: NOTHING, hash=False)
    flags: tuple[str, ...] = ()
    """Keys of the flags that it changed."""
    ends: bool = False
    """Whether it ends what a Warning reported."""

    @property
    def bounded_metadata(self) -> dict[str, str]:
        """Return `metadata`, cut to the sent length."""
        left, kept = _METADATA, {}
        for name, text in self.metadata.items():
            kept[name] = text[:left]
            left -= len(kept[name])
        return kept


class EventSink(Protocol):
    """Accepts Events: the API server's queue, notifications."""

    def accept(self, event: Event) -> None:
        """Accept an Event; one whose key was accepted before is ignored. Local, so it never fails."""


def event_of(resource: Resource, occurrence: Occurrence, now: datetime) -> Event:
    """The Event of an occurrence at `resource`, which has its new status. `now`: aware."""
    versions = (resource.uid, resource.resource_version, occurrence.version)
    parts = (*versions, occurrence.reason, occurrence.message)
    status = status_of(resource)
    revision, digest = status.content
    return Event(
        key=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
        object=resource.key,
        api_version=resource.api_version,
        uid=resource.uid,
        resource_version=resource.resource_version,
        severity=EventType.WARNING if occurrence.warning else EventType.NORMAL,
        reason=occurrence.reason,
        message=clean(occurrence.message),
        time=now,
        revision=revision,
        digest=digest,
        failure=status.failure,
        metadata=clean(dict(occurrence.metadata)),
        flags=occurrence.flags,
        ends=occurrence.ends,
    )


def as_event(body: Mapping[str, Any]) -> dict[str, Any]:
    """An Event of the API server in the form in which alerts are posted."""
    about, meta = body["involvedObject"], body["metadata"]
    names = ("apiVersion", "kind", "namespace", "name", "uid")
    return {
        "involvedObject": {name: about.get(name, "") for name in names},
        "severity": "error" if body.get("type") == "Warning" else "info",
        "timestamp": body.get("lastTimestamp")
        or body.get("eventTime")
        or meta.get("creationTimestamp")
        or "",
        "message": body.get("message") or "",
        "reason": body.get("reason") or "",
        "metadata": {
            name: text for name, text in (meta.get("annotations") or {}).items() if name.startswith(GROUP)
        },
        "reportingController": body.get("reportingComponent") or "",
    }
