from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from evaluator.host.backoff import retry_after
from evaluator.sync.config import OAuth, Provider, SourceConfig
from evaluator.sync.opening import open_sources
from evaluator.sync.schedule import CAP
from evaluator.sync.source import Delivery, SourceFault, Unchanged
from tests.sync_sources import Ear, HttpPeer, raw_server, respond

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from evaluator.sync.source import SourceEvent


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def peer() -> Iterator[HttpPeer]:
    peer = HttpPeer()
    peer.content = b'{"flags": {}}'
    yield peer
    peer.close()


@pytest.fixture
async def ears() -> AsyncIterator[list[Ear]]:
    opened: list[Ear] = []
    yield opened
    for ear in opened:
        await ear.close()


def listen(ears: list[Ear], uri: str, **fields: Any) -> Ear:
    config = replace(SourceConfig(uri, Provider.HTTP, interval=0.02, timeout=5.0), **fields)
    ears.append(Ear(open_sources([config], clock=time.monotonic)[0]))
    return ears[-1]


@pytest.mark.parametrize(
    ("fields", "header", "value"),
    [
        ({"auth_header": "Basic abc"}, "authorization", "Basic abc"),
        ({"bearer_token": "abc"}, "authorization", "Bearer abc"),
        ({"headers": {"X-Key": "abc"}}, "x-key", "abc"),
        ({}, "accept", "application/json, application/yaml"),
        ({}, "accept-encoding", "gzip"),
    ],
)
async def test_the_configured_headers_are_sent(
    peer: HttpPeer, ears: list[Ear], fields: dict[str, Any], header: str, value: str
) -> None:
    await listen(ears, peer.uri, **fields).until(Delivery)
    assert peer.requests[0][header] == value


async def test_a_password_in_the_url_is_sent_and_never_shown(peer: HttpPeer, ears: list[Ear]) -> None:
    peer.content = None
    ear = listen(ears, peer.uri.replace("//", "//me:hid%64en@"))
    assert "hid" not in (await ear.until(SourceFault)).message
    assert peer.requests[0]["authorization"] == "Basic bWU6aGlkZGVu"


async def test_a_token_in_a_file_is_read_again(peer: HttpPeer, ears: list[Ear], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    ear = listen(ears, peer.uri, bearer_token_file=str(token))
    await ear.until(Delivery)
    token.write_text("two")
    await ear.until(Unchanged)
    assert [asked["authorization"] for asked in peer.requests[:2]] == ["Bearer one", "Bearer two"]
    token.unlink()
    assert (await ear.until(SourceFault)).reason == "Credentials"


async def test_what_has_not_changed_is_not_sent_again(peer: HttpPeer, ears: list[Ear]) -> None:
    ear = listen(ears, peer.uri)
    await ear.until(Delivery)
    await ear.until(Unchanged)
    assert "if-none-match" not in peer.requests[0]
    assert "if-none-match" in peer.requests[1]


def answers(peer: HttpPeer, status: int, body: bytes, **headers: str) -> None:
    def answer(request: BaseHTTPRequestHandler) -> bool:
        respond(request, status, body, **headers)
        return True

    peer.answer = answer


async def test_without_an_etag_the_content_itself_shows_a_change(peer: HttpPeer, ears: list[Ear]) -> None:
    answers(peer, 200, b"{}")
    ear = listen(ears, peer.uri)
    await ear.until(Delivery)
    assert isinstance(await ear.next(), Unchanged)


@pytest.mark.parametrize(
    ("path", "content_type", "yaml"),
    [
        ("/flags.yaml", "text/plain", True),
        ("/flags", "application/yaml; charset=utf-8", True),
        ("/flags", "application/json", False),
        ("/flags.json", "application/yaml", False),
        ("/flags.yml?sig=x.json", "", True),
    ],
)
async def test_the_extension_says_the_format_or_else_the_content_type(
    peer: HttpPeer, ears: list[Ear], path: str, content_type: str, yaml: bool
) -> None:
    answers(peer, 200, b"flags: {}", Content_Type=content_type)
    ear = listen(ears, peer.uri.replace("/flags.json", path))
    name = (await ear.until(Delivery)).documents[0][0]
    assert name.endswith((".yaml", ".yml")) is yaml
    assert "sig" not in name


ENDS = {
    "by its length": (b"Content-Length: 12\r\n\r\n", b"", Delivery),
    "by chunks": (b"Transfer-Encoding: chunked\r\n\r\nc\r\n", b"\r\n0\r\n\r\n", Delivery),
    "before its length": (b"Content-Length: 99\r\n\r\n", b"", SourceFault),
    "within chunks": (b"Transfer-Encoding: chunked\r\n\r\nc\r\n", b"\r\n", SourceFault),
    "with the connection": (b"\r\n", b"", SourceFault),
}


@pytest.mark.parametrize(("head", "tail", "expected"), ENDS.values(), ids=ENDS)
async def test_yaml_is_taken_only_where_it_is_known_to_be_whole(
    ears: list[Ear], head: bytes, tail: bytes, expected: type[Any]
) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"flags: {}   " + tail)
        connection.shutdown(socket.SHUT_WR)

    with raw_server(answer) as port:
        received = await listen(ears, f"http://127.0.0.1:{port}/flags.yaml").next()
    assert isinstance(received, expected)


