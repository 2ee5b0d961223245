from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest

from evaluator.http.messages import Request, Response, Streamed
from evaluator.http.offload import MOST_WAITING, Offload
from tests.waiting import until
from tests.worlds.evaluator import FakeBody, body_of

if TYPE_CHECKING:
    from evaluator.http.messages import ByteStream

REQUEST = Request("GET", "/", "", (), b"", "10.0.0.1:1")
OTHER = Request("GET", "/", "", (), b"", "10.0.0.2:1")


def as_streamed(answer: Response | Streamed) -> Streamed:
    assert isinstance(answer, Streamed)
    return answer


async def test_an_answer_is_made_in_a_thread() -> None:
    def make() -> bytes:
        return threading.current_thread().name.encode()

    with closing(Offload()) as offload:
        answer = as_streamed(offload.answer(REQUEST, (("x", "y"),), make))
        assert (answer.status, answer.headers) == (200, (("x", "y"),))
        assert (await body_of(answer)).startswith(b"answers")


async def test_a_client_has_half_of_what_may_wait_and_another_one_is_answered_meanwhile() -> None:
    go_on, running = threading.Event(), []

    def make() -> bytes:
        running.append(threading.get_ident())
        go_on.wait()
        return b"made"

    with closing(Offload()) as offload:
        first = asyncio.ensure_future(body_of(as_streamed(offload.answer(REQUEST, (), make))))
        await until(lambda: bool(running))
        waiting = []
        for _ in range(MOST_WAITING // 2):
            waiting.append(asyncio.ensure_future(body_of(as_streamed(offload.answer(REQUEST, (), make)))))
            await asyncio.sleep(0)
        refused = offload.answer(REQUEST, (), make)
        assert isinstance(refused, Response)
        assert (refused.status, refused.headers) == (503, (("retry-after", "1"),))
        assert await body_of(as_streamed(offload.answer(OTHER, (), lambda: b"another"))) == b"another"
        go_on.set()
        assert await asyncio.gather(first, *waiting) == [b"made"] * (1 + MOST_WAITING // 2)
        assert await body_of(as_streamed(offload.answer(REQUEST, (), make))) == b"made"


async def test_what_waits_is_not_begun_once_its_client_is_gone() -> None:
    go_on, made = threading.Event(), list[str]()

    def make(name: str) -> bytes:
        made.append(name)
        go_on.wait()
        return b""

    with closing(Offload()) as offload:
        first = asyncio.ensure_future(
            body_of(as_streamed(offload.answer(REQUEST, (), lambda: make("first"))))
        )
        await until(lambda: made == ["first"])
        body = FakeBody()
        as_streamed(offload.answer(REQUEST, (), lambda: make("left"))).start(cast("ByteStream", body))
        assert body.on_closed is not None
        body.on_closed()
        # The loop tells the thread's work in its next turns that nobody waits for it.
        for _ in range(3):
            await asyncio.sleep(0)
        go_on.set()
        await first
        await body_of(as_streamed(offload.answer(REQUEST, (), lambda: make("next"))))
    assert made == ["first", "next"]


async def test_an_answer_that_fails_breaks_off_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("a bug")

    with closing(Offload()) as offload:
        with pytest.raises(ConnectionError):
            await body_of(as_streamed(offload.answer(REQUEST, (), fail)))
        assert "ValueError: a bug" in caplog.text
