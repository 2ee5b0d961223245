"""Selects the messages of an alert: by severity, words, flags and flag sets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from controller.api import configuration, flagset
from controller.api.alert import FlagAlertSpec, expression
from controller.api.flagset import FlagSetStatus
from controller.api.objects.meta import ObjectKey
from controller.api.provider import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import Resource
    from controller.api.provider import Message


@dataclass(frozen=True, slots=True)
class Alert:
    """A usable FlagAlert."""

    resource: Resource
    spec: FlagAlertSpec

    def subject(self, key: ObjectKey) -> str:
        """Return the key of a report about an object: `<alert>/<kind>/<name>`."""
        place = "" if key.namespace == self.resource.namespace else f"{key.namespace}/"
        return f"{self.resource.name}/{key.kind}/{place}{key.name}"


def parted(subject: str, namespace: str) -> tuple[str, ObjectKey]:
    """Split the output of `Alert.subject` into (alert's name, object); `namespace` is the alert's."""
    alert, kind, *place = subject.split("/")
    return alert, ObjectKey(kind, place[0] if len(place) > 1 else namespace, place[-1] if place else "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A message with the facts that alerts select by."""

    message: Message
    subject: Resource | None
    """The object, if it is in the cache."""
    flags: tuple[str, ...] = ()
    """Keys of the changed flags; may be empty."""
    ends: bool = False
    """Whether it ends a failure that a warning reported."""


def wants(spec: FlagAlertSpec, message: str, severity: str) -> bool:
    """Whether the alert selects a message of one of its objects: exclusion wins over inclusion."""
    if SEVERITIES.index(severity) < SEVERITIES.index(spec.event_severity):
        return False
    if _found_by(spec.exclusion_list, message):
        return False
    return not spec.inclusion_list or _found_by(spec.inclusion_list, message)


def _found_by(expressions: Iterable[str], message: str) -> bool:
    return any(expression(each).search(message) is not None for each in expressions)


def chooses(spec: FlagAlertSpec, fact: Fact) -> bool:
    """Whether the alert selects a message by severity, words, flags and flag set."""
    if not wants(spec, fact.message.message, "warning" if fact.ends else fact.message.severity):
        return False
    if spec.flags and fact.flags and not _any(spec.flags, fact.flags):
        return False
    found = flag_set_id(fact.subject)
    return not spec.flag_sets or not found or _any(spec.flag_sets, (found,))


def flag_set_id(subject: Resource | None) -> str:
    """Return the flagSetId of an object that is or delivers a flag set; else empty."""
    if subject is None:
        return ""
    if subject.key.kind == flagset.KIND:
        given = FlagSetStatus.of(subject).flag_set_id or subject.spec.get("flagSetId")
        return str(given or f"{subject.namespace}/{subject.name}")
    if subject.key.kind not in {configuration.KIND, configuration.FLAG_KIND}:
        return ""
    content = subject.spec.get("flagSpec")
    metadata = content.get("metadata") if isinstance(content, dict) else None
    return str(metadata.get("flagSetId") or "") if isinstance(metadata, dict) else ""


def _any(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
