"""What a child is given on its standard input."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import TYPE_CHECKING

import pytest

from controller.sources.git.programs.process import ChildResult, ProcessLimits, run
from tests.git_http import command_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PIECE = b"x" * 100_000
"""More than a pipe holds."""


async def fed(command: str, given: AsyncGenerator[bytes], limits: ProcessLimits | None = None) -> ChildResult:
    return await run(("sh", "-c", command), os.environ, limits or ProcessLimits(), 10.0, given)


async def pieces(count: int = 10) -> AsyncGenerator[bytes]:
    for _ in range(count):
        yield PIECE


async def forever() -> AsyncGenerator[bytes]:
    yield PIECE
    await asyncio.Event().wait()


def running(word: str) -> list[str]:
    return [line for line in command_lines() if word in line]


async def test_a_child_reads_all_that_it_is_given() -> None:
    ended = await fed("wc -c", pieces())
    assert (ended.status, int(ended.output)) == (0, 10 * len(PIECE))


async def test_of_nothing_a_child_reads_the_end_at_once() -> None:
    assert int((await fed("wc -c", pieces(0))).output) == 0


@pytest.mark.parametrize("count", [0, 1, 10])
async def test_one_that_ends_before_its_input_tells_how(count: int) -> None:
    ended = await fed("echo why >&2; exit 3", pieces(count))
    assert (ended.status, ended.complaint) == (3, "why\n")


async def test_what_cannot_be_given_to_its_end_ends_the_child() -> None:
    async def broken() -> AsyncGenerator[bytes]:
        yield PIECE
        raise ValueError("cut")

    with pytest.raises(ValueError, match="cut"):
        await fed(f"cat >/dev/null; sleep 600.1{os.getpid()}", broken())
    assert not await asyncio.to_thread(running, f"600.1{os.getpid()}")


@pytest.mark.parametrize("command", ["cat >/dev/null", "sleep"], ids=["that reads", "that does not read"])
async def test_one_that_is_given_to_without_end_goes_with_its_caller(command: str) -> None:
    word = f"600.2{os.getpid()}"
    given = asyncio.create_task(
        fed(f"{command} {word}" if command == "sleep" else f": {word}; {command}", forever())
    )
    async with asyncio.timeout(60.0):
        while not await asyncio.to_thread(running, word):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    given.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given
    assert not await asyncio.to_thread(running, word)


async def test_whenever_its_caller_goes_nothing_stays_open() -> None:
    for turns in range(40):
        given = asyncio.create_task(fed("sleep 600", forever()))
        await asyncio.sleep(0.001)
        for _ in range(turns):
            await asyncio.sleep(0)
        given.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given
        # What is left open warns now.
        gc.collect()
