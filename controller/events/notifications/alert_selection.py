"""The alerts of an object and the objects of an alert, also of namespaces that grant it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api import alert as alerts
from controller.api import grant, provider
from controller.api.alert import EVERY, FlagAlertSpec
from controller.api.kinds import NAMESPACE
from controller.api.objects.fields import InvalidSpecError, read
from controller.api.objects.meta import ObjectKey
from controller.delivery.grants import Referring, granted
from controller.events.notifications.alert_filter import Alert
from controller.events.notifications.stage import SELECTING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.alert import EventSource
    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache


def alerts_of(cache: Cache, namespace: str, name: str) -> dict[str, Alert]:
    """Return the usable alerts of a provider, by name."""
    return {
        each.resource.name: each
        for each in _usable(cache.of_kind(alerts.KIND, namespace))
        if name in each.spec.providers and not each.resource.suspended and not each.resource.deleting
    }


def providers_of(cache: Cache, key: ObjectKey, labels: Mapping[str, str]) -> set[ObjectKey]:
    """Return the unsuspended providers that an alert selects for an object."""
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
    """Whether an object of another namespace is no longer selected by the alert. False until the namespace's
    labels are cached, which after a restart is later than the object.
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
    """Return the namespaces whose alerts may select objects of this one."""
    return {namespace, *(each.namespace for each in cache.find(SELECTING, "", EVERY))}


def things_of(cache: Cache, alert: Alert) -> Iterator[Resource]:
    """Yield the objects that the alert selects, each once."""
    wide = {each.kind for each in alert.spec.event_sources if each.namespace_selector is not None}
    for kind in dict.fromkeys(each.kind for each in alert.spec.event_sources):
        for thing in cache.of_kind(kind, None if kind in wide else alert.resource.namespace):
            if concerns(cache, alert, thing.key, thing.labels):
                yield thing


def _reaches(cache: Cache, namespace: str, source: EventSource, key: ObjectKey) -> bool:
    """Whether an alert in `namespace` may select objects of this object's namespace."""
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
            spec = read(FlagAlertSpec, each.spec)
        except InvalidSpecError:
            # The error is in its own status.
            continue
        yield Alert(each, spec)
