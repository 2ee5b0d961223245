from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import resource
import sys
import time
from types import FunctionType
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from evaluator.host import durable
from evaluator.host.loop_lag import HELD_SECONDS, LoopLag, new_event_loop, place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path


@contextlib.asynccontextmanager
async def watch_lag() -> AsyncIterator[LoopLag]:
    lag = LoopLag()
    lag.start()
    await asyncio.sleep(0.01)
    try:
        yield lag
    finally:
        lag.stop()


async def looks(lag: LoopLag, count: int) -> None:
    while sum(lag.counts) < count:  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.01)


async def test_a_loop_that_is_held_is_counted_and_the_place_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        time.sleep(4 * HELD_SECONDS)

    monkeypatch.setattr(os, "fsync", slow)
    with caplog.at_level(logging.WARNING):
        async with watch_lag() as lag:
            durable.save(tmp_path / "file", b"content")
            await looks(lag, 2)
    assert lag.seconds > HELD_SECONDS
    *_, (_, all_looks) = found = list(lag.buckets())
    assert dict(found)["0.25"] < all_looks == sum(lag.counts)
    assert "the event loop was held for" in caplog.text
    assert "evaluator.host.durable:" in caplog.text


async def test_a_loop_held_by_others_is_reported_as_such(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with watch_lag() as lag:
            time.sleep(3 * HELD_SECONDS)  # noqa: ASYNC251 - to hold the loop
            await looks(lag, 2)
    assert "by no code of ours" in caplog.text


async def test_watching_an_idle_loop_costs_next_to_nothing() -> None:
    async with watch_lag() as lag:
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(2.0)
        after = resource.getrusage(resource.RUSAGE_SELF)
    assert sum(lag.counts) > 2
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # A tenth of a second a minute is 3 ms here; a thread of another test may use some, too.
    assert used < 0.05


def of_module(function: Any, name: str) -> FunctionType:
    """The function as if that module had it."""
    return FunctionType(function.__code__, {**globals(), "__name__": name})


def serve(work: Coroutine[Any, Any, str], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> str:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


async def where() -> str:
    frame = inspect.currentframe()
    assert frame is not None
    return place(frame)


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_what_started_the_loop_is_no_place(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    start = of_module(serve, "evaluator.cli")
    work = of_module(where, "evaluator.work")
    assert start(where(), new_loop) == ""
    assert start(work(), new_loop).startswith("evaluator.work:")
    assert "evaluator.cli" not in start(work(), new_loop)


def test_there_is_no_place_where_none_of_our_code_runs() -> None:
    assert place(None) == ""


@pytest.mark.parametrize(("installed", "package"), [(True, "uvloop"), (False, "asyncio")])
def test_a_loop_is_of_uvloop_where_that_is_installed(
    installed: bool, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    loop.close()
    assert type(loop).__module__.partition(".")[0] == package
