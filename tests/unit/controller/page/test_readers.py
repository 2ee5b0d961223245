"""Many requests of one reader of the page: others have their pages all the same."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import aiohttp

from controller.page.page_server import FIRSTS, MOST, MOST_VIEWS, PageServer, PageStreams
from controller.runtime.clock import now
from evaluator.http.listener import Listener
from evaluator.http.messages import Request, Response, Streamed, header
from tests.waiting import until
from tests.worlds.page import FakeSource, flag, shown_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from controller.page.page_source import PageSource
    from evaluator.http.messages import ByteStream


def reader_of(request: Request) -> str:
    return header(request.headers, "x-reader") or ""


def request_of(reader: str) -> Request:
    return Request("GET", "/ui/changes", "seen=1", (("x-reader", reader),), b"", "10.0.0.1:1")


@dataclass
class Page:
    """An open page, which its reader may leave."""

    on_closed: Callable[[], None] | None = None
    on_writable: Callable[[], None] | None = None
    writable: bool = True
    sent: list[bytes] = field(default_factory=list)

    def send(self, message: bytes) -> bool:
        self.sent.append(message)
        return True

    def close(self) -> None:
        return


def open_pages(streams: PageStreams, reader: str, wanted: int) -> list[Page]:
    """As many as the reader gets."""
    pages = []
    for _ in range(wanted):
        answer = streams.open(request_of(reader))
        if isinstance(answer, Streamed):
            pages.append(Page())
            answer.start(cast("ByteStream", pages[-1]))
        else:
            assert answer.status == 503
    return pages


async def test_one_reader_has_half_of_the_streams_and_each_other_one_finds_one() -> None:
    streams = PageStreams(asyncio.get_running_loop(), lambda _: lambda: "2", reader_of)
    hostile = open_pages(streams, "hostile", 2 * MOST)
    assert len(hostile) == MOST // 2
    opened = [len(open_pages(streams, f"reader-{number}", MOST)) for number in range(FIRSTS)]
    assert opened[:2] == [MOST // 4, MOST // 8]
    assert min(opened) == 1
    for page in hostile:
        assert page.on_closed is not None
        page.on_closed()
    assert len(open_pages(streams, "hostile", 2 * MOST)) > 1
    streams.close()


@contextlib.asynccontextmanager
async def serve_page(held: str) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a page on which views of the reader `held` take for ever, and who asked."""
    asked: list[str] = []

    async def source_for(request: Request) -> PageSource | Response:
        asked.append(reader_of(request))
        if reader_of(request) == held:
            await asyncio.Event().wait()
        return FakeSource([shown_set({"one": flag()})])

    streams = PageStreams(asyncio.get_running_loop(), lambda _: lambda: "1", reader_of)
    server = PageServer(source_for, streams, now)
    listener = Listener(server.routes(), name="page")
    port = await listener.start("127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{port}/ui/flags", asked
    finally:
        await listener.drain(0.0)
        server.close()


async def test_views_of_one_reader_that_take_for_ever_keep_no_other_from_a_view() -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with serve_page("hostile") as (url, asked), aiohttp.ClientSession(connector=connector) as client:

        async def ask(reader: str) -> int:
            async with client.get(url, headers={"x-reader": reader}) as answer:
                return answer.status

        hostile = [asyncio.create_task(ask("hostile")) for _ in range(MOST_VIEWS)]
        await until(lambda: sum(task.done() for task in hostile) == MOST_VIEWS // 2)
        assert {task.result() for task in hostile if task.done()} == {503}
        assert len(asked) == MOST_VIEWS // 2
        assert await ask("another") == 200
        for task in hostile:
            task.cancel()
        await asyncio.wait(hostile)


async def test_the_address_of_the_port_leads_to_the_page() -> None:
    async with (
        serve_page("nobody") as (url, _),
        aiohttp.ClientSession() as client,
        client.get(url.removesuffix("/ui/flags")) as answer,
    ):
        assert (answer.status, answer.url.path) == (200, "/ui")
