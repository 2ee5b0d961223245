"""A quota on bytes that the objects of one kind have in a namespace together. Pure."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.kinds import status_of
from controller.runtime.cache import Cache, Change, Index
from controller.runtime.setbacks import QUOTA_EXCEEDED, over_quota
from controller.runtime.watches import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from controller.api.meta import ObjectKey, Resource


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of each namespace. The oldest objects come first, and what an object has is not taken from it:
    it may not grow.
    """

    noun: str
    """What is limited, in messages."""
    option: str
    """The option that sets the limit."""
    most: int
    """0: no limit."""
    used: Callable[[Resource], int]
    """Return what an object has by its status."""
    objects: Cache
    _claimed: dict[ObjectKey, tuple[str, int]] = field(default_factory=dict)
    """What each object was granted, with its uid, whether its status shows it yet or not."""

    def require(self, resource: Resource, wanted: int) -> None:
        """Grant the object `wanted`. Raises Stalled (QuotaExceeded) if that exceeds the quota."""
        if not self.most:
            return
        total = self._total(resource, wanted)
        if total > self.most:
            raise over_quota(self.noun, resource.namespace, total, self.most, self.option)
        self._claimed[resource.key] = (resource.uid, wanted)

    @contextlib.contextmanager
    def release_on_error(self, key: ObjectKey) -> Iterator[None]:
        """Run the block that uses the granted amount. Where the block fails, the object counts again with the
        amount that its status shows.
        """
        try:
            yield
        except BaseException:
            self.forget(key)
            raise

    def forget(self, key: ObjectKey) -> None:
        """Forget the amount of a deleted object."""
        self._claimed.pop(key, None)

    def _total(self, resource: Resource, wanted: int) -> int:
        """Return the sum with `wanted`: of older objects, and if the object grows of all others, too."""
        older = younger = 0
        age = (resource.created, resource.name)
        for other in self.objects.of_kind(resource.key.kind, resource.namespace):
            if other.key != resource.key:
                has = self._has(other)
                if (other.created, other.name) < age:
                    older += has
                else:
                    younger += has
        grows = wanted > self._has(resource)
        return older + wanted + (younger if grows else 0)

    def _has(self, resource: Resource) -> int:
        claim = self._claimed.get(resource.key)
        return self.used(resource) if claim is None or claim[0] != resource.uid else claim[1]


UNLIMITED: Final = Quota("", "", 0, lambda _: 0, Cache())


def index_of_refused(kind: str) -> Index:
    """Lists, under `QuotaExceeded`, objects that were refused."""
    return Index(
        f"{kind} over a quota",
        frozenset({kind}),
        lambda resource: (QUOTA_EXCEEDED,) if status_of(resource).failure == QUOTA_EXCEEDED else (),
    )


def wake_when_freed(kind: str, index: Index, used: Callable[[Resource], int]) -> Watch:
    """Wakes those that `index` lists where an object beside them goes, or has less than before."""

    def keys_to_wake(cache: Cache, change: Change) -> list[ObjectKey]:
        before, after = change.before, change.after
        if after is not None and (before is None or used(after) >= used(before)):
            return []
        return [resource.key for resource in cache.find(index, change.latest.namespace, QUOTA_EXCEEDED)]

    return Watch(
        frozenset({kind}),
        changed=lambda resource: None if resource is None else used(resource),
        keys=keys_to_wake,
    )
