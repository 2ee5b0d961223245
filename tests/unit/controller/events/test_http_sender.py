"""Posts to a real server on loopback: what is sent, and how little is believed of the answer."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from controller.events.notice import Post
from controller.events.senders import MOST_RETRY_AFTER
from controller.runtime.http_client import Route
from tests.worlds.events import NOW, http_sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controller.events.senders import PostResult


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


async def test_request_arrives_with_its_headers() -> None:
    async with server(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok") as (url, requests):
        answer = await ask(url)
    assert (answer.status, answer.text) == (202, "status 202")
    assert requests[0].startswith(b"POST /hook?secret=yes HTTP/1.1\r\n")
    assert b"Idempotency-Key: k\r\n" in requests[0]


async def test_long_answer_is_cut_and_only_its_status_shown() -> None:
    body = b"<html>\n\x1b[31m\xff" + b"x" * 1_000_000
    async with server(b"HTTP/1.1 500 X\r\nContent-Length: 1000009\r\n\r\n" + body, hang=True) as (url, _):
        answer = await ask(url)
    assert answer.status == 500
    assert answer.text == "status 500"
    assert len(answer.content) <= 4_096


async def test_only_known_error_words_are_shown() -> None:
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
        (f"Thu, {10**20} Jan 2026 00:00:00 GMT", 0.0),
    ],
)  # fmt: skip
async def test_retry_after_is_read_as_seconds_or_date(header: str, seconds: float) -> None:
    reported = f"HTTP/1.1 429 X\r\nRetry-After: {header}\r\nContent-Length: 0\r\n\r\n".encode()
    async with server(reported) as (url, _):
        assert (await ask(url)).retry_after == seconds
