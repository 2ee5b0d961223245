"""Which messages an alert wants: by severity, words, flags, flag sets and conditions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2

from controller.api import configuration, flagset
from controller.api.alert import FlagAlertSpec
from controller.api.fields import InvalidSpecError, read
from controller.api.flagset import FlagSetStatus
from controller.api.meta import ObjectKey
from controller.api.provenance import AUTHOR, SUBJECT
from controller.api.provider import SEVERITIES
from controller.notifications.messages import TemplateError, check_template
from controller.runtime.user_text import patterns
from controller.runtime.user_text.expression_syntax import ExpressionError
from controller.runtime.user_text.expressions import Expression
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from controller.api.meta import Resource
    from controller.api.provider import Message

MOST_FLAGS: Final = 500
"""Flags that conditions see of one Event."""
_MEMORY: Final = 1 << 20
"""Bytes that RE2 may use for one expression."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A FlagAlert that can be used."""

    resource: Resource
    spec: FlagAlertSpec

    def subject(self, key: ObjectKey) -> str:
        """The name under which it is remembered what was reported of an object."""
        place = "" if key.namespace == self.resource.namespace else f"{key.namespace}/"
        return f"{self.resource.name}/{key.kind}/{place}{key.name}"


def parted(subject: str, namespace: str) -> tuple[str, ObjectKey]:
    """(an alert's name, the object) of what `Alert.subject` made of them; `namespace` is the alert's."""
    alert, kind, *place = subject.split("/")
    return alert, ObjectKey(kind, place[0] if len(place) > 1 else namespace, place[-1] if place else "")


@dataclass(frozen=True, slots=True)
class Fact:
    """A message, with what alerts choose by."""

    message: Message
    subject: Resource | None
    """The object, where it is known."""
    flags: tuple[str, ...] = ()
    """Keys of those that changed; empty where none is named."""
    ends: bool = False
    """It ends what a warning reported."""

    def event(self) -> dict[str, Any]:
        """What conditions see of it, as `event`."""
        message, subject = self.message, self.subject
        return {
            "kind": message.kind,
            "name": message.name,
            "namespace": "" if subject is None else subject.namespace,
            "labels": {} if subject is None else dict(subject.labels),
            "severity": message.severity,
            "reason": message.reason,
            "message": message.message,
            "revision": message.metadata.get(REVISION_KEY, ""),
            "digest": message.metadata.get(DIGEST_KEY, ""),
            "author": message.metadata.get(AUTHOR, ""),
            "subject": message.metadata.get(SUBJECT, ""),
            "flagSet": flag_set_id(subject),
            "flags": list(self.flags[:MOST_FLAGS]),
        }


def usable(resource: Resource) -> FlagAlertSpec:
    """An alert's spec. Raises InvalidSpecError, which names the field or the expression."""
    spec = read(FlagAlertSpec, resource.spec)
    lists = (("inclusionList", spec.inclusion_list), ("exclusionList", spec.exclusion_list))
    for field, expressions in lists:
        for place, expression in enumerate(expressions):
            try:
                _compiled(expression)
            except re2.error as error:
                why = error.args[0] if error.args else ""
                reason = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
                raise InvalidSpecError(f"spec.{field}.{place}: not an RE2 expression: {reason}") from None
    for field, condition in (("inclusion", spec.inclusion), ("exclusion", spec.exclusion)):
        try:
            if condition is not None:
                compiled(condition)
        except ExpressionError as error:
            raise InvalidSpecError(f"spec.{field}:{error}") from None
    try:
        check_template(spec.template or "")
    except TemplateError as error:
        raise InvalidSpecError(f"spec.template:{error}") from None
    return spec


def compiled(condition: str) -> Expression:
    """An expression over `event`. Raises ExpressionError."""
    return Expression.of(condition, frozenset({"event"}))


def wants(spec: FlagAlertSpec, message: str, severity: str) -> bool:
    """Whether a message of an object that the alert is about is wanted: exclusion wins over inclusion."""
    if SEVERITIES.index(severity) < SEVERITIES.index(spec.event_severity):
        return False
    if _found_by(spec.exclusion_list, message):
        return False
    return not spec.inclusion_list or _found_by(spec.inclusion_list, message)


def _found_by(expressions: Iterable[str], message: str) -> bool:
    return any(_compiled(each).search(message) is not None for each in expressions)


# Of all tenants, who may make each use _MEMORY: what is not kept is compiled anew, which takes 0.1 ms.
@lru_cache(maxsize=256)
def _compiled(expression: str) -> re2._Regexp:
    """Raises re2.error. Whatever it is, its search takes time in proportion to the message."""
    return patterns.compiled(expression, _MEMORY)


def chooses(spec: FlagAlertSpec, fact: Fact, complain: Callable[[str], None]) -> bool:
    """Whether the alert wants it. A condition that fails leaves nothing out; `complain` is told why."""
    if not wants(spec, fact.message.message, "warning" if fact.ends else fact.message.severity):
        return False
    if spec.flags and fact.flags and not _any(spec.flags, fact.flags):
        return False
    found = flag_set_id(fact.subject)
    if spec.flag_sets and found and not _any(spec.flag_sets, (found,)):
        return False
    if spec.inclusion is None and spec.exclusion is None:
        return True
    event = fact.event()
    return _holds("inclusion", spec.inclusion, event, complain, unknown=True) and not _holds(
        "exclusion", spec.exclusion, event, complain, unknown=False
    )


def flag_set_id(subject: Resource | None) -> str:
    """The flagSetId of the flag set that an object is, or delivers; empty where it is none, or has none."""
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


def _holds(
    field: str, text: str | None, event: dict[str, Any], complain: Callable[[str], None], *, unknown: bool
) -> bool:
    if text is None:
        return unknown
    try:
        return compiled(text).holds({"event": event})
    except ExpressionError as error:
        complain(f"spec.{field}:{error}")
        return unknown
