"""Takes in what the watches send: one watch for each kind, however many subscribe.

Nothing is delivered until every kind was listed once: a FeatureFlag is served only where there is no
FeatureFlagConfiguration, and before that no object can be called missing.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

from controller.api import flagoverride
from controller.delivery.claims import KINDS, UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from controller.delivery.claims import ClaimChange
    from controller.proxy.streams.deliveries import Deliveries

_log = logging.getLogger(__name__)


class CatalogSink:
    """Implements the Reflector's `Sink`: objects go into the catalog, and changes to the subscribers."""

    def __init__(self, deliveries: Deliveries, namespaces: Collection[str] = ("",)) -> None:
        """`namespaces` are watched one by one; an empty name is all of them."""
        self._catalog = deliveries.catalog
        self._deliveries = deliveries
        self._overrides = deliveries.contents.overrides
        # Before the overrides are known, a flag that is switched off would be delivered as Git has it.
        self._unlisted = set(itertools.product((*KINDS, flagoverride.KIND), namespaces))

    def learn(self, kind: str, body: Mapping[str, Any]) -> None:
        """Take in an object. A malformed one is logged and affects no other."""
        change = UNCHANGED
        try:
            if kind == flagoverride.KIND:
                self._overrides.learn(body)
            else:
                change = self._catalog.learn(kind, body)
        except (KeyError, TypeError, AttributeError):
            _log.exception("a malformed %s was sent", kind)
            return
        self._notify(change)

    def forget(self, kind: str, namespace: str, name: str) -> None:
        """Remove a deleted object."""
        if kind == flagoverride.KIND:
            self._overrides.forget(namespace, name)
            return
        self._notify(self._catalog.forget(kind, namespace, name))

    def end_listing(self, kind: str, namespace: str) -> None:
        """Note that all objects of this kind and namespace were reported."""
        self._unlisted.discard((kind, namespace))
        if not self._unlisted and not self._deliveries.synced:
            self._deliveries.ready()

    def _notify(self, change: ClaimChange) -> None:
        if change != UNCHANGED and self._deliveries.synced:
            self._deliveries.on_change(change)
