"""What a proxy keeps of the objects that it watches, and who reacts to their changes.

Nothing is delivered until every kind was listed once: a FeatureFlag is served only where there is no
FeatureFlagConfiguration, and before that no object can be called missing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagoverride, flagrollout, flagshard
from controller.api.kinds import FLAG_OVERRIDE, POD
from controller.api.meta import ObjectKey, Resource
from controller.delivery.claims import KINDS, UNCHANGED, ClaimChange
from controller.delivery.overrides import BY_FLAG_SET
from controller.delivery.rollouts import ROLLOUTS_BY_FLAG_SET, ROLLOUTS_BY_SHARD, TARGETS_BY_SHARD
from controller.proxy.catalog import delivered
from controller.proxy.orders import ORDER_KINDS, without_content
from controller.proxy.progress_objects import rollout
from controller.runtime.cache import Cache, Change
from controller.runtime.informer import Informer, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from controller.proxy.deliveries import Deliveries
    from controller.proxy.orders import OrderObjects

PROGRESS: Final = (flagoverride.KIND, flagrollout.KIND)
"""The kinds that say what is served instead of what is desired."""
# Before progress is known, a flag that is switched off would be delivered as Git has it.
DELIVERING: Final = (*KINDS, *PROGRESS)
"""The kinds without which nothing is delivered."""
_INDEXES: Final = (BY_FLAG_SET, ROLLOUTS_BY_FLAG_SET, ROLLOUTS_BY_SHARD, TARGETS_BY_SHARD)


def informer_of_objects() -> Informer:
    """Return the one of objects with flags, of progress, and of standing orders."""
    transforms = {
        **{kind: delivered(kind) for kind in KINDS},
        flagoverride.KIND: whole(FLAG_OVERRIDE),
        flagrollout.KIND: rollout,
        **{kind: without_content(kind) for kind in ORDER_KINDS},
    }
    return Informer(Cache(_INDEXES), transforms)


class Reactions:
    """What a proxy does when objects change, and when they were listed."""

    def __init__(
        self, informer: Informer, deliveries: Deliveries, orders: OrderObjects, namespaces: Collection[str]
    ) -> None:
        """`namespaces` are watched one by one; an empty name is all of them."""
        self._informer = informer
        self._catalog = deliveries.catalog
        self._deliveries = deliveries
        self._orders = orders
        self._progress = deliveries.contents.progress
        self._namespaces = namespaces
        informer.store.react(self._on_change)
        informer.react_to_list(self._on_list)

    def _on_change(self, change: Change) -> None:
        key = change.latest.key
        if key.kind in PROGRESS:
            self._progress.follow(change)
        elif key.kind in KINDS:
            claimed = self._catalog.follow(change)
            if change.after is None:
                self._progress.forget_target(key)
            if key.kind == flagshard.KIND:
                self._progress.on_shard(key.namespace, key.name)
                promoted = self._catalog.places_promoted_by(key.namespace, key.name)
                self._notify(ClaimChange(places=frozenset(promoted)))
            self._notify(claimed)
        else:
            self._orders.follow(change)

    def _on_list(self) -> None:
        if not self._deliveries.synced and self._informer.has_listed(DELIVERING, self._namespaces):
            self._deliveries.ready()
        self._orders.on_list()

    def _notify(self, change: ClaimChange) -> None:
        if change != UNCHANGED and self._deliveries.synced:
            self._deliveries.on_change(change)


REMEMBERED: Final = 20_000
"""Most deleted Pods to remember: a process that outlives its Pod continues to report for a while."""


class PodUids:
    """Implements `members.Pods`: the Pods that were deleted, from a watch of their metadata alone. It has an
    informer of its own: that of orders holds just those Pods that have a label.
    """

    def __init__(
        self, gone: Callable[[str], None] = lambda _uid: None, *, remembered: int = REMEMBERED
    ) -> None:
        """`gone` is called with the uid of each Pod that is gone."""
        self.gone = gone
        self.informer = Informer(Cache(remembered=remembered), {POD.kind: _pod})
        self.informer.store.react(self._on_change)

    def has_ended(self, uid: str) -> bool:
        """Return whether a Pod with this uid was deleted; the last REMEMBERED are known."""
        return self.informer.store.was_deleted(uid)

    def _on_change(self, change: Change) -> None:
        before = change.before
        if before is not None and before.uid and (change.after is None or change.after.uid != before.uid):
            # Also where one of that name was made in its place.
            self.gone(before.uid)


def _pod(body: Mapping[str, Any], known: Resource | None) -> Resource:
    meta = body["metadata"]
    uid = str(meta.get("uid") or "")
    if known is not None and known.uid == uid:
        return known
    # There are many, in few namespaces.
    namespace = sys.intern(str(meta.get("namespace") or ""))
    return Resource(ObjectKey(POD.kind, namespace, meta["name"]), uid, 0, "")
