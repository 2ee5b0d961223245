"""What peers sent is freed as soon as their connections are gone, whenever the garbage collector looks."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final

import pytest

from evaluator.http.h2_frames import DATA, END_HEADERS, HEADERS, frame
from evaluator.http.h2_streams import Stream
from evaluator.http.hpack import Block, encode_block
from evaluator.http.http1_reader import Reader
from evaluator.http.limits import Limits
from evaluator.http.listener import Listener
from evaluator.http.routes import Routes
from tests.clients.attacks import GREETING, PIECE, head, line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.http.messages import Call, MessageStream

PATH: Final = "/a.Service/Call"
HTTP2: Final = GREETING + frame(HEADERS, END_HEADERS, 1, encode_block(head(PATH))) + frame(DATA, 0, 1, PIECE)
HTTP1: Final = f"POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-length: 20000\r\n\r\n".encode() + PIECE


@pytest.fixture
def collected() -> Iterator[None]:
    """All garbage of others is gone, and no more is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


def never(call: Call, message: bytes, stream: MessageStream) -> None:
    raise AssertionError("the request is not whole")


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("request_", "kinds"), [(HTTP1, {Reader}), (HTTP2, {Stream, Block})])
async def test_a_request_that_was_never_whole_is_freed(request_: bytes, kinds: set[type]) -> None:
    listener = Listener(Routes(streams={PATH: never}), Limits(), name="test")
    port = await listener.start("127.0.0.1", 0)
    before = {kind: alive(kind) for kind in kinds}
    async with asyncio.timeout(30):
        async with line(port) as (_, writer):
            writer.write(request_)
            while listener.held_bytes < len(PIECE):  # noqa: ASYNC110 - state of the code under test
                await asyncio.sleep(0.01)
            assert all(alive(kind) > before[kind] for kind in kinds)
        while listener.connections:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert {kind: alive(kind) for kind in kinds} == before
    await listener.drain(1.0)
