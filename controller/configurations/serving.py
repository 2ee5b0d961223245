"""Who serves a FeatureFlagConfiguration, beside the verdict on it: the FlagReceipts of all proxies, summed up
by the leader alone.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from controller.api import receipt, shard
from controller.api.conditions import PROPAGATED, Condition, find, read
from controller.api.meta import ObjectKey
from controller.api.receipt import FlagReceiptStatus, receipt_name
from controller.configurations.propagation import FIELDS, propagation
from controller.delivery.members import count
from controller.runtime.setbacks import Setback
from controller.runtime.settle import Outcome

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import Resource
    from controller.configurations.live_proxies import LiveProxies
    from controller.configurations.propagation import Propagation
    from controller.runtime.cache import Cache
    from controller.runtime.loop import Reconciler

PACE: Final = 1.0
"""Seconds between two writes of who serves it."""
BYTES_PER_SECOND: Final = 100_000
"""A status is written together with its spec: that of a megabyte every ten seconds."""


@dataclass(slots=True)
class _Kept:
    judged: tuple[Any, ...]
    result: Outcome | Setback
    pace: float
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ServingReconciler:
    """Adds to what `verdict` says of an object who serves it."""

    verdict: Reconciler
    objects: Cache
    proxies: LiveProxies
    _kept: dict[ObjectKey, _Kept] = field(default_factory=dict)

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Judge where the content is another, sum up, and write no more often than is good for the API
        server. Raises Setback.
        """
        kept = await self._judged(resource, now)
        digest = kept.result.status.get("digest")
        told = await self._propagation(resource, digest, now) if digest else None
        status, details, again = self._paced(resource, kept, told, now)
        result = kept.result
        waits = [each for each in (result.requeue_after, again) if each is not None]
        requeue_after = min(waits, default=None)
        if isinstance(result, Outcome):
            return Outcome(
                message=result.message,
                reason=result.reason,
                status={**result.status, **status},
                details=details,
                requeue_after=requeue_after,
            )
        setback = type(result)(
            result.reason,
            result.message,
            status={**result.status, **dict.fromkeys(FIELDS), **status},
            details=details,
            requeue_after=requeue_after,
        )
        setback.ended = (PROPAGATED,)
        raise setback from result

    def forget(self, key: ObjectKey) -> None:
        """It is gone."""
        self._kept.pop(key, None)
        self.verdict.forget(key)

    async def _judged(self, resource: Resource, now: datetime) -> _Kept:
        """The verdict, which is of the content: receipts come far more often than that changes."""
        judged = (resource.uid, resource.generation, *self._parts(resource))
        kept = self._kept.get(resource.key)
        if kept is not None and kept.judged == judged:
            return kept
        try:
            result: Outcome | Setback = await self.verdict.reconcile(resource, now)
        except Setback as setback:
            result = setback
        size = await asyncio.to_thread(lambda: len(json.dumps(resource.spec)))
        told_at = None if kept is None else kept.told_at
        kept = _Kept(judged, result, max(PACE, size / BYTES_PER_SECOND), told_at)
        self._kept[resource.key] = kept
        return kept

    def _parts(self, resource: Resource) -> list[tuple[str, str]]:
        keys = [ObjectKey(shard.KIND, resource.namespace, name) for name in shard.names(resource.spec)]
        found = [self.objects.get(key) for key in keys]
        return [(each.name, each.resource_version) for each in found if each is not None]

    async def _propagation(self, resource: Resource, digest: str, now: datetime) -> Propagation | None:
        receipts = self.receipts(resource)
        if not receipts:
            return None
        summed = await asyncio.to_thread(count, receipts, digest)
        what = self._kept[resource.key].result.status.get("revision") or digest
        return propagation(summed, what, resource.status, now)

    def receipts(self, resource: Resource) -> list[FlagReceiptStatus]:
        """What living proxies tell of this very object."""
        found = []
        for proxy in self.proxies.alive:
            name = receipt_name(resource.name, proxy)
            each = self.objects.get(ObjectKey(receipt.KIND, resource.namespace, name))
            if each is None or not any(one.get("uid") == resource.uid for one in each.owners):
                continue
            try:
                found.append(FlagReceiptStatus.model_validate(each.status))
            except ValidationError:
                # Nobody but a proxy writes these; what cannot be read counts for nothing.
                continue
        return found

    def _paced(
        self, resource: Resource, kept: _Kept, told: Propagation | None, now: datetime
    ) -> tuple[dict[str, Any], tuple[Condition, ...], float | None]:
        """(fields, condition, seconds to the next look): the new ones, or those of before for as long as it
        is too soon.
        """
        before = {name: resource.status[name] for name in FIELDS if name in resource.status}
        known = find(resource.status.get("conditions") or (), PROPAGATED)
        condition = () if told is None else (told.condition,)
        fields = {} if told is None else told.status
        stated = () if known is None else (read(known),)
        same = before == fields and stated == condition
        fresh = kept.result.status.get("digest") != resource.status.get("digest")
        if not same and not fresh and kept.told_at is not None:
            wait = kept.pace - (now - kept.told_at).total_seconds()
            if wait > 0:
                return before, stated, wait
        if not same:
            kept.told_at = now
        return fields, condition, None if told is None else told.again