async def test_json_that_ends_with_the_connection_is_taken(ears: list[Ear]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)

    with raw_server(answer) as port:
        assert isinstance(await listen(ears, f"http://127.0.0.1:{port}/f").next(), Delivery)


async def test_compressed_content_is_unpacked_and_its_size_bounded(peer: HttpPeer, ears: list[Ear]) -> None:
    answers(peer, 200, gzip.compress(b"{}"), Content_Encoding="gzip")
    assert (await listen(ears, peer.uri).until(Delivery)).documents[0][1] == b"{}"
    answers(peer, 200, gzip.compress(bytes(100_000_000)), Content_Encoding="gzip")
    assert (await listen(ears, peer.uri).until(SourceFault)).reason == "TooLarge"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "Unauthorized"), (403, "Unauthorized"), (404, "NotFound"), (500, "Refused"), (302, "Refused")],
)
async def test_what_is_no_success_is_a_fault_that_says_which(
    peer: HttpPeer, ears: list[Ear], status: int, reason: str
) -> None:
    answers(peer, status, b"{}")
    fault = await listen(ears, peer.uri).until(SourceFault)
    assert (fault.reason, fault.message) == (reason, f"{peer.uri}: answered {status}")


async def test_another_host_is_followed_to_and_gets_no_secret(peer: HttpPeer, ears: list[Ear]) -> None:
    fields = {"auth_header": "hidden", "headers": {"X-Key": "hidden"}}
    with closing(HttpPeer()) as other:
        other.content = b"{}"
        answers(peer, 307, b"", Location=other.uri)
        await listen(ears, peer.uri, **fields).until(Delivery)
        assert "hidden" not in str(other.requests)


async def test_a_redirect_in_a_circle_is_a_fault(peer: HttpPeer, ears: list[Ear]) -> None:
    answers(peer, 302, b"", Location=peer.uri)
    assert isinstance(await listen(ears, peer.uri).next(), SourceFault)


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-A: b\r\n")
        time.sleep(0.02)


async def test_a_peer_that_never_ends_its_headers_is_cut_off(ears: list[Ear]) -> None:
    with raw_server(drip) as port:
        ear = listen(ears, f"http://127.0.0.1:{port}/f", timeout=0.2)
        received: list[SourceEvent] = [await ear.next() for _ in range(3)]
        assert {getattr(each, "reason", "") for each in received} <= {"Timeout", "Unreachable"}


def issue_tokens(peer: HttpPeer, lifetime: int) -> OAuth:
    """Tokens that are numbered, at the peer's /token; a flag set for a client that shows the newest."""
    count = 0

    def answer(request: BaseHTTPRequestHandler) -> bool:
        nonlocal count
        if request.path != "/token":
            if request.headers["Authorization"] == f"Bearer token-{count}":
                return False
            respond(request, 401, b"")
            return True
        form = request.rfile.read(int(request.headers["Content-Length"])).decode()
        if form != "grant_type=client_credentials&client_id=me&client_secret=it%26s":
            respond(request, 401, b"")
            return True
        count += 1
        token = {"access_token": f"token-{count}", "token_type": "Bearer", "expires_in": lifetime}
        respond(request, 200, json.dumps(token).encode())
        return True

    peer.answer = answer
    return OAuth(f"http://127.0.0.1:{peer.port}/token", "me", "it&s")


@pytest.mark.parametrize(("lifetime", "tokens"), [(3600, 1), (5, 3)], ids=["kept", "renewed"])
async def test_a_token_is_asked_for_when_there_is_no_good_one(
    peer: HttpPeer, ears: list[Ear], lifetime: int, tokens: int
) -> None:
    ear = listen(ears, peer.uri, oauth=issue_tokens(peer, lifetime))
    for _ in range(3):
        assert not isinstance(await ear.next(), SourceFault)
    asked = [request for request in peer.requests if "content-length" in request]
    assert len(asked) == tokens


async def test_credentials_in_files_are_read_again_once_a_rotation_refused_them(
    peer: HttpPeer, ears: list[Ear], tmp_path: Path
) -> None:
    (tmp_path / "client-id").write_text("me\n")
    (tmp_path / "client-secret").write_text("old\n")
    oauth = replace(issue_tokens(peer, 3600), client_id="", client_secret="", folder=str(tmp_path))
    ear = listen(ears, peer.uri, oauth=oauth)
    assert (await ear.until(SourceFault)).reason == "Unauthorized"
    (tmp_path / "client-secret").write_text("it&s\n")
    await ear.until(Delivery)


