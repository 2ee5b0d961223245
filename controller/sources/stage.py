"""What wakes the reconciler of FlagSource. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagsource
from controller.api.kinds import FLAG_SOURCE, SECRET
from controller.api.meta import secret_names, version_of
from controller.runtime.cache import Index
from controller.runtime.watches import Reconciles, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.meta import ObjectKey
    from controller.runtime.cache import Cache, Change

BY_SECRET: Final = Index(
    "FlagSource by Secret",
    frozenset({flagsource.KIND}),
    lambda each: {name for part in each.spec.values() for name in secret_names(part)},
)


def _users(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    secret = change.latest
    return (each.key for each in cache.find(BY_SECRET, secret.namespace, secret.name))


FLAG_SOURCES: Final = Reconciles(
    FLAG_SOURCE,
    wakes=(Watch(frozenset({SECRET.kind}), changed=version_of, keys=_users),),
    indexes=(BY_SECRET,),
)
