"""Takes in what the watches send: one watch for each kind, however many subscribe.

Nothing is delivered until every kind was listed once: a FeatureFlag is served only where there is no
FeatureFlagConfiguration, and before that no object can be called missing.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagoverride, flagrollout, flagshard
from controller.api.meta import ObjectKey
from controller.delivery.claims import KINDS, UNCHANGED, ClaimChange

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from controller.proxy.deliveries import Deliveries

_log = logging.getLogger(__name__)

PROGRESS: Final = (flagoverride.KIND, flagrollout.KIND)
"""The kinds that say what is served instead of what is desired."""


class CatalogSink:
    """Implements the Reflector's `Sink`: objects go into the catalog, and changes to the subscribers."""

    def __init__(self, deliveries: Deliveries, namespaces: Collection[str] = ("",)) -> None:
        """`namespaces` are watched one by one; an empty name is all of them."""
        self._catalog = deliveries.catalog
        self._deliveries = deliveries
        self._progress = deliveries.contents.progress
        # Before progress is known, a flag that is switched off would be delivered as Git has it.
        self._unlisted = set(itertools.product((*KINDS, *PROGRESS), namespaces))

    def learn(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take in an object. A malformed one is logged and affects no other."""
        change = UNCHANGED
        try:
            if kind in PROGRESS:
                self._progress.learn(kind, body)
            else:
                change = self._catalog.learn(kind, body)
                self._note_shard(kind, body["metadata"]["namespace"], body["metadata"]["name"])
        except (KeyError, TypeError, AttributeError):
            _log.exception("a malformed %s was sent", kind)
            return
        self._notify(change)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        if kind in PROGRESS:
            self._progress.forget(kind, namespace, name)
            return
        self._notify(self._catalog.forget(kind, namespace, name))
        self._progress.forget_target(ObjectKey(kind, namespace, name))
        self._note_shard(kind, namespace, name)

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
        if not self._unlisted and not self._deliveries.synced:
            self._deliveries.ready()

    def _note_shard(self, kind: str, namespace: str, name: str) -> None:
        if kind == flagshard.KIND:
            self._progress.on_shard(namespace, name)
            self._notify(ClaimChange(places=frozenset(self._catalog.places_promoted_by(namespace, name))))

    def _notify(self, change: ClaimChange) -> None:
        if change != UNCHANGED and self._deliveries.synced:
            self._deliveries.on_change(change)
