"""Clusters in memory that FlagSets write to besides their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from controller.api.flagset import LABEL, manager_of, owned_by_flag_set
from controller.flagsets.places import MISSING
from controller.flagsets.stage import BY_OWNER
from controller.runtime.cache import Cache
from controller.runtime.setbacks import Setback, Waiting
from tests.worlds.stages import RecordingCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.kube_config import KubeConfig
    from controller.api.meta import ObjectKey, Resource


class OtherCluster(RecordingCluster):
    """Implements RemoteObjects."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__()
        self.objects = Cache((BY_OWNER,))
        # Its uids are of its own.
        self._version = 1_000 * number
        self.server = f"https://{name}:6443"
        self.down: Setback | None = None
        """What every request comes to."""

    async def written_by(self, flag_set: ObjectKey) -> list[Resource]:
        self._require_up()
        manager = manager_of(flag_set)
        return [
            one
            for one in self.objects
            if one.labels.get(LABEL) == flag_set.name
            and manager in one.managers
            and not owned_by_flag_set(one)
        ]

    async def find(self, key: ObjectKey) -> Resource | None:
        self._require_up()
        return self.objects.get(key)

    async def apply(self, manifest: Mapping[str, Any], *, manager: str) -> tuple[dict[str, Any], str]:
        self._require_up()
        return await super().apply(manifest, manager=manager)

    def kinds(self) -> list[str]:
        """`Kind/name` of each object."""
        return sorted(f"{one.key.kind}/{one.name}" for one in self.objects)

    def _require_up(self) -> None:
        if self.down is not None:
            raise self.down


@dataclass
class OtherClusters:
    """Implements RemoteClusters: clusters by the name of the Secret with their kubeconfig."""

    own: RecordingCluster
    by_secret: dict[str, OtherCluster] = field(default_factory=dict)
    accounts: list[str | None] = field(default_factory=list)
    """The accounts that were to write there."""

    def add(self, name: str) -> OtherCluster:
        return self.by_secret.setdefault(name, OtherCluster(name, len(self.by_secret) + 1))

    async def open(self, namespace: str, config: KubeConfig, account: str | None) -> OtherCluster:
        assert namespace == self.own.namespace
        assert config.secret_ref is not None
        self.accounts.append(account)
        if config.secret_ref.name not in self.by_secret:
            raise Waiting(MISSING, f"{config} does not exist")
        return self.by_secret[config.secret_ref.name]

    async def set_finalizers(self, resource: Resource, finalizers: tuple[str, ...]) -> Resource | None:
        known = self.own.the(resource.key.kind, resource.name)
        if known.deleting and not finalizers:
            self.own.objects.forget(known.key)
            return None
        changed = replace(known, finalizers=finalizers)
        self.own.objects.put(changed)
        return changed
