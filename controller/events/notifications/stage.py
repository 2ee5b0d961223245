"""Declares the changes that wake the reconcilers of FlagProvider and FlagAlert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import alert, grant, provider
from controller.api.alert import EVERY
from controller.api.kinds import FLAG_ALERT, FLAG_PROVIDER, NAMESPACE, SECRET
from controller.api.objects.meta import ObjectKey, generation_of, secret_names, version_of
from controller.runtime.objects.cache import Index
from controller.runtime.reconciling.watches import Reconciles, Watch, listed_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache, Change


def _provider_names(resource: Resource) -> set[str]:
    several = resource.spec.get("providerRefs")
    found = (resource.spec.get("providerRef"), *(several if isinstance(several, list) else ()))
    return {str(each.get("name")) for each in found if isinstance(each, dict)}


BY_SECRET: Final = Index(
    "FlagProvider by Secret", frozenset({provider.KIND}), lambda each: secret_names(each.spec)
)
BY_PROVIDER: Final = Index("FlagAlert by FlagProvider", frozenset({alert.KIND}), _provider_names)


def _selecting(resource: Resource) -> set[str]:
    sources = resource.spec.get("eventSources")
    found = sources if isinstance(sources, list) else ()
    return {EVERY} if any(isinstance(each, dict) and "namespaceSelector" in each for each in found) else set()


SELECTING: Final = Index(
    "FlagAlert by namespaceSelector", frozenset({alert.KIND}), _selecting, everywhere=True
)
"""Alerts with a namespaceSelector, under the key `*`."""


def _providers(alerts: Iterable[Resource | None]) -> set[ObjectKey]:
    """Return the providers that alerts name."""
    found = (each for each in alerts if each is not None)
    return {
        ObjectKey(provider.KIND, each.namespace, name) for each in found for name in _provider_names(each)
    }


def _chosen(_cache: Cache, change: Change) -> Iterable[ObjectKey]:
    """Return the providers that an alert names now, and those before its change."""
    return _providers((change.before, change.after))


def _labels_of(resource: Resource | None) -> object:
    return None if resource is None else (resource.uid, dict(resource.labels))


def _selected(cache: Cache, _change: Change) -> Iterable[ObjectKey]:
    """Return the providers of the alerts that select namespaces."""
    return _providers(cache.find(SELECTING, "", EVERY))


FLAG_PROVIDERS: Final = Reconciles(
    FLAG_PROVIDER,
    wakes=(
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=listed_by(BY_SECRET)),
        Watch(frozenset({alert.KIND}), changed=generation_of, keys=_chosen),
        Watch(frozenset({grant.KIND}), changed=generation_of, keys=_selected),
        Watch(frozenset({NAMESPACE.kind}), changed=_labels_of, keys=_selected),
    ),
    indexes=(BY_SECRET,),
)
FLAG_ALERTS: Final = Reconciles(
    FLAG_ALERT,
    wakes=(Watch(frozenset({provider.KIND}), changed=generation_of, keys=listed_by(BY_PROVIDER)),),
    indexes=(BY_PROVIDER, SELECTING),
)
