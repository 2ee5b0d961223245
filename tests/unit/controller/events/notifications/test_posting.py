"""Posts to a real server on loopback: what is sent, and how little is believed of the answer."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from controller.events.notifications.http_sender import MOST_RETRY_AFTER
from controller.events.notifications.notice import Post
from controller.runtime.network.http_client import Route
from tests.unit.controller.events.notifications.things import NOW, http_sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.events.notifications.http_sender import PostResult


@contextlib.asynccontextmanager
async def server(answer: bytes, *, hang: bool = False) -> AsyncIterator[tuple[str, list[bytes]]]:
    """(URL, requests) of a server that answers so, and goes on listening."""
    requests: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            if hang:
                await reader.read()
        writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://localhost:{port}/hook?secret=yes", requests
    finally:
        listening.close()


async def ask(url: str, *, local: bool = True, seconds: float = 10.0) -> PostResult:
    async with http_sender(local=local) as sender:
        return await sender.send(Post(url, b"{}", {"Idempotency-Key": "k"}), Route(seconds=seconds))


async def test_a_post_arrives_with_its_headers() -> None:
    async with server(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok") as (url, requests):
        answer = await ask(url)
    assert (answer.status, answer.text) == (202, "status 202")
    assert requests[0].startswith(b"POST /hook?secret=yes HTTP/1.1\r\n")
    assert b"Idempotency-Key: k\r\n" in requests[0]


async def test_a_redirect_is_not_followed() -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (other, asked):
        moved = f"HTTP/1.1 307 X\r\nLocation: {other}\r\nContent-Length: 0\r\n\r\n".encode()
        async with server(moved) as (url, _):
            assert (await ask(url)).status == 307
    assert asked == []


async def test_of_a_long_answer_little_is_read_and_its_status_is_shown() -> None:
    body = b"<html>\n\x1b[31m\xff" + b"x" * 1_000_000
    async with server(b"HTTP/1.1 500 X\r\nContent-Length: 1000009\r\n\r\n" + body, hang=True) as (url, _):
        answer = await ask(url)
    assert answer.status == 500
    assert answer.text == "status 500"
    assert len(answer.content) <= 4_096


async def test_only_known_words_of_an_answer_are_shown() -> None:
    body = b'{"error": "channel_not_found", "password": "s3cret"}'
    head = b"HTTP/1.1 403 X\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with server(head + body) as (url, _):
        answer = await ask(url)
    assert (answer.text, answer.content) == ("status 403: channel_not_found", body)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30.0), ("99999999999999999999999", MOST_RETRY_AFTER), ("-1", 0.0), ("soon", 0.0), ("٣", 0.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=9), usegmt=True), MOST_RETRY_AFTER),
    ],
)  # fmt: skip
async def test_a_pause_that_is_asked_for_is_read(header: str, seconds: float) -> None:
    reported = f"HTTP/1.1 429 X\r\nRetry-After: {header}\r\nContent-Length: 0\r\n\r\n".encode()
    async with server(reported) as (url, _):
        assert (await ask(url)).retry_after == seconds


async def test_a_name_is_asked_only_where_it_leads_to_a_public_address() -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (url, requests):
        answer = await ask(url.replace("http://", "https://"), local=False)
        refused = await ask(url, local=False)
    assert (answer.status, refused.status, requests) == (0, 0, [])
    assert "localhost: localhost: " not in answer.text
    assert "is not a public address" in answer.text
    assert "secret" not in answer.text + refused.text


async def test_a_server_that_does_not_answer_is_reported_without_the_url() -> None:
    async with server(b"") as (url, _):
        pass
    refused = await ask(url)
    assert refused.text == "localhost: connection refused"
    async with server(b"") as (url, _):
        assert (await ask(url)).text == "localhost: the connection ended without an answer"
    async with server(b"", hang=True) as (url, _):
        assert (await ask(url, seconds=0.05)).text == "localhost: no answer within 0.05 s"
    assert "secret" not in (await ask("http://no-such-host.invalid/secret")).text


async def test_servers_that_hang_delay_no_request_of_another_namespace() -> None:
    async with (
        server(b"", hang=True) as (hanging, _),
        server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as (good, _),
        http_sender() as sender,
    ):
        greed = Route(namespace="greedy", seconds=600.0)
        greedy = [asyncio.create_task(sender.send(Post(hanging, b"{}", {}), greed)) for _ in range(300)]
        await asyncio.sleep(0.1)
        answer = await sender.send(Post(good, b"{}", {}), Route(namespace="shop", seconds=5.0))
        assert answer.text == "status 200"
        for task in greedy:
            task.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)
