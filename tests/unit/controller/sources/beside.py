"""FlagSources beside each other over Git repositories, reconciled when and only when something wakes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from controller.api.meta import API_VERSION, ObjectKey
from controller.artifacts.archive import unpack
from controller.artifacts.storage import Storages
from controller.runtime.limits import UNLIMITED, NamespaceLimits
from controller.runtime.watches import keys_to_wake
from controller.sources.freshness import PendingPushes
from controller.sources.git_factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from controller.sources.stage import FLAG_SOURCES
from tests.statuses import find
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.runtime.cache import Change
    from controller.runtime.hosts import Hosts


class Beside:
    """Namespace `apps` as the API server would keep it."""

    def __init__(self, root: Path, hosts: Hosts | None = None, limits: NamespaceLimits = UNLIMITED) -> None:
        self.root = root
        self.secrets: dict[str, Mapping[str, bytes]] = {}
        self.asleep: set[ObjectKey] = set()
        self.looks: list[str] = []
        """Names, in the order in which they were reconciled."""
        self._now = datetime(2026, 1, 2, tzinfo=UTC)
        self._cluster = RecordingCluster([FLAG_SOURCES], "apps")
        self.objects = self._cluster.objects
        self.objects.react(self._on_change)
        self.storages = Storages(root / "artifacts", "http://artifacts")
        self.git = GitFactory(self._secret, root / "mirrors", allow_local=True, hosts=hosts, limits=limits)
        self.reconciler = SourceReconciler(
            {"git": self.git}, self.storages, PendingPushes(), lambda: 0.5, objects=self.objects
        )

    async def _secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.secrets.get(name)

    def _on_change(self, change: Change) -> None:
        self.asleep |= keys_to_wake([FLAG_SOURCES], self.objects, change)

    async def apply(self, name: str, url: str, *, git: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """Create it, or give it another spec, and let happen what comes of that."""
        asked = {"interval": "10m", "git": {"url": url, **(git or {})}, **spec}
        body = {"apiVersion": API_VERSION, "kind": "FlagSource", "metadata": {"name": name}, "spec": asked}
        if self._cluster.put(body).generation == 1:
            self._cluster.set_status(self._cluster.the("FlagSource", name), {"observedGeneration": -1})
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
            turn = await take_turn(self.reconciler, found, self._now)
            if turn.status_written:
                self._cluster.set_status(found, turn.status)

    def status(self, name: str = "flags") -> Mapping[str, Any]:
        return self._cluster.the("FlagSource", name).status

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
