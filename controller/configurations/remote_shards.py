"""Writes the FlagShards with the flags of remote providers, and removes those that nobody reads any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.objects.meta import API_VERSION, ObjectKey, Resource
from controller.api.openfeature import featureflagconfiguration
from controller.api.remote_provider import ProviderShard
from controller.api.rollouts.flagrollout import LABEL
from controller.configurations.stage import SHARDS_BY_OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from controller.runtime.objects.applier import Applier
    from controller.runtime.objects.cache import Cache

MANAGER: Final = "flagstaff-remote-flags"
"""The field manager."""
GRACE: Final = 60.0
"""Seconds for which a shard outlives the status that named it."""


@dataclass(frozen=True, slots=True)
class RemoteShards:
    """The FlagShards of all objects with a remote provider; each is owned by its object."""

    objects: Cache
    writer: Callable[[str, str | None], Applier]
    """(namespace, service account) -> who writes with its rights, or with those of the installation."""
    _outdated: dict[ObjectKey, datetime] = field(default_factory=dict)
    """The time since which a shard is not named."""

    def has_all(self, namespace: str, shards: Iterable[ProviderShard]) -> bool:
        """Whether each of these is there, with its content."""
        return all(self._has(namespace, shard.name, shard.digest) for shard in shards)

    async def write(
        self, resource: Resource, shards: Iterable[tuple[str, dict[str, Any]]], account: str | None
    ) -> tuple[ProviderShard, ...]:
        """Write those that are not there. Raises Setback."""
        written = []
        writer = self.writer(resource.namespace, account)
        for name, spec in shards:
            if not self._has(resource.namespace, name, spec["digest"]):
                body, _ = await writer.apply(_manifest(resource, name, spec), manager=MANAGER)
                # Its event arrives later, and what is delivered is composed now.
                self.objects.learn(Resource.of(body))
            written.append(ProviderShard(name=name, digest=spec["digest"]))
        return tuple(written)

    async def sweep(
        self, resource: Resource, named: Collection[str], account: str | None, now: datetime
    ) -> float | None:
        """Remove the object's shards that were not `named` for a while; return the seconds until the next may
        be removed. Raises Setback.
        """
        waits = []
        for shard in self.objects.find(SHARDS_BY_OWNER, resource.namespace, resource.name):
            # Promoted definitions of a rollout have the object as second owner.
            others = LABEL in shard.labels or not shard.is_owned_by(resource)
            if shard.name in named or others or shard.deleting:
                self._outdated.pop(shard.key, None)
                continue
            # Not later than now, should the clock have been set back.
            since = self._outdated[shard.key] = min(self._outdated.get(shard.key, now), now)
            left = GRACE - (now - since).total_seconds()
            if left > 0:
                waits.append(left)
                continue
            writer = self.writer(resource.namespace, account)
            await writer.delete(API_VERSION, flagshard.KIND, shard.namespace, shard.name, uid=shard.uid)
            self._outdated.pop(shard.key, None)
        return min(waits, default=None)

    def _has(self, namespace: str, name: str, digest: str) -> bool:
        shard = self.objects.get(ObjectKey(flagshard.KIND, namespace, name))
        return shard is not None and not shard.deleting and shard.spec.get("digest") == digest


def _manifest(resource: Resource, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    owner = resource.owner_reference | {"kind": featureflagconfiguration.KIND, "controller": True}
    metadata = {"name": name, "namespace": resource.namespace, "labels": {}, "ownerReferences": [owner]}
    return {"apiVersion": API_VERSION, "kind": flagshard.KIND, "metadata": metadata, "spec": spec}