@pytest.mark.parametrize(
    "body", [b"", b"[" * 10**5, b"[]", b'{"access_token": 1}', b'{"access_token": "a\\n"}']
)
async def test_an_answer_without_a_token_is_a_fault(peer: HttpPeer, ears: list[Ear], body: bytes) -> None:
    answers(peer, 200, body)
    oauth = OAuth(f"http://127.0.0.1:{peer.port}/token", "me", "it")
    assert (await listen(ears, peer.uri, oauth=oauth).until(SourceFault)).reason == "Unauthorized"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def serve_encrypted(peer: HttpPeer, authority: trustme.CA, *, ask: bool = False) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if ask:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    peer.encrypt(context)
    return peer.uri


async def test_a_certificate_is_checked_against_the_configured_authority(
    peer: HttpPeer, ears: list[Ear], authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    uri = serve_encrypted(peer, authority)
    fault = await listen(ears, uri).until(SourceFault)
    assert "its certificate is not trusted" in fault.message
    await listen(ears, uri, cert_path=str(tmp_path / "ca.pem")).until(Delivery)


async def test_a_peer_that_asks_for_our_certificate_gets_it(
    peer: HttpPeer, ears: list[Ear], authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours = authority.issue_cert("client.example")
    ours.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    uri, path = serve_encrypted(peer, authority, ask=True), str(tmp_path / "client.pem")
    fields = {"cert_path": str(tmp_path / "ca.pem"), "client_cert_path": path, "client_key_path": path}
    await listen(ears, uri, **fields).until(Delivery)
    assert isinstance(await listen(ears, uri, cert_path=fields["cert_path"]).next(), SourceFault)


async def test_from_https_to_http_is_not_followed(
    peer: HttpPeer, ears: list[Ear], authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with closing(HttpPeer()) as plain:
        plain.content = b"{}"
        answers(peer, 302, b"", Location=plain.uri)
        ear = listen(ears, serve_encrypted(peer, authority), cert_path=str(tmp_path / "ca.pem"))
        assert (await ear.until(SourceFault)).reason == "Redirected"


async def test_a_proxy_of_the_environment_is_used_unless_it_is_to_be_bypassed(
    peer: HttpPeer, ears: list[Ear], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:it@127.0.0.1:{peer.port}")
    await listen(ears, "http://flags.example/flags.json").until(Delivery)
    assert peer.requests[0]["host"] == "flags.example"
    assert peer.requests[0]["proxy-authorization"] == "Basic bWU6aXQ="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    await listen(ears, peer.uri).until(Delivery)
    assert peer.requests[-1]["host"] == f"127.0.0.1:{peer.port}"


async def test_certificates_that_are_not_there_are_a_fault(ears: list[Ear]) -> None:
    fault = await listen(ears, "https://127.0.0.1/f", cert_path="/no/such/file").until(SourceFault)
    assert (fault.reason, "No such file" in fault.message) == ("Credentials", True)


async def test_a_body_that_says_it_is_too_large_is_not_read(peer: HttpPeer, ears: list[Ear]) -> None:
    def answer(request: BaseHTTPRequestHandler) -> bool:
        request.send_response(200)
        request.send_header("Content-Length", "200000000")
        request.end_headers()
        return True

    peer.answer = answer
    assert (await listen(ears, peer.uri, timeout=60.0).until(SourceFault)).reason == "TooLarge"


def slowly(request: BaseHTTPRequestHandler) -> bool:
    request.send_response(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    while True:
        request.wfile.write(b" ")
        time.sleep(0.02)


async def test_a_body_that_drips_is_cut_off(peer: HttpPeer, ears: list[Ear]) -> None:
    peer.answer = slowly
    assert (await listen(ears, peer.uri, timeout=0.2).until(SourceFault)).reason == "Timeout"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", 0.0), ("7", 7.0), ("0", 0.0), ("-1", 0.0), ("soon", 0.0), ("9" * 5_000, 10.0), ("\u0663", 0.0),
        ("Thu, 01 Jan 1970 00:00:15 GMT", 5.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:15 -0000", 5.0), ("Fri, 31 Dec 9999 23:59:59 GMT", 10.0),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("in_tokyo")
def test_a_server_may_ask_for_a_pause_within_bounds(header: str, seconds: float) -> None:
    assert retry_after(header, 10.0, CAP) == seconds


async def test_a_server_that_asks_for_a_pause_gets_it_and_then_is_followed_on(
    peer: HttpPeer, ears: list[Ear]
) -> None:
    answers(peer, 503, b"", Retry_After="1")
    ear = listen(ears, peer.uri)
    fault = await ear.until(SourceFault)
    asked = len(peer.requests)
    peer.answer = lambda _: False
    loop = asyncio.get_running_loop()
    began = loop.time()
    await ear.until(Delivery)
    assert (fault.reason, asked, len(peer.requests)) == ("Refused", 1, 2)
    # No upper bound: however slow the machine is, it is never asked sooner.
    assert loop.time() - began > 0.9
