"""Threads that namespaces share."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from controller.runtime.queue import KeyedQueue
from evaluator.host.threads import FairThreads, share_threads, work_for
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no thread is left behind."""
    gate = threading.Event()
    yield gate
    gate.set()


async def test_work_of_a_namespace_that_never_ends_delays_no_other_namespace(gate: threading.Event) -> None:
    share_threads()
    with work_for("large"):
        blocked = [asyncio.create_task(asyncio.to_thread(gate.wait)) for _ in range(200)]
        await asyncio.sleep(0)
    for namespace in ("shop", "till", ""):
        with work_for(namespace):
            assert await asyncio.to_thread(lambda: 7) == 7
    gate.set()
    assert await asyncio.gather(*blocked) == [True] * 200


async def test_each_of_many_namespaces_that_keep_their_threads_has_one(gate: threading.Event) -> None:
    threads = FairThreads(4, resource="x")
    started = []

    def work(name: str) -> None:
        started.append(name)
        gate.wait()

    for name in "abcd":
        with work_for(name):
            for _ in range(9):
                threads.submit(work, name)
    await until(lambda: len(started) == 5)
    assert sorted({*started}) == ["a", "b", "c", "d"]
    gate.set()
    await until(lambda: len(started) == 36)
    threads.shutdown()


async def test_work_that_is_cancelled_while_it_waits_is_never_begun(gate: threading.Event) -> None:
    threads = FairThreads(1, resource="x")
    threads.submit(gate.wait)
    called: list[int] = []
    cancelled = threads.submit(called.append, 1)
    assert cancelled.cancel()
    after = asyncio.wrap_future(threads.submit(called.append, 2))
    gate.set()
    await after
    assert called == [2]
    threads.shutdown()


async def test_an_exception_of_the_work_is_raised_where_it_is_awaited() -> None:
    share_threads()
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 / 0)


async def test_a_queue_works_for_the_namespace_of_each_key(gate: threading.Event) -> None:
    share_threads()
    clock = asyncio.get_running_loop().time
    queue: KeyedQueue[str] = KeyedQueue(clock, lambda: 0.0, places=64, firsts=64, group=lambda key: key[0])
    done = []

    async def handler(key: str) -> None:
        await asyncio.to_thread(gate.wait if key.startswith("a") else bool)
        done.append(key)

    for number in range(30):
        queue.put(f"a{number}")
    task = asyncio.create_task(queue.work(handler, lambda _key, _setback: None))
    queue.put("b1")
    await until(lambda: done == ["b1"])
    gate.set()
    await until(lambda: len(done) == 31)
    task.cancel()
    await asyncio.wait([task])
