"""Threads that namespaces share."""

from __future__ import annotations

import asyncio
import threading

import pytest

from controller.notifications.sending.threads import THREADS, Threads


async def test_a_place_is_free_once_its_thread_ended_and_not_before() -> None:
    threads, hung_up, ended = Threads("test"), threading.Event(), threading.Event()

    def work(_seconds: float) -> None:
        hung_up.wait()
        ended.set()

    with pytest.raises(TimeoutError):
        await threads.run("shop", 0.01, work, hung_up.set)
    assert ended.is_set()
    threads.close()


async def test_nothing_is_waited_for_at_the_cost_of_the_time_that_work_has() -> None:
    threads, go = Threads("test"), threading.Event()
    begun = [
        asyncio.create_task(threads.run("shop", 60.0, lambda _: go.wait(), lambda: None))
        for _ in range(THREADS)
    ]
    late = asyncio.create_task(threads.run("shop", 1.0, lambda seconds: seconds, lambda: None))
    await asyncio.sleep(0.05)
    assert not late.done()
    go.set()
    assert await late == 1.0
    await asyncio.gather(*begun)
    threads.close()
