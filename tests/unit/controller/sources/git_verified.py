"""A FlagSource with `spec.verify`, as the API server would keep it, over a repository on this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from controller.api.meta import ObjectKey, Resource
from controller.artifacts.archive import unpack
from controller.artifacts.storage import Storages
from controller.sources.freshness import PendingPushes
from controller.sources.git_factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from tests.statuses import find
from tests.worlds.stages import take_turn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from controller.sources.backend import BackendFactory

KEY = ObjectKey("FlagSource", "apps", "flags")


class Verified:
    """One FlagSource; Secret `trusted` holds the keys."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.trusted: Mapping[str, bytes] = {}
        self.spec: dict[str, Any] = {"interval": "10m", "git": {"url": url}}
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {"observedGeneration": -1}
        self.events: list[tuple[str, str]] = []
        self.now = datetime(2026, 1, 2, tzinfo=UTC)
        self.opened: list[BackendFactory[Any]] = []
        self.restart()

    def restart(self) -> None:
        """Another process over the same disk and object."""
        self.storages = Storages(self.root / "artifacts", "http://artifacts")
        name, factory = self.backend_factory()
        self.opened.append(factory)
        self.reconciler = SourceReconciler({name: factory}, self.storages, PendingPushes(), lambda: 0.5)

    def backend_factory(self) -> tuple[str, BackendFactory[Any]]:
        """Its field of the spec, and what opens it."""
        return "git", GitFactory(self.secret, self.root / "mirrors", allow_local=True)

    async def close(self) -> None:
        for each in self.opened:
            await each.close()

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.trusted if name == "trusted" else None

    def verify(self, mode: str = "HEAD", **git: Any) -> None:
        """Ask for signatures."""
        self.spec["git"].update(git)
        self.spec["verify"] = {"mode": mode, "secretRef": {"name": "trusted"}}

    async def look(self) -> str:
        """The reason of Ready."""
        self.now += timedelta(hours=1)
        resource = Resource(
            KEY, "uid", 1, "1", spec=self.spec, status=self.status, annotations=self.annotations
        )
        settled = (await take_turn(self.reconciler, resource, self.now)).settled
        self.status = settled.status
        self.events = [(each.reason, each.message) for each in settled.events]
        return self.condition("Ready")[1]

    def condition(self, kind: str) -> tuple[str, str, str]:
        """(status, reason, message); empty where there is none."""
        found = find(self.status, kind) or {}
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    @property
    def stored(self) -> str:
        """What `flags.json` holds, as others are given it."""
        return self.files["flags.json"].decode()

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the artifact."""
        archive = self.storages.read(self.status["artifact"]["path"])
        assert archive is not None
        return unpack(archive)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.status["artifact"]["metadata"])
