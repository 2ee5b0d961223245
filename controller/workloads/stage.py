"""What wakes the reconciler of Flagd. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import featureflagsource, flagd, grant
from controller.api.kinds import DEPLOYMENT, FLAGD, WORKLOADS
from controller.api.meta import ObjectKey
from controller.runtime.cache import Index
from controller.runtime.watches import Reconciles, Watch, listed_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache, Change

_MADE: Final = frozenset({each.kind for each in WORKLOADS})


def _owners(resource: Resource) -> set[str]:
    """The names of the Flagds that an object belongs to."""
    return {str(each.get("name")) for each in resource.owners if each.get("kind") == flagd.KIND}


BY_SOURCE: Final = Index(
    "Flagd by FeatureFlagSource",
    frozenset({flagd.KIND}),
    lambda each: (str(each.spec.get("featureFlagSource")),),
)
BY_OWNER: Final = Index("workloads by Flagd", _MADE, _owners)


def _settings(found: Resource | None) -> object:
    return None if found is None else (found.uid, found.spec)


def _content(resource: Resource | None) -> object:
    """What we write, and how the Deployment's pods do. Nothing else of a status, such as an address."""
    if resource is None:
        return None
    health = resource.status if resource.key.kind == DEPLOYMENT.kind else None
    return resource.uid, resource.spec, resource.labels, resource.annotations, resource.owners, health


def _owning(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Whose it is, and whose it was."""
    for each in (change.before, change.after):
        if each is not None:
            yield from (ObjectKey(flagd.KIND, each.namespace, name) for name in _owners(each))


def _granted(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """The Flagds of the namespaces that a grant names, and named before."""
    for each in (change.before, change.after):
        listed = each.spec.get("from") if each is not None else ()
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict):
                yield from (found.key for found in cache.of_kind(flagd.KIND, str(entry.get("namespace"))))


FLAGDS: Final = Reconciles(
    FLAGD,
    wakes=(
        Watch(frozenset({featureflagsource.KIND}), changed=_settings, keys=listed_by(BY_SOURCE)),
        Watch(frozenset({grant.KIND}), changed=_settings, keys=_granted),
        Watch(_MADE, changed=_content, keys=_owning),
    ),
    indexes=(BY_SOURCE, BY_OWNER),
)
