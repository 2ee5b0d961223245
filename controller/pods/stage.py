"""Declares the changes that wake the reconcilers of Flagd and its settings kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import featureflagsource, flagd, flaggrant, inprocessconfiguration
from controller.api.kinds import DEPLOYMENT, FEATURE_FLAG_SOURCE, FLAGD, IN_PROCESS_CONFIGURATION, WORKLOADS
from controller.api.meta import ObjectKey, Resource, uid_and_spec
from controller.delivery.grants import changed_grants
from controller.pods.installation import SERVED
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.watches import Reconciles, Watch, keys_listed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.api.kind import ResourceType


_MADE: Final = frozenset({type_.kind for type_ in WORKLOADS})


def _owners(resource: Resource) -> set[str]:
    """The names of the Flagds that an object belongs to."""
    return {str(owner.get("name")) for owner in resource.owners if owner.get("kind") == flagd.KIND}


BY_SOURCE: Final = Index(
    "Flagd by FeatureFlagSource",
    frozenset({flagd.KIND}),
    lambda resource: (str(resource.spec.get("featureFlagSource")),),
)
BY_OWNER: Final = Index("workloads by Flagd", _MADE, _owners)


def _content(resource: Resource | None) -> object:
    """Return the fields that we write, and the state of the Deployment's pods."""
    if resource is None:
        return None
    health = resource.status if resource.key.kind == DEPLOYMENT.kind else None
    return resource.uid, resource.spec, resource.labels, resource.annotations, resource.owners, health


def _owners_of_change(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """The Flagds that own the object now, and those that owned it before."""
    for resource in (change.before, change.after):
        if resource is not None:
            yield from (ObjectKey(flagd.KIND, resource.namespace, name) for name in _owners(resource))


def _readers_of_grant(kind: str) -> Callable[[Cache, Change], Iterator[ObjectKey]]:
    """The objects of `kind` in the namespaces that a grant names, and named before."""

    def keys(cache: Cache, change: Change) -> Iterator[ObjectKey]:
        for grant in changed_grants(cache, change):
            listed = grant.spec.get("from")
            for entry in listed if isinstance(listed, list) else ():
                if isinstance(entry, dict):
                    yield from (resource.key for resource in cache.of_kind(kind, str(entry.get("namespace"))))

    return keys


def _place(resource: Resource, given: object) -> str:
    """Resolve a name to `NAMESPACE/NAME`."""
    place, _, name = str(given).removeprefix("core.openfeature.dev/").rpartition("/")
    return f"{place or resource.namespace}/{name}"


def _sources(resource: Resource) -> set[str]:
    listed = resource.spec.get("sources")
    entries = listed if isinstance(listed, list) else ()
    return {_place(resource, entry.get("source")) for entry in entries if isinstance(entry, dict)}


BY_FLAGS: Final = Index(
    "FeatureFlagSource by flag set", frozenset({featureflagsource.KIND}), _sources, everywhere=True
)
BY_SELECTOR: Final = Index(
    "InProcessConfiguration by flag set",
    frozenset({inprocessconfiguration.KIND}),
    lambda resource: {_place(resource, resource.spec.get("selector"))},
    everywhere=True,
)


def _settings_stage(type_: ResourceType, index: Index) -> Reconciles:
    return Reconciles(
        type_,
        wakes=(
            Watch(
                frozenset(SERVED),
                changed=lambda resource: resource is None,
                keys=keys_listed_by(index, lambda resource: f"{resource.namespace}/{resource.name}"),
            ),
            Watch(frozenset({flaggrant.KIND}), changed=uid_and_spec, keys=_readers_of_grant(type_.kind)),
        ),
        indexes=(index,),
    )


FEATURE_FLAG_SOURCES: Final = _settings_stage(FEATURE_FLAG_SOURCE, BY_FLAGS)
IN_PROCESS_CONFIGURATIONS: Final = _settings_stage(IN_PROCESS_CONFIGURATION, BY_SELECTOR)


FLAGDS: Final = Reconciles(
    FLAGD,
    wakes=(
        Watch(frozenset({featureflagsource.KIND}), changed=uid_and_spec, keys=keys_listed_by(BY_SOURCE)),
        Watch(frozenset({flaggrant.KIND}), changed=uid_and_spec, keys=_readers_of_grant(flagd.KIND)),
        Watch(_MADE, changed=_content, keys=_owners_of_change),
    ),
    indexes=(BY_SOURCE, BY_OWNER),
)
