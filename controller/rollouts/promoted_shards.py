"""Writes the FlagShards with promoted definitions, and removes those that no status names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.flagrollout import LABEL
from controller.api.meta import API_VERSION, ObjectKey, Resource
from controller.rollouts.stage import SHARDS_BY_ROLLOUT
from controller.runtime.shards import WHOLE, Shard
from evaluator.flags.canonical import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from controller.runtime.cache import Applier, Cache
    from evaluator.flags.model import FlagSet

MANAGER: Final = "flagstaff-rollouts"
"""The field manager."""
GRACE: Final = 60.0
"""Seconds for which a shard outlives the status that named it."""
_DIGITS: Final = 12
_LONGEST_NAME: Final = 253


def shard_name(rollout: str, digest: str) -> str:
    """Return the name of the FlagShard with promoted definitions of a digest, `sha256:<hex>`."""
    end = f"-promoted-{digest.partition(':')[2][:_DIGITS]}"
    return rollout[: _LONGEST_NAME - len(end)].rstrip(".-") + end


@dataclass(frozen=True, slots=True)
class PromotedShards:
    """The FlagShards of all rollouts. Each has two owners, the rollout and the object with the flags, and
    stays until both are gone.
    """

    objects: Cache
    writer: Callable[[str], Applier]
    """The writer in a namespace."""
    shard: Shard = WHOLE
    """What is written gets its labels of the FlagRollout."""
    _outdated: dict[ObjectKey, datetime] = field(default_factory=dict)
    """Since when no status names a shard."""

    async def write(self, rollout: Resource, target: Resource, digest: str, flag_set: FlagSet) -> None:
        """Write promoted definitions, unless they are there with these owners. Raises Setback."""
        name = shard_name(rollout.name, digest)
        known = self.objects.get(ObjectKey(flagshard.KIND, rollout.namespace, name))
        labels = {LABEL: rollout.name[:63].rstrip("-._")} | self.shard.labels_of(rollout.labels)
        # A shard of an earlier FlagRollout of this name has another owner, so it would not be removed.
        if (
            known is not None
            and not known.deleting
            and known.labels.items() >= labels.items()
            and all(map(known.is_owned_by, (rollout, target)))
        ):
            return
        manifest = {
            "apiVersion": API_VERSION,
            "kind": flagshard.KIND,
            "metadata": {
                "name": name,
                "namespace": rollout.namespace,
                "labels": labels,
                "ownerReferences": [rollout.owner_reference, target.owner_reference],
            },
            "spec": {"digest": digest, "flagSpec": _document(flag_set)},
        }
        body, _ = await self.writer(rollout.namespace).apply(manifest, manager=MANAGER)
        # The watch reports it later than the status that names it is written.
        self.objects.learn(Resource.of(body))

    async def sweep(self, rollout: Resource, named: Collection[str], now: datetime) -> float | None:
        """Remove the rollout's shards that were not `named` for a while; return the seconds until the next
        may be removed. Raises Setback.
        """
        waits = []
        for shard in self.objects.find(SHARDS_BY_ROLLOUT, rollout.namespace, rollout.uid):
            if shard.name in named or shard.deleting:
                self._outdated.pop(shard.key, None)
                continue
            # Not later than now, should the clock have been set back.
            since = self._outdated[shard.key] = min(self._outdated.get(shard.key, now), now)
            left = GRACE - (now - since).total_seconds()
            if left > 0:
                waits.append(left)
                continue
            writer = self.writer(rollout.namespace)
            await writer.delete(API_VERSION, flagshard.KIND, shard.namespace, shard.name, uid=shard.uid)
            self._outdated.pop(shard.key, None)
        return min(waits, default=None)


def _document(flag_set: FlagSet) -> dict[str, Any]:
    """The definitions as flagd's JSON, with their provenance."""
    document: dict[str, Any] = json.loads(canonical(flag_set, provenance=True))
    return document
