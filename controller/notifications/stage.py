"""What wakes the reconcilers of FlagProvider and FlagAlert. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import alert, provider
from controller.api.kinds import FLAG_ALERT, FLAG_PROVIDER, SECRET
from controller.api.meta import ObjectKey, secret_names, version_of
from controller.runtime.cache import Index
from controller.runtime.watches import Reconciles, Watch, listed_by

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache, Change


def _provider_names(resource: Resource) -> set[str]:
    several = resource.spec.get("providerRefs")
    found = (resource.spec.get("providerRef"), *(several if isinstance(several, list) else ()))
    return {str(each.get("name")) for each in found if isinstance(each, dict)}


BY_SECRET: Final = Index(
    "FlagProvider by Secret", frozenset({provider.KIND}), lambda each: secret_names(each.spec)
)
BY_PROVIDER: Final = Index("FlagAlert by FlagProvider", frozenset({alert.KIND}), _provider_names)


def _spec_of(resource: Resource | None) -> object:
    return None if resource is None else (resource.uid, resource.generation)


def _chosen(cache: Cache, change: Change) -> Iterable[ObjectKey]:
    """The providers that an alert names, and named before."""
    del cache
    return {
        ObjectKey(provider.KIND, each.namespace, name)
        for each in (change.before, change.after)
        if each is not None
        for name in _provider_names(each)
    }


FLAG_PROVIDERS: Final = Reconciles(
    FLAG_PROVIDER,
    wakes=(
        Watch(frozenset({SECRET.kind}), changed=version_of, keys=listed_by(BY_SECRET)),
        Watch(frozenset({alert.KIND}), changed=_spec_of, keys=_chosen),
    ),
    indexes=(BY_SECRET,),
)
FLAG_ALERTS: Final = Reconciles(
    FLAG_ALERT,
    wakes=(Watch(frozenset({provider.KIND}), changed=_spec_of, keys=listed_by(BY_PROVIDER)),),
    indexes=(BY_PROVIDER,),
)
