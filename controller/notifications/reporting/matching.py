"""The alerts of an object and the objects of an alert, also of namespaces that grant it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api import alert as alerts
from controller.api import grant, provider
from controller.api.alert import EVERY
from controller.api.fields import InvalidSpecError
from controller.api.kinds import NAMESPACE
from controller.api.meta import ObjectKey
from controller.delivery.grants import Referring, granted
from controller.notifications.reporting.choosing import Alert, usable
from controller.notifications.stage import SELECTING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.alert import EventSource
    from controller.api.meta import Resource
    from controller.runtime.objects.cache import Cache


def alerts_of(cache: Cache, namespace: str, name: str) -> dict[str, Alert]:
    """By name: the alerts of a provider that can be used now."""
    return {
        each.resource.name: each
        for each in _usable(cache.of_kind(alerts.KIND, namespace))
        if name in each.spec.providers and not each.resource.suspended and not each.resource.deleting
    }


def providers_of(cache: Cache, key: ObjectKey, labels: Mapping[str, str]) -> set[ObjectKey]:
    """Those of which an alert says that they are to be notified of an object; none that is suspended."""
    elsewhere = (each for each in cache.find(SELECTING, "", EVERY) if each.namespace != key.namespace)
    found = {
        ObjectKey(provider.KIND, each.resource.namespace, name)
        for each in _usable((*cache.of_kind(alerts.KIND, key.namespace), *elsewhere))
        if concerns(cache, each, key, labels)
        for name in each.spec.providers
    }
    there = {named: cache.get(named) for named in found}
    return {named for named, each in there.items() if each is not None and not each.suspended}


def concerns(cache: Cache, alert: Alert, key: ObjectKey, labels: Mapping[str, str]) -> bool:
    """Whether the alert is about this object, which has these labels."""
    return any(
        source.kind == key.kind
        and source.name in {EVERY, key.name}
        and source.match_labels.items() <= labels.items()
        and _reaches(cache, alert.resource.namespace, source, key)
        for source in alert.spec.event_sources
    )


def withdrawn(cache: Cache, alert: Alert, key: ObjectKey) -> bool:
    """Whether an object of another namespace is none of the alert's any more. Not before it is known which
    labels that namespace has: after a restart that is later than the object.
    """
    if key.namespace == alert.resource.namespace:
        return False
    selecting = [each for each in alert.spec.event_sources if each.namespace_selector is not None]
    if selecting and _namespace(cache, key.namespace) is None:
        return False
    return not any(
        each.kind == key.kind and _reaches(cache, alert.resource.namespace, each, key) for each in selecting
    )


def reporting_on(cache: Cache, namespace: str) -> set[str]:
    """The namespaces whose alerts may be about objects of this one."""
    return {namespace, *(each.namespace for each in cache.find(SELECTING, "", EVERY))}


def things_of(cache: Cache, alert: Alert) -> Iterator[Resource]:
    """All objects that the alert is about, each once."""
    wide = {each.kind for each in alert.spec.event_sources if each.namespace_selector is not None}
    for kind in dict.fromkeys(each.kind for each in alert.spec.event_sources):
        for thing in cache.of_kind(kind, None if kind in wide else alert.resource.namespace):
            if concerns(cache, alert, thing.key, thing.labels):
                yield thing


def _reaches(cache: Cache, namespace: str, source: EventSource, key: ObjectKey) -> bool:
    """Whether an alert in `namespace` may be about this object, as far as namespaces go."""
    if source.namespace_selector is None:
        return key.namespace == namespace
    found = _namespace(cache, key.namespace)
    if found is None or not source.namespace_selector.match_labels.items() <= found.labels.items():
        return False
    if key.namespace == namespace:
        return True
    grants = cache.of_kind(grant.KIND, key.namespace)
    return bool(granted(grants, Referring(alerts.KIND, namespace), key.name, (key.kind,)))


def _namespace(cache: Cache, name: str) -> Resource | None:
    return cache.get(ObjectKey(NAMESPACE.kind, "", name))


def _usable(found: Iterable[Resource]) -> Iterator[Alert]:
    for each in found:
        try:
            spec = usable(each)
        except InvalidSpecError:
            # Its own status says so.
            continue
        yield Alert(each, spec)
