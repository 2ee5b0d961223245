from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from evaluator.http.messages import Response, Streamed
from evaluator.http.offload import MOST_WAITING, Offload
from tests.unit.evaluator.server.fakes import body_of


def as_streamed(answer: Response | Streamed) -> Streamed:
    assert isinstance(answer, Streamed)
    return answer


async def test_an_answer_is_made_in_a_thread() -> None:
    def make() -> bytes:
        return threading.current_thread().name.encode()

    with closing(Offload()) as offload:
        answer = as_streamed(offload.answer((("x", "y"),), make))
        assert (answer.status, answer.headers) == (200, (("x", "y"),))
        assert (await body_of(answer)).startswith(b"offload")


async def test_one_answer_is_made_at_a_time_and_only_so_many_may_wait() -> None:
    go_on, running = threading.Event(), []

    def make() -> bytes:
        running.append(threading.get_ident())
        go_on.wait()
        return b"made"

    with closing(Offload()) as offload:
        waiting = [
            asyncio.ensure_future(body_of(as_streamed(offload.answer((), make)))) for _ in range(MOST_WAITING)
        ]
        await asyncio.sleep(0)
        refused = offload.answer((), make)
        assert isinstance(refused, Response)
        assert (refused.status, refused.headers) == (503, (("retry-after", "1"),))
        go_on.set()
        assert await asyncio.gather(*waiting) == [b"made"] * MOST_WAITING
        assert len(set(running)) == 1
        assert await body_of(as_streamed(offload.answer((), make))) == b"made"


async def test_an_answer_that_fails_breaks_off_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise ValueError("a bug")

    with closing(Offload()) as offload:
        with pytest.raises(ConnectionError):
            await body_of(as_streamed(offload.answer((), fail)))
        assert "ValueError: a bug" in caplog.text
