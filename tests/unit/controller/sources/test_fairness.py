"""A namespace whose servers never answer, and one beside it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.conditions import READY, find
from controller.api.flagsource import KIND
from controller.api.meta import ObjectKey, Resource
from controller.artifacts.storages import Storages
from controller.runtime.loop import Loop, Objects
from controller.sources.expected import Expected
from controller.sources.opening import GIT_AT_ONCE, Sources
from controller.sources.reconciler import SourceReconciler
from controller.sources.threads import GitThreads
from controller.wiring.cluster import SOURCES_AT_ONCE, queue_of
from tests.git_http import git_server
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from controller.runtime.news import News

HUNG = 100
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=HUNG) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def git_port(tmp_path: Path) -> Iterator[int]:
    Repository(tmp_path / "repository").commit("first", flags__json="1")
    with git_server(tmp_path) as running:
        yield running.server_port


class World:
    """All that stands between an object and its status, but for the API server."""

    def __init__(self, root: Path) -> None:
        self.objects = Objects()
        self.storages = Storages(root / "artifacts", "http://artifacts")
        self.sources = Sources(self.secret, root / "mirrors")
        reconciler = SourceReconciler(self.sources, self.storages, Expected(), random.random)
        self.loop = Loop(
            reconciler, self.objects, self, now=lambda: NOW, queue=queue_of(KIND, 8), observer=self
        )
        self.ready: dict[ObjectKey, asyncio.Event] = {}

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        raise AssertionError(f"{namespace}/{name} is nobody's")

    def reconciled(self, key: ObjectKey, result: str, seconds: float) -> None: ...

    async def say(self, resource: Resource, news: News) -> None: ...

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource:
        if (find(status["conditions"], READY) or {}).get("status") == "True":
            self.ready[resource.key].set()
        return replace(resource, status=status)

    def full(self, namespace: str) -> bool:
        """Whether the namespace has all that it may have, and more wait."""
        git = self.sources.threads._shares
        waiting = len(git._waiting.get(namespace, ()))
        many = len(self.loop.queue._taken) == SOURCES_AT_ONCE // 2
        return many and git._taken[namespace] + waiting == SOURCES_AT_ONCE // 2

    def see(self, namespace: str, name: str, url: str) -> asyncio.Event:
        """Set once it is Ready."""
        key = ObjectKey(KIND, namespace, name)
        spec = {"interval": "10m", "timeout": "10m", "git": {"url": url}}
        self.ready[key] = asyncio.Event()
        self.objects.learn(Resource(key, f"{namespace}-{name}", 1, "1", spec=spec))
        self.loop.wake(key)
        return self.ready[key]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    task = asyncio.create_task(world.loop.run())
    yield world
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    world.storages.close()


async def test_servers_that_never_answer_hold_up_no_other_namespace(
    world: World, silent: int, git_port: int
) -> None:
    for number in range(HUNG):
        world.see("hung", f"source-{number}", f"http://127.0.0.1:{silent}/{number}")
    async with asyncio.timeout(30):
        while not world.full("hung"):  # noqa: ASYNC110 - state of the code under test
            await asyncio.sleep(0.01)
        for namespace in ("one", "another"):
            ready = world.see(namespace, "flags", f"http://127.0.0.1:{git_port}/repository/.git")
            await ready.wait()
    assert not any(each.is_set() for key, each in world.ready.items() if key.namespace == "hung")


@pytest.fixture
async def threads() -> GitThreads:
    return GitThreads(GIT_AT_ONCE)


async def test_a_namespace_gets_half_of_the_threads_and_all_its_calls_in_the_end(
    threads: GitThreads,
) -> None:
    gate, most = threading.Event(), GIT_AT_ONCE // 2
    begun = threading.Semaphore(0)

    def call() -> int:
        begun.release()
        assert gate.wait(30)
        return 1

    calls = [asyncio.ensure_future(threads.run("apps", call)) for _ in range(40)]
    for _ in range(most):
        assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert await threads.run("other", lambda: 2) == 2
    assert not begun.acquire(blocking=False)
    gate.set()
    assert await asyncio.gather(*calls) == [1] * 40


async def test_who_gives_up_leaves_its_turn_to_the_next_and_keeps_no_place() -> None:
    threads, gate = GitThreads(1), threading.Event()
    first = asyncio.ensure_future(threads.run("apps", lambda: gate.wait(30)))
    given_up = [asyncio.ensure_future(threads.run("apps", lambda: False)) for _ in range(3)]
    await asyncio.sleep(0)
    for each in given_up:
        each.cancel()
    gate.set()
    assert await first
    assert await threads.run("other", lambda: 3) == 3


async def test_a_place_is_kept_for_as_long_as_the_thread_that_nobody_waits_for() -> None:
    threads, gate, begun = GitThreads(1), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        assert gate.wait(30)

    given_up = asyncio.ensure_future(threads.run("apps", call))
    await asyncio.sleep(0)
    assert await asyncio.to_thread(begun.wait, 30)
    given_up.cancel()
    waits = asyncio.ensure_future(threads.run("other", lambda: 4))
    await asyncio.gather(given_up, return_exceptions=True)
    assert not waits.done()
    gate.set()
    assert await waits == 4


async def test_a_call_that_fails_gives_its_place_back() -> None:
    threads = GitThreads(1)

    def fail() -> None:
        raise KeyError("no")

    for _ in range(2):
        with pytest.raises(KeyError):
            await threads.run("apps", fail)
