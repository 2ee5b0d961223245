"""FlagSources beside each other over Git repositories, reconciled when and only when something wakes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from controller.api.objects.meta import ObjectKey, Resource
from controller.artifacts.archive import unpack
from controller.artifacts.storages import Storages
from controller.runtime.objects.cache import Cache, Change
from controller.runtime.reconciling.settle import settle
from controller.runtime.reconciling.watches import indexes_of, woken
from controller.runtime.tenancy.limits import UNLIMITED, NamespaceLimits
from controller.sources.freshness import PendingPushes
from controller.sources.git.git_factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from controller.sources.stage import FLAG_SOURCES
from tests.statuses import find

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.runtime.tenancy.hosts import Hosts


class Beside:
    """Namespace `apps` as the API server would keep it."""

    def __init__(self, root: Path, hosts: Hosts | None = None, limits: NamespaceLimits = UNLIMITED) -> None:
        self.root = root
        self.secrets: dict[str, Mapping[str, bytes]] = {}
        self.asleep: set[ObjectKey] = set()
        self.looks: list[str] = []
        """Names, in the order in which they were reconciled."""
        self._version = 0
        self._now = datetime(2026, 1, 2, tzinfo=UTC)
        self.objects = Cache(indexes_of([FLAG_SOURCES]), on_change=self._changed)
        self.storages = Storages(root / "artifacts", "http://artifacts")
        self.git = GitFactory(self._secret, root / "mirrors", allow_local=True, hosts=hosts, limits=limits)
        self.reconciler = SourceReconciler(
            {"git": self.git}, self.storages, PendingPushes(), lambda: 0.5, objects=self.objects
        )

    async def _secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.secrets.get(name)

    def _changed(self, change: Change) -> None:
        self.asleep |= woken([FLAG_SOURCES], self.objects, change)

    async def apply(self, name: str, url: str, *, git: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """Create it, or give it another spec, and let happen what comes of that."""
        key = ObjectKey("FlagSource", "apps", name)
        before = self.objects.get(key)
        self._version += 1
        asked = {"interval": "10m", "git": {"url": url, **(git or {})}, **spec}
        status = before.status if before is not None else {"observedGeneration": -1}
        generation = before.generation + 1 if before is not None else 1
        self.objects.put(Resource(key, name, generation, str(self._version), asked, status))
        await self.settle()

    async def look(self, name: str) -> None:
        """As when its interval is over."""
        self.asleep.add(ObjectKey("FlagSource", "apps", name))
        await self.settle()

    async def delete(self, name: str) -> None:
        key = ObjectKey("FlagSource", "apps", name)
        self.objects.forget(key)
        self.reconciler.forget(key)
        await self.settle()

    async def settle(self) -> None:
        """Reconcile the sources that are woken, until none is."""
        while self.asleep:
            assert len(self.looks) < 100, self.looks
            key = self.asleep.pop()
            found = self.objects.get(key)
            if found is None:
                continue
            self.looks.append(found.name)
            self._now += timedelta(hours=1)
            after = settle(found, await self.reconciler.reconcile(found, self._now), self._now)
            if after.status != found.status:
                self._version += 1
                spec, generation = found.spec, found.generation
                changed = Resource(key, found.uid, generation, str(self._version), spec, after.status)
                self.objects.put(changed)

    def status(self, name: str = "flags") -> Mapping[str, Any]:
        found = self.objects.get(ObjectKey("FlagSource", "apps", name))
        assert found is not None
        return found.status

    def condition(self, kind: str = "Ready", name: str = "flags") -> tuple[str, str, str]:
        """(status, reason, message); empty where there is none."""
        found = find(self.status(name), kind) or {}
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def files(self, name: str = "flags") -> dict[str, str]:
        """What its artifact holds."""
        found = self.storages.read(self.status(name)["artifact"]["path"])
        assert found is not None
        return {path: content.decode() for path, content in unpack(found).items()}

    async def close(self) -> None:
        await self.git.close()
