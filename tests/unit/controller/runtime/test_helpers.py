from __future__ import annotations

import asyncio
import os
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

import pytest

from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import HelperLostError, Helpers, LimitExceededError
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIMITS = TaskLimits(memory_bytes=100 * 1024**2, cpu_seconds=30.0)


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    helpers = Helpers(("json",))
    yield helpers
    await helpers.close()


def allocate(size: int) -> int:
    return len(bytearray(size))


def spin() -> NoReturn:
    while True:
        pass


def stall() -> NoReturn:
    raise Stalled("LimitExceeded", "too many files")


def key_error() -> NoReturn:
    raise KeyError("an object")


def write_zeros(path: str, size: int) -> int:
    with open(path, "wb") as file:
        return file.write(bytes(size))


async def test_a_helper_is_kept_for_the_next_task(helpers: Helpers) -> None:
    first = await helpers.run(LIMITS, os.getpid)
    assert first != os.getpid()
    assert await helpers.run(LIMITS, os.getpid) == first


async def test_what_a_task_prints_is_no_reply(helpers: Helpers) -> None:
    await helpers.run(LIMITS, print, "noise")
    assert await helpers.run(LIMITS, max, 1, 2) == 2


def mapping_proxy() -> MappingProxyType[str, int]:
    return MappingProxyType({"a": 1})


async def test_an_unchanged_mapping_goes_both_ways(helpers: Helpers) -> None:
    assert await helpers.run(LIMITS, mapping_proxy) == mapping_proxy()
    assert await helpers.run(LIMITS, len, mapping_proxy()) == 1


def many(count: int) -> list[dict[str, list[int]]]:
    return [{str(number): [number]} for number in range(count)]


async def test_a_long_reply_is_read_beside_the_loop_as_it_was(helpers: Helpers) -> None:
    assert await helpers.run(LIMITS, many, 50_000) == many(50_000)


async def test_a_setback_and_an_error_come_back_as_they_were(helpers: Helpers) -> None:
    pid = await helpers.run(LIMITS, os.getpid)
    with pytest.raises(Stalled, match="too many files") as setback:
        await helpers.run(LIMITS, stall)
    assert setback.value.reason == "LimitExceeded"
    with pytest.raises(KeyError, match="an object"):
        await helpers.run(LIMITS, key_error)
    assert await helpers.run(LIMITS, os.getpid) == pid


async def test_too_much_memory_is_named_and_the_helper_is_replaced(helpers: Helpers) -> None:
    pid = await helpers.run(LIMITS, os.getpid)
    assert await helpers.run(LIMITS, allocate, 50_000_000) == 50_000_000
    with pytest.raises(LimitExceededError) as error:
        await helpers.run(LIMITS, allocate, 500_000_000)
    assert error.value.limit == "memory"
    assert await helpers.run(LIMITS, os.getpid) != pid


async def test_too_much_cpu_time_is_named_and_ends_the_helper(helpers: Helpers) -> None:
    with pytest.raises(LimitExceededError) as error:
        await helpers.run(TaskLimits(cpu_seconds=0.1), spin)
    assert error.value.limit == "CPU time"
    assert await helpers.run(LIMITS, max, 1, 2) == 2


async def test_each_task_has_the_whole_of_its_cpu_time(helpers: Helpers) -> None:
    limits = TaskLimits(cpu_seconds=1.0)
    for _ in range(4):
        await helpers.run(limits, burn, 0.5)


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


async def test_a_file_over_the_limit_cannot_be_written(helpers: Helpers, tmp_path: Path) -> None:
    limits = TaskLimits(file_bytes=1_000)
    assert await helpers.run(limits, write_zeros, str(tmp_path / "small"), 1_000) == 1_000
    with pytest.raises(OSError, match="File too large"):
        await helpers.run(limits, write_zeros, str(tmp_path / "large"), 2_000_000)


async def test_a_helper_that_ends_by_itself_is_reported(helpers: Helpers) -> None:
    with pytest.raises(HelperLostError, match="exit status 3"):
        await helpers.run(LIMITS, os._exit, 3)
    assert await helpers.run(LIMITS, max, 1, 2) == 2


async def test_a_task_whose_caller_is_cancelled_is_killed(helpers: Helpers) -> None:
    pid = await helpers.run(LIMITS, os.getpid)
    task = asyncio.create_task(helpers.run(LIMITS, spin))
    while helpers.idle:  # noqa: ASYNC110 - nothing signals that it began
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert await helpers.run(LIMITS, max, 1, 2) == 2


async def test_a_helper_that_starts_for_longer_than_its_caller_waits_serves_the_next_one() -> None:
    helpers = Helpers()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await helpers.run(LIMITS, os.getpid)
        while not helpers.started:  # On a busy machine a millisecond is not enough for the request.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await helpers.run(LIMITS, os.getpid)
        await helpers.run(LIMITS, os.getpid)
        assert helpers.started == 1
    finally:
        await helpers.close()


async def test_closing_leaves_no_process(helpers: Helpers) -> None:
    pid = await helpers.run(LIMITS, os.getpid)
    await helpers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_closing_waits_for_a_process_that_is_still_starting() -> None:
    helpers, others = Helpers(), asyncio.all_tasks()
    waiting = asyncio.create_task(helpers.run(LIMITS, os.getpid))
    while len(asyncio.all_tasks() - others) < 2:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await helpers.close()
    assert asyncio.all_tasks() == others
