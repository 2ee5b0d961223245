"""A namespace whose servers never answer, and one beside it."""

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.flagsource import KIND
from controller.api.meta import ObjectKey, Resource
from controller.api.status import READY
from controller.app.reconcilers import SOURCES_AT_ONCE, queue_of
from controller.artifacts.storage import Storages
from controller.runtime.cache import Cache
from controller.runtime.limits import NamespaceLimits, Places
from controller.runtime.loop import Loop, Outputs
from controller.sources.freshness import PendingPushes
from controller.sources.git_factory import GIT_AT_ONCE, GitFactory
from controller.sources.reconciler import SourceReconciler
from tests.git_http import git_server
from tests.repositories import Repository
from tests.statuses import find
from tests.waiting import run_beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path


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


class SourceLoop:
    """All that stands between an object and its status, but for the API server."""

    def __init__(self, root: Path, most: int = 0) -> None:
        """`most`: Git programs of one namespace; 0: no limit."""
        self.objects = Cache()
        self.storages = Storages(root / "artifacts", "http://artifacts")
        self.sources = GitFactory(self.secret, root / "mirrors", limits=NamespaceLimits(git_processes=most))
        reconciler = SourceReconciler({"git": self.sources}, self.storages, PendingPushes(), random.random)
        self.loop = Loop(
            reconciler, self.objects, Outputs(self, self), now=lambda: NOW, queue=queue_of(KIND, 8)
        )
        self.ready: dict[ObjectKey, asyncio.Event] = {}

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        raise AssertionError(f"{namespace}/{name} is nobody's")

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None: ...

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource:
        if (find(status, READY) or {}).get("status") == "True":
            self.ready[resource.key].set()
        return replace(resource, status=status)

    def full(self, namespace: str) -> bool:
        """Whether the namespace has all that it may have, and more wait."""
        return self.count_running(namespace) + self.count_waiting(namespace) == SOURCES_AT_ONCE // 2

    def count_running(self, namespace: str) -> int:
        """How many of its git processes run."""
        return self.sources.places.usage().get(namespace, 0)

    def count_waiting(self, namespace: str) -> int:
        """How many of its git processes wait for their turn."""
        return self.sources.places.count_waiting().get(namespace, 0)

    def see(self, namespace: str, name: str, url: str) -> asyncio.Event:
        """Set once it is Ready."""
        key = ObjectKey(KIND, namespace, name)
        spec = {"interval": "10m", "timeout": "10m", "git": {"url": url}}
        self.ready[key] = asyncio.Event()
        self.objects.learn(Resource(key, f"{namespace}-{name}", 1, "1", spec=spec))
        self.loop.wake(key)
        return self.ready[key]


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SourceLoop]:
    world = SourceLoop(tmp_path, getattr(request, "param", 0))
    async with run_beside(world.loop.run()):
        yield world
    await world.sources.close()
    world.storages.close()


async def test_servers_that_never_answer_hold_up_no_other_namespace(
    world: SourceLoop, silent: int, git_port: int
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


async def test_many_namespaces_whose_servers_never_answer_hold_up_no_other(
    world: SourceLoop, silent: int, git_port: int
) -> None:
    hung = [f"hung-{number}" for number in range(12)]
    for namespace in hung:
        for number in range(HUNG // 10):
            world.see(namespace, f"source-{number}", f"http://127.0.0.1:{silent}/{namespace}/{number}")
    async with asyncio.timeout(60):
        while not all(map(world.count_running, hung)):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        ready = world.see("one", "flags", f"http://127.0.0.1:{git_port}/repository/.git")
        await ready.wait()


@pytest.mark.parametrize("world", [2], indirect=True)
async def test_a_namespace_runs_no_more_of_git_than_its_quota(
    world: SourceLoop, silent: int, git_port: int
) -> None:
    for number in range(HUNG):
        world.see("hung", f"source-{number}", f"http://127.0.0.1:{silent}/{number}")
    async with asyncio.timeout(60):
        while world.count_waiting("hung") < SOURCES_AT_ONCE // 2 - 2:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        assert world.count_running("hung") == 2
        await world.see("one", "flags", f"http://127.0.0.1:{git_port}/repository/.git").wait()


@pytest.fixture
async def places() -> Places:
    return Places(GIT_AT_ONCE)


async def hold(places: Places, namespace: str, begun: asyncio.Semaphore, gate: asyncio.Event) -> int:
    async with places.place(namespace):
        begun.release()
        await gate.wait()
        return 1


async def test_a_namespace_gets_half_of_the_places_and_all_its_calls_in_the_end(places: Places) -> None:
    gate, begun, elsewhere = asyncio.Event(), asyncio.Semaphore(0), asyncio.Semaphore(0)
    calls = [asyncio.ensure_future(hold(places, "apps", begun, gate)) for _ in range(40)]
    other = asyncio.ensure_future(hold(places, "other", elsewhere, gate))
    async with asyncio.timeout(30):
        for _ in range(GIT_AT_ONCE // 2):
            await begun.acquire()
        await elsewhere.acquire()
    assert begun.locked()
    gate.set()
    assert await asyncio.gather(*calls, other) == [1] * 41


async def test_a_cancelled_task_leaves_its_turn_to_the_next_and_keeps_no_place() -> None:
    places, gate, begun = Places(1), asyncio.Event(), asyncio.Semaphore(0)
    first = asyncio.ensure_future(hold(places, "apps", begun, gate))
    cancelled = [asyncio.ensure_future(hold(places, "apps", begun, gate)) for _ in range(3)]
    await asyncio.sleep(0)
    for each in cancelled:
        each.cancel()
    gate.set()
    assert await first == 1
    async with asyncio.timeout(30):
        assert await hold(places, "other", begun, gate) == 1


async def test_a_block_that_fails_gives_its_place_back() -> None:
    places = Places(1)
    for _ in range(2):
        with pytest.raises(KeyError):
            async with asyncio.timeout(30), places.place("apps"):
                raise KeyError("no")
