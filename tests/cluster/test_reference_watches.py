"""Watches of Secrets on the real API server: where they are, and what they transfer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.kinds import SECRET
from controller.api.meta import ObjectKey, Resource
from controller.kube import reflector, requests
from controller.kube.client import Cluster
from controller.kube.reflector import ReferenceWatches
from controller.runtime.cache import Cache
from controller.runtime.informer import Informer, transforms_of
from controller.runtime.watch_health import WatchHealth
from controller.sources.stage import BY_SECRET
from tests.cluster.controllers import SYSTEM
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.runtime.cache import Change
    from tests.cluster.plane import Plane

CONTENT = "hunter2-of-the-shop"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@contextlib.asynccontextmanager
async def run_watches(
    plane: Plane, changes: list[Change]
) -> AsyncIterator[tuple[Cache, ReferenceWatches, WatchHealth]]:
    """Watches of Secrets for a cache that nobody else feeds; `changes` are those of Secrets."""
    cache, clock = Cache([BY_SECRET]), asyncio.get_running_loop().time
    health = WatchHealth(clock)
    api = await Cluster.connect(str(plane.kubeconfig))
    informer = Informer(cache, transforms_of([SECRET]), shared=True)
    watches = ReferenceWatches(api.api, informer, (BY_SECRET,), health)

    def note_change(change: Change) -> None:
        watches.on_change(change)
        if change.latest.key.kind == "Secret":
            changes.append(change)

    cache.react(note_change)
    running = asyncio.create_task(watches.run())
    try:
        yield cache, watches, health
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()


def source(namespace: str, **git: Any) -> Resource:
    return Resource(ObjectKey("FlagSource", namespace, "flags"), f"u-{namespace}", 1, "1", spec={"git": git})


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """All bytes that lists and watches receive."""
    read, found = requests.read_object, bytearray()

    async def read_and_note(text: bytes) -> dict[str, Any]:
        found.extend(text)
        return await read(text)

    monkeypatch.setattr(reflector, "read_object", read_and_note)
    return found


async def test_a_watch_transfers_no_content_of_a_secret(
    cluster: Plane, namespace: str, received: bytearray
) -> None:
    secret = ObjectKey("Secret", namespace, "git")
    create = ("create", "secret", "generic", "git", "-n", namespace)
    await asyncio.to_thread(cluster.kubectl, *create, f"--from-literal=password={CONTENT}")
    changes: list[Change] = []
    async with run_watches(cluster, changes) as (cache, _, health):
        cache.learn(source(namespace, secretRef={"name": "git"}))
        await until(lambda: cache.get(secret) and is_connected(health))
        changes.clear()
        patch = f'{{"stringData": {{"password": "{CONTENT}-changed"}}}}'
        await asyncio.to_thread(cluster.kubectl, "patch", "secret", "git", "-n", namespace, "-p", patch)
        await until(lambda: changes)
    assert changes[0].latest.key == secret
    assert b"PartialObjectMetadata" in received
    assert b'"git"' in received
    # Of the last bytes the encoding depends on what follows.
    assert base64.b64encode(CONTENT.encode())[:16] not in received
    assert b'"data"' not in received


async def test_secrets_are_watched_only_where_one_is_referred_to_and_while_it_is(
    cluster: Plane, namespace: str
) -> None:
    async with run_watches(cluster, []) as (cache, watches, health):
        open_source, private = source(SYSTEM), source(namespace, secretRef={"name": "git"})
        cache.learn(open_source)
        cache.learn(private)
        await until(lambda: is_connected(health))
        assert watches.namespaces == [namespace]
        cache.learn(replace(private, generation=2, resource_version="2", spec={"git": {}}))
        await until(lambda: not watches.namespaces)
        assert health.of("secrets") is None
        assert cache.of_kind("Secret") == []


def is_connected(health: WatchHealth) -> bool:
    report = health.of("secrets")
    return report is not None and report.connected
