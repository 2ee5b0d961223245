"""FlagSources over Git, buckets and registries, as the API server and its Secrets would have them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.fields import read
from controller.api.flagsource import FlagSourceSpec
from controller.api.meta import ObjectKey, Resource
from controller.api.source_spec import BucketSpec
from controller.artifacts.archive import unpack
from controller.artifacts.storage import Storages
from controller.runtime.limits import UNLIMITED, NamespaceLimits
from controller.runtime.setbacks import Setback, stall_on_invalid_text
from controller.runtime.watches import keys_to_wake
from controller.sources.backend import FetchRequest
from controller.sources.bucket_factory import BucketFactory
from controller.sources.freshness import Freshness, PendingPushes
from controller.sources.git_factory import GitFactory
from controller.sources.oci_backend import OciFactory
from controller.sources.reconciler import SourceReconciler
from controller.sources.stage import FLAG_SOURCES
from tests.statuses import find, stored_fields
from tests.worlds.objects import manifest
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from controller.runtime.cache import Change
    from controller.runtime.hosts import Hosts
    from controller.sources.backend import BackendFactory, Fetched
    from controller.sources.bucket_backend import BucketBackend
    from controller.sources.oci_backend import OciBackend

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
LOOK = FetchRequest(KEY, 30.0, Freshness(NOW, NOW))


class Beside:
    """Namespace `apps` as the API server would keep it."""

    def __init__(self, root: Path, hosts: Hosts | None = None, limits: NamespaceLimits = UNLIMITED) -> None:
        self.root = root
        self.secrets: dict[str, Mapping[str, bytes]] = {}
        self.asleep: set[ObjectKey] = set()
        self.looks: list[str] = []
        """Names, in the order in which they were reconciled."""
        self._now = NOW
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
        if self._cluster.put(manifest("FlagSource", name, asked)).generation == 1:
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


class Verified:
    """One FlagSource; Secret `trusted` holds the keys."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.trusted: Mapping[str, bytes] = {}
        self.spec: dict[str, Any] = {"interval": "10m", "git": {"url": url}}
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {"observedGeneration": -1}
        self.events: list[tuple[str, str]] = []
        self.now = NOW
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


class Opener:
    """Opens sources of one namespace, whose Secrets it has; as the controller does, one factory for all."""

    def __init__(self, secrets: Mapping[str, dict[str, bytes]], hosts: Hosts | None = None) -> None:
        self.secrets = dict(secrets)
        self.factory = OciFactory(self._secret, hosts=hosts)

    async def _secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.secrets.get(name)

    async def open(self, url: str, **oci: Any) -> OciBackend:
        """`seconds` is how long a look may take, `signers` the Secret with keys, `verify` is `spec.verify`;
        the rest `spec.oci`.
        """
        seconds = oci.pop("seconds", 60.0)
        signers = oci.pop("signers", None)
        verify = {"secretRef": {"name": signers}} if signers else oci.pop("verify", None)
        with stall_on_invalid_text():
            spec = read(
                FlagSourceSpec,
                {"interval": "1m", "oci": {"url": url, "insecure": True, **oci}, "verify": verify},
            )
        assert spec.oci is not None
        look = FetchRequest(
            ObjectKey("FlagSource", "shop", "flags"), seconds, Freshness(NOW, NOW), verify=spec.verify
        )
        return await self.factory.open(spec.oci, look)


@contextlib.asynccontextmanager
async def confined_opener(hosts: Hosts) -> AsyncIterator[Opener]:
    """Of sources that may be on some hosts alone."""
    made = Opener({}, hosts)
    try:
        yield made
    finally:
        await made.factory.close()


@contextlib.asynccontextmanager
async def opener(**secrets: dict[str, bytes]) -> AsyncIterator[Opener]:
    made = Opener(secrets)
    try:
        yield made
    finally:
        await made.factory.close()


def read_files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


async def fetch_files(source: BucketBackend, into: Path) -> tuple[Fetched, dict[str, str]]:
    """And the files, by their paths below `into`."""
    await asyncio.to_thread(into.mkdir, exist_ok=True)
    found = await source.fetch(await source.resolve(), into)
    return found, await asyncio.to_thread(read_files, into)


async def refusal_of(source: BucketBackend, into: Path) -> Setback:
    with pytest.raises(Setback) as setback:
        await fetch_files(source, into)
    return setback.value


class GitSources:
    """Secrets, sources and what is stored; its clock stands still unless it is moved."""

    def __init__(self, root: Path, url: str) -> None:
        self.url = url
        self.mirrors = root / "mirrors"
        self.secrets: dict[tuple[str, str], Mapping[str, bytes]] = {}
        self.storages = Storages(root / "artifacts", "http://artifacts")
        self.opened: list[GitFactory] = []
        self.restart(root)
        self.account: str | None = None
        """That the source names."""
        self.readers: set[str | None] = set()
        self.statuses: dict[str, dict[str, Any]] = {}
        self.now = NOW

    def restart(self, root: Path, *, mirror_bytes: int = 0) -> None:
        """Another process, which knows nothing of the one before."""
        limits = NamespaceLimits(mirror_bytes=mirror_bytes)
        self.sources = GitFactory(self.secret, root / "mirrors", limits=limits)
        self.opened.append(self.sources)
        self.reconciler = SourceReconciler({"git": self.sources}, self.storages, PendingPushes(), lambda: 0.5)

    async def close(self) -> None:
        for each in self.opened:
            await each.close()

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        self.readers.add(account)
        return self.secrets.get((namespace, name))

    def spec(self, **git: Any) -> dict[str, Any]:
        named = {} if self.account is None else {"serviceAccountName": self.account}
        return {"interval": "10m", **named, "git": {"url": self.url, **git}}

    async def look(self, name: str = "flags", *, later: float = 3600.0, **git: Any) -> bytes:
        """What `flags.json` holds, as stored."""
        self.now += timedelta(seconds=later)
        key = ObjectKey("FlagSource", "apps", name)
        status = self.statuses.get(name, {})
        resource = Resource(key, "uid", 1, "1", spec=self.spec(**git), status=status)
        result = await self.reconciler.reconcile(resource, self.now)
        if isinstance(result.outcome, Setback):
            raise result.outcome
        self.statuses[name] = {**stored_fields(result.status), "observedGeneration": 1}
        found = self.storages.read(self.statuses[name]["artifact"]["path"])
        assert found is not None
        return unpack(found)["flags.json"]

    async def fails(self, **git: Any) -> Setback:
        with pytest.raises(Setback) as setback:
            await self.look(**git)
        return setback.value
