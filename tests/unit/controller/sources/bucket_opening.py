"""Sources of a cluster that has Secrets alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controller.api.meta import ObjectKey
from controller.api.source_spec import BucketSpec
from controller.sources.backend import FetchRequest
from controller.sources.bucket_factory import BucketFactory
from controller.sources.freshness import Freshness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.runtime.hosts import Hosts
    from controller.sources.bucket_backend import BucketBackend

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
LOOK = FetchRequest(ObjectKey("FlagSource", "apps", "flags"), 30.0, Freshness(_NOW, _NOW))


class Cluster:
    """Secrets by their names, and the factory that reads them."""

    def __init__(self, login: Mapping[str, str], hosts: Hosts | None = None) -> None:
        self.secrets: dict[str, Mapping[str, str]] = {"bucket": login}
        self.factory = BucketFactory(self.read, hosts)

    async def read(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        assert namespace == "apps"
        found = self.secrets.get(name)
        return None if found is None else {key: text.encode() for key, text in found.items()}

    async def open(self, spec: dict[str, Any]) -> BucketBackend:
        return await self.factory.open(BucketSpec.model_validate(spec), LOOK)
