"""Quotas on the sum over all objects of one kind in a namespace. Pure."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from controller.api.kinds import status_of
from controller.runtime.objects.cache import Cache, Index
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.reconciling.watches import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from controller.api.meta import ObjectKey, Resource
    from controller.runtime.objects.cache import Change

REASON: Final = "QuotaExceeded"


def over(what: str, namespace: str, total: int, most: int, option: str) -> Stalled:
    """The refusal of what would be `total` of a namespace, which may have `most` by `option`."""
    return Stalled(
        REASON,
        f"{what} of namespace {namespace}: {total}, and its quota is {most}; "
        f"remove some, or have the quota raised ({option})",
    )


class Quota:
    """A limit for each namespace. The oldest objects come first, and what an object has is not taken from it:
    it may not grow.
    """

    def __init__(
        self,
        what: str,
        most: Callable[[str], int],
        *,
        used: Callable[[Resource], int],
        objects: Cache,
        option: str,
    ) -> None:
        """`what`: what is limited, in messages; `most`: of a namespace, 0 for no limit; `used`: what an
        object has by its status; `option` sets the limit.
        """
        self._what = what
        self._most = most
        self._used = used
        self._objects = objects
        self._option = option
        self._claimed: dict[ObjectKey, tuple[str, int]] = {}
        """What each object was granted, with its uid, whether its status shows it yet or not."""

    def require(self, resource: Resource, wanted: int = 1) -> None:
        """Grant the object `wanted`. Raises Stalled (QuotaExceeded) if that exceeds the quota."""
        most = self._most(resource.namespace)
        total = self._total(resource, wanted) if most else 0
        if total > most:
            raise over(self._what, resource.namespace, total, most, self._option)
        # Also without a limit: there may be one later.
        self._claimed[resource.key] = (resource.uid, wanted)

    @contextlib.contextmanager
    def given(self, key: ObjectKey) -> Iterator[None]:
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
        for each in self._objects.of_kind(resource.key.kind, resource.namespace):
            if each.key != resource.key:
                has = self._has(each)
                if (each.created, each.name) < age:
                    older += has
                else:
                    younger += has
        grows = wanted > self._has(resource)
        return older + wanted + (younger if grows else 0)

    def _has(self, resource: Resource) -> int:
        claim = self._claimed.get(resource.key)
        return self._used(resource) if claim is None or claim[0] != resource.uid else claim[1]


UNLIMITED: Final = Quota("", lambda _: 0, used=lambda _: 0, objects=Cache(), option="")


def exceeded(kind: str) -> Index:
    """Lists, under `QuotaExceeded`, objects that were refused."""
    return Index(
        f"{kind} over a quota",
        frozenset({kind}),
        lambda each: (REASON,) if status_of(each).failure == REASON else (),
    )


def room_made(kind: str, index: Index, used: Callable[[Resource], int]) -> Watch:
    """Wakes those that `index` lists where an object beside them goes, or has less than before."""

    def woken(cache: Cache, change: Change) -> list[ObjectKey]:
        before, after = change.before, change.after
        if after is not None and (before is None or used(after) >= used(before)):
            return []
        return [each.key for each in cache.find(index, change.latest.namespace, REASON)]

    return Watch(frozenset({kind}), changed=lambda each: None if each is None else used(each), keys=woken)


def refused_there(cache: Cache, indexes: Iterable[Index], namespace: str) -> Iterator[ObjectKey]:
    """The objects that are over a quota of the namespace, as each index of `exceeded` lists them."""
    return (each.key for index in indexes for each in cache.find(index, namespace, REASON))
