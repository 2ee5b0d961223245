"""The client for servers that users name, against real servers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, cast

import pytest
import trustme

from controller.runtime.hosts import Hosts
from controller.runtime.http_client import (
    Cause,
    HttpClient,
    RequestError,
    Route,
    context_of,
    read_all,
    read_start,
)
from controller.runtime.limits import Places
from controller.runtime.secret_texts import Tls
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ANY = Hosts(denied=(), kind="provider", local=True)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"


@contextlib.asynccontextmanager
async def server(
    answer: bytes, *, hang: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The address of a server that gives this answer; one that hangs keeps the connection open."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(cast("asyncio.Task[None]", asyncio.current_task()))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if hang:
                await reader.read()
            writer.close()
            await writer.wait_closed()

    talks: list[asyncio.Task[None]] = []
    listening = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"{'https' if tls else 'http'}://localhost:{port}/hook?secret=yes"
    finally:
        listening.close()
        await asyncio.gather(*talks)


@contextlib.asynccontextmanager
async def open_client(hosts: Hosts = ANY, places: Places | None = None) -> AsyncIterator[HttpClient]:
    client = HttpClient(hosts, places)
    try:
        yield client
    finally:
        await client.close()


async def get(url: str, route: Route | None = None, *, hosts: Hosts = ANY, most: int = 100) -> bytes:
    async with (
        open_client(hosts) as client,
        client.request("GET", url, route=route or Route(seconds=10.0)) as answer,
    ):
        return await read_all(answer, most)


def tls_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


async def test_no_redirect_is_followed_and_no_cookie_is_kept() -> None:
    headers = b"Location: http://localhost:1/\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with (
        server(b"HTTP/1.1 302 Found\r\n" + headers) as url,
        open_client() as client,
        client.request("GET", url) as answer,
    ):
        assert answer.status == 302


async def test_compressed_content_is_returned_as_it_came() -> None:
    async with server(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc") as url:
        assert await get(url) == b"abc"


async def test_a_longer_answer_than_allowed_is_refused_and_its_beginning_can_be_read() -> None:
    async with server(OK) as url:
        with pytest.raises(RequestError, match="localhost: the answer has more than 9 bytes") as caught:
            await get(url, most=9)
        assert caught.value.cause is Cause.TOO_LONG
        async with open_client() as client, client.request("GET", url) as answer:
            assert await read_start(answer, 4) == b"0123"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "localhost: the connection ended without an answer"),
        (b"SSH-2.0 secret words\r\n\r\n", "localhost: the answer is not HTTP"),
        (OK[:-1], "localhost: the connection ended before the end of the answer"),
    ],
)
async def test_a_broken_answer_is_explained_in_our_own_words(answer: bytes, message: str) -> None:
    async with server(answer) as url:
        with pytest.raises(RequestError) as caught:
            await get(url)
    assert (caught.value.message, caught.value.cause) == (message, Cause.CONNECTION)


async def test_a_server_that_does_not_answer_in_time_is_a_timeout() -> None:
    async with server(b"", hang=True) as url:
        with pytest.raises(RequestError, match=r"localhost: no answer within 0\.05 s") as caught:
            await get(url, Route(seconds=0.05))
    assert caught.value.cause is Cause.TIMEOUT


async def test_a_port_where_nobody_listens_refuses_the_connection() -> None:
    with pytest.raises(RequestError, match=r"^localhost: connection refused$"):
        await get("http://localhost:1/?secret=yes")


async def test_a_certificate_is_trusted_by_the_authority_of_the_route_alone() -> None:
    authority = trustme.CA()
    async with server(OK, tls=tls_of(authority)) as url:
        with pytest.raises(RequestError, match="localhost: its certificate is not trusted: ") as caught:
            await get(url)
        assert caught.value.cause is Cause.CERTIFICATE
        tls = Tls(authority.cert_pem.bytes().decode())
        assert await get(url, Route(tls=tls, seconds=10.0)) == b"0123456789"


def test_an_authority_may_be_believed_alone() -> None:
    tls = Tls(trustme.CA().cert_pem.bytes().decode())
    assert len(context_of(tls, only_authority=True).get_ca_certs()) == 1


@pytest.mark.parametrize(
    "url", ["ftp://example.com/", "https:///x", "https://user:hunter2@example.com/", "http://[", "x"]
)
async def test_what_is_no_plain_http_address_is_refused(url: str) -> None:
    with pytest.raises(Stalled) as caught:
        await get(url)
    assert caught.value.reason == "URLInvalid"
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/"])
async def test_private_addresses_are_refused_by_name_and_by_number(url: str) -> None:
    with pytest.raises(Stalled, match="is not a public address") as caught:
        await get(url, hosts=Hosts(denied=(), kind="provider", local=False))
    assert caught.value.reason == "HostDenied"


async def test_the_address_of_a_proxy_is_judged_and_so_is_the_name_that_it_is_asked_for() -> None:
    hosts = Hosts(allowed=("*.example.com",), denied=("127.0.0.0/8",))
    for url, proxy in (
        ("http://a.example.com/", "http://127.0.0.1:1"),
        ("http://b.test/", "http://a.example.com"),
    ):
        with pytest.raises(Stalled) as caught:
            await get(url, Route(proxy=proxy), hosts=hosts)
        assert caught.value.reason == "HostDenied"


async def test_hanging_requests_of_one_namespace_delay_no_other_namespace() -> None:
    async with (
        server(b"", hang=True) as hanging,
        server(OK) as url,
        open_client(places=Places(8, 8)) as client,
        asyncio.timeout(30),
    ):

        async def ask(namespace: str, address: str) -> bytes:
            route = Route(namespace=namespace, seconds=600.0)
            async with client.request("GET", address, route=route) as answer:
                return await read_all(answer, 100)

        waiting = [asyncio.create_task(ask("shop", hanging)) for _ in range(64)]
        await asyncio.sleep(0.1)
        answers = await asyncio.gather(*(ask(f"team-{number}", url) for number in range(20)))
        assert answers == [b"0123456789"] * 20
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
