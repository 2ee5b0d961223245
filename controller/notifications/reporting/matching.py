"""Finds the alerts that an Event concerns. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import re2

from controller.api import alert, provider
from controller.api.alert import EVERY, FlagAlertSpec
from controller.api.fields import InvalidSpecError, read
from controller.api.meta import ObjectKey
from controller.api.provider import SEVERITIES
from controller.notifications.forms import templates
from controller.notifications.reach import concerns
from controller.notifications.stage import SELECTING
from controller.runtime.user_text import patterns
from controller.runtime.user_text.expression_syntax import ExpressionError
from controller.runtime.user_text.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.meta import Resource
    from controller.runtime.objects.cache import Cache

_VARIABLES: Final = frozenset({"event"})
_MEMORY: Final = 1 << 20
"""Bytes that RE2 may use for one expression."""
_KEPT: Final = 256
"""Expressions."""


def alerts_of(cache: Cache, namespace: str, name: str) -> dict[str, tuple[Resource, FlagAlertSpec]]:
    """By name: the alerts of a provider that can be used now."""
    found = {}
    for each in cache.of_kind(alert.KIND, namespace):
        try:
            spec = usable(each)
        except InvalidSpecError:
            # Its own status says so.
            continue
        if name in spec.providers and not each.suspended and not each.deleting:
            found[each.name] = (each, spec)
    return found


def providers_of(cache: Cache, key: ObjectKey, labels: Mapping[str, str]) -> set[ObjectKey]:
    """Those of which an alert says that they are to be notified of an object; none that is suspended."""
    found = set()
    elsewhere = (each for each in cache.find(SELECTING, "", EVERY) if each.namespace != key.namespace)
    for each in (*cache.of_kind(alert.KIND, key.namespace), *elsewhere):
        try:
            spec = usable(each)
        except InvalidSpecError:
            continue
        if concerns(cache, each, spec, key, labels):
            found |= {ObjectKey(provider.KIND, each.namespace, name) for name in spec.providers}
    there = {named: cache.get(named) for named in found}
    return {named for named, each in there.items() if each is not None and not each.suspended}


def usable(resource: Resource) -> FlagAlertSpec:
    """An alert's spec. Raises InvalidSpecError, which names the field or the expression."""
    spec = read(FlagAlertSpec, resource.spec)
    for field, expressions in (
        ("inclusionList", spec.inclusion_list),
        ("exclusionList", spec.exclusion_list),
    ):
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
        templates.check(spec.template or "")
    except templates.TemplateError as error:
        raise InvalidSpecError(f"spec.template:{error}") from None
    return spec


def compiled(condition: str) -> Expression:
    """An expression over `event`. Raises ExpressionError."""
    return Expression.of(condition, _VARIABLES)


def wants(spec: FlagAlertSpec, message: str, severity: str) -> bool:
    """Whether a message of an object that the alert is about is wanted: exclusion wins over inclusion."""
    if SEVERITIES.index(severity) < SEVERITIES.index(spec.event_severity):
        return False
    if _any(spec.exclusion_list, message):
        return False
    return not spec.inclusion_list or _any(spec.inclusion_list, message)


def _any(expressions: Iterable[str], message: str) -> bool:
    return any(_compiled(each).search(message) is not None for each in expressions)


# Of all tenants, who may make each use _MEMORY: what is not kept is compiled anew, which takes 0.1 ms.
@lru_cache(maxsize=_KEPT)
def _compiled(expression: str) -> re2._Regexp:
    """Raises re2.error. Whatever it is, its search takes time in proportion to the message."""
    return patterns.compiled(expression, _MEMORY)
