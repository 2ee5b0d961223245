"""Declares the changes that wake the reconcilers of FlagProvider and FlagAlert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagalert, flaggrant, flagprovider, flagset
from controller.api.flagalert import EVERY
from controller.api.kinds import FLAG_ALERT, FLAG_PROVIDER, NAMESPACE, SECRET
from controller.api.meta import COMPARED_WITH, ObjectKey, Resource, generation_of, secret_names, version_of
from controller.delivery.grants import changed_grants
from controller.delivery.object_bounds import GRANTS
from controller.delivery.overrides import BY_WRITER
from controller.delivery.rollouts import ROLLOUTS_BY_FLAG_SET
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by

if TYPE_CHECKING:
    from collections.abc import Iterable


def _provider_names(resource: Resource) -> set[str]:
    several = resource.spec.get("providerRefs")
    references = (resource.spec.get("providerRef"), *(several if isinstance(several, list) else ()))
    return {str(reference.get("name")) for reference in references if isinstance(reference, dict)}


BY_SECRET: Final = Index(
    "FlagProvider by Secret", frozenset({flagprovider.KIND}), lambda resource: secret_names(resource.spec)
)
BY_PROVIDER: Final = Index("FlagAlert by FlagProvider", frozenset({flagalert.KIND}), _provider_names)


def _selector_keys(resource: Resource) -> set[str]:
    sources = resource.spec.get("eventSources")
    sources_ = sources if isinstance(sources, list) else ()
    return (
        {EVERY}
        if any(isinstance(source, dict) and "namespaceSelector" in source for source in sources_)
        else set()
    )


BY_COMPARED: Final = Index(
    "FlagSet by the one it is compared with",
    frozenset({flagset.KIND}),
    lambda resource: filter(None, [resource.annotations.get(COMPARED_WITH)]),
)
SELECTING: Final = Index(
    "FlagAlert by namespaceSelector", frozenset({flagalert.KIND}), _selector_keys, everywhere=True
)
"""Alerts with a namespaceSelector, under the key `*`."""


def _providers(alerts: Iterable[Resource | None]) -> set[ObjectKey]:
    """Return the providers that alerts name."""
    known = (resource for resource in alerts if resource is not None)
    return {
        ObjectKey(flagprovider.KIND, resource.namespace, name)
        for resource in known
        for name in _provider_names(resource)
    }


def _named_providers(_cache: Cache, change: Change) -> Iterable[ObjectKey]:
    """Return the providers that an alert names now, and those before its change."""
    return _providers((change.before, change.after))


def _labels_of(resource: Resource | None) -> object:
    return None if resource is None else (resource.uid, dict(resource.labels))


def alert_namespaces_of(grant_: Resource) -> set[str]:
    """Return the namespaces whose alerts a grant lets in, valid or not."""
    sources = grant_.spec.get("from")
    allowed = (source for source in sources if isinstance(source, dict)) if isinstance(sources, list) else ()
    return {str(source.get("namespace")) for source in allowed if source.get("kind") == flagalert.KIND}


def _admitted_providers(cache: Cache, change: Change) -> Iterable[ObjectKey]:
    """Return the providers of the alerts to which a changed grant, or the grants of a namespace, apply."""
    if change.latest.key.kind == NAMESPACE.kind:
        grants = GRANTS.oldest(cache.of_kind(flaggrant.KIND, change.latest.name))
    else:
        grants = list(changed_grants(cache, change))
    namespaces = {name for resource in grants for name in alert_namespaces_of(resource)}
    if change.latest.key.kind == NAMESPACE.kind:
        namespaces.add(change.latest.name)
    alerts = (resource for name in namespaces for resource in cache.of_kind(flagalert.KIND, name))
    return _providers(resource for resource in alerts if _selector_keys(resource))


FLAG_PROVIDERS: Final = Reconciles(
    FLAG_PROVIDER,
    wakes=(
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=keys_listed_by(BY_SECRET)),
        Watch(frozenset({flagalert.KIND}), changed=generation_of, keys=_named_providers),
        Watch(frozenset({flaggrant.KIND}), changed=generation_of, keys=_admitted_providers),
        Watch(frozenset({NAMESPACE.kind}), changed=_labels_of, keys=_admitted_providers),
    ),
    indexes=(BY_SECRET,),
)
FLAG_ALERTS: Final = Reconciles(
    FLAG_ALERT,
    wakes=(Watch(frozenset({flagprovider.KIND}), changed=generation_of, keys=keys_listed_by(BY_PROVIDER)),),
    indexes=(BY_PROVIDER, SELECTING, BY_COMPARED, BY_WRITER, ROLLOUTS_BY_FLAG_SET),
)
