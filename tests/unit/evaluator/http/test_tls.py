"""TLS: which files are taken, when they are read again, and what stock clients and hostile ones see."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives import serialization

from evaluator.http import sockets as module
from evaluator.http.h2_frames import PREFACE
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.limits import Limits
from evaluator.http.messages import Response
from evaluator.http.peer import LINGER_SECONDS
from evaluator.http.routes import Routes
from evaluator.http.sockets import TlsError
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.certificates import Files, ca_of, certificate_of, client, issue, key_of
from tests.unit.evaluator.http.serving import run_listener
from tests.unit.evaluator.http.test_http2 import call
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import trustme

LAST = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
ECHO = "/t.T/Echo"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path).write(issue())


# -- the files -----------------------------------------------------------------------------------------------


def with_passphrase(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"x")
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))


def folder_for_key(files: Files) -> None:
    files.key.unlink()
    files.key.mkdir()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-60])


SPOILT: dict[str, tuple[Callable[[Files], object], str]] = {
    "no certificate": (lambda f: f.certificate.unlink(), r"tls\.crt: No such file"),
    "no key": (lambda f: f.key.unlink(), r"tls\.key: No such file"),
    "no client CA": (lambda f: f.ca.unlink(), r"ca\.crt: No such file"),
    "certificate not PEM": (
        lambda f: f.certificate.write_text("?"),
        r"tls\.crt: no PEM certificate",
    ),
    "key not PEM": (lambda f: f.key.write_text("?"), r"tls\.key: no PEM private key"),
    "client CA not PEM": (lambda f: f.ca.write_text("?"), r"ca\.crt: no usable PEM"),
    "a key of another": (
        lambda f: f.key.write_bytes(key_of(issue("other"))), r"tls\.key: not the key of .*tls\.crt"
    ),
    "half a certificate": (lambda f: truncate(f.certificate), r"tls\.crt with .*tls\.key: damaged"),
    "half a key": (lambda f: truncate(f.key), r"tls\.crt with .*tls\.key: damaged"),
    "half a client CA": (lambda f: truncate(f.ca), r"ca\.crt: no usable PEM"),
    "a key with a passphrase": (lambda f: with_passphrase(f.key), r"tls\.key: has a passphrase"),
    "endless": (lambda f: f.key.write_bytes(bytes(module.MAX_BYTES + 1)), r"tls\.key: larger than"),
    "a folder": (folder_for_key, r"tls\.key: Is a directory"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "says"), SPOILT.values(), ids=SPOILT.keys())
def test_files_that_cannot_be_used_are_an_error_at_start_that_names_them(
    files: Files, spoil: Callable[[Files], object], says: str
) -> None:
    secret = key_of(issue()).decode().splitlines()[1]
    spoil(files)
    with pytest.raises(TlsError, match=says) as raised:
        files.open(asks_clients=True)
    assert secret not in str(raised.value)


def test_nothing_below_tls_1_2_is_spoken(files: Files) -> None:
    assert files.open().context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_ca_file_may_say_whose_certificates_it_has_in_any_language(files: Files) -> None:
    files.ca.write_text(f"# Zertifikate für alle\n{ca_of().decode()}", encoding="utf-8")
    assert len(files.open(asks_clients=True).context.get_ca_certs()) == 1


def test_a_client_is_asked_for_a_certificate_only_where_there_is_a_ca(files: Files) -> None:
    assert files.open().context.verify_mode is ssl.CERT_NONE
    assert files.open(asks_clients=True).context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("way", [Files.write, Files.rename, Files.mount])
def test_replaced_files_are_read_again_however_they_are_replaced(
    tmp_path: Path, way: Callable[[Files, trustme.LeafCert], object]
) -> None:
    files = Files(tmp_path)
    (files.mount if way is Files.mount else files.write)(issue())
    tls = files.open()
    before = tls.context
    assert (tls.refresh(), tls.refresh()) == (False, False)
    way(files, issue("second"))
    assert tls.refresh()
    assert tls.context is not before
    assert (tls.refresh(), tls.refresh()) == (False, False)


def test_a_change_that_follows_a_read_at_once_is_seen_though_its_modification_time_is_the_same(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = files.open()
    monkeypatch.setattr(module, "_signature", lambda _: ())
    files.write(issue("second"))
    assert tls.refresh()
    files.write(issue("third"))
    assert tls.refresh()


def test_files_that_are_only_touched_change_nothing(files: Files) -> None:
    tls = files.open()
    before = tls.context
    assert not tls.refresh()
    files.write(issue())
    assert not tls.refresh()
    assert tls.context is before


def test_a_changed_client_ca_is_a_new_context(files: Files) -> None:
    tls = files.open(asks_clients=True)
    files.ca.write_bytes(ca_of("theirs"))
    assert tls.refresh()
    assert [dict(ca["subject"][0])["organizationName"] for ca in tls.context.get_ca_certs()] == ["theirs"]  # type: ignore[arg-type]  # fmt: skip # typeshed has no shape for it


@pytest.mark.parametrize(
    "spoil", [files_and_says[0] for name, files_and_says in SPOILT.items() if "CA" not in name]
)
def test_files_that_go_bad_leave_the_last_good_ones_until_they_are_good_again(
    files: Files, spoil: Callable[[Files], object], caplog: pytest.LogCaptureFixture
) -> None:
    tls = files.open()
    before = tls.context
    spoil(files)
    assert (tls.refresh(), tls.refresh(), tls.context) == (False, False, before)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "stays in use" in record.message
    assert key_of(issue()).decode().splitlines()[1] not in record.message
    if files.key.is_dir():
        files.key.rmdir()
    files.write(issue("second"))
    assert tls.refresh()


def test_a_fault_that_comes_back_is_logged_again(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    tls = files.open()
    for _ in range(2):
        files.key.unlink()
        tls.refresh()
        files.write(issue())
        tls.refresh()
    assert len(caplog.records) == 2


# -- clients -------------------------------------------------------------------------------------------------


def channel(port: int, shows: trustme.LeafCert | None = None) -> grpc.aio.Channel:
    pair = (None, None) if shows is None else (key_of(shows), certificate_of(shows))
    return grpc.aio.secure_channel(
        f"localhost:{port}",
        grpc.ssl_channel_credentials(ca_of(), *pair),
        # Else a channel takes over the connection of another.
        options=(("grpc.use_local_subchannel_pool", 1),),
    )


async def echo(open_channel: grpc.aio.Channel, message: bytes = b"hello") -> bytes:
    answer: bytes = await open_channel.unary_unary(ECHO, None, None)(message)
    return answer


async def connect(
    port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = context or client("http/1.1")
    return await asyncio.open_connection("localhost", port, ssl=context)


async def shown_certificate(port: int) -> bytes:
    """The certificate that a new handshake gets, in DER."""
    _, writer = await connect(port)
    der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return der


def der(leaf: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate_of(leaf).decode())


async def test_a_grpc_client_is_served(files: Files) -> None:
    async with run_listener(tls=files.open()) as (_, port), channel(port) as opened:
        assert await echo(opened) == b"hello"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(("h2",), "h2"), (("http/1.1", "h2"), "h2"), (("http/1.1",), "http/1.1"), ((), None)],
)
async def test_http_2_is_preferred_where_it_is_offered(
    files: Files, offered: tuple[str, ...], chosen: str | None
) -> None:
    async with run_listener(tls=files.open()) as (_, port):
        _, writer = await connect(port, client(*offered))
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
        writer.close()


@pytest.mark.parametrize("offered", [("h2",), ("http/1.1",), ()])
async def test_the_first_bytes_decide_which_protocol_is_spoken(
    files: Files, offered: tuple[str, ...]
) -> None:
    async with run_listener(tls=files.open()) as (_, port):
        reader, writer = await connect(port, client(*offered))
        writer.write(PREFACE[:5])
        await asyncio.sleep(0)
        writer.write(wire.GREETING[5:] + call(1, ECHO, b"hello"))
        assert b"hello" in await reader.readuntil(b"hello")
        writer.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
async def test_curl_is_served(files: Files, version: str) -> None:
    async with run_listener(tls=files.open()) as (_, port):
        command = ["curl", "-sS", version, "--cacert", str(files.ca), "--data-binary", "x" * 5000]
        command += [f"https://localhost:{port}/", "-w", "%{http_version}"]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    assert ran.stdout == b"x" * 5000 + (b"2" if version == "--http2" else b"1.1")


async def test_a_client_with_a_certificate_of_the_ca_is_served(files: Files) -> None:
    async with (
        run_listener(tls=files.open(asks_clients=True)) as (_, port),
        channel(port, issue("somebody")) as opened,
    ):
        assert await echo(opened) == b"hello"


@pytest.mark.parametrize("shows", [None, issue("stranger", "theirs")], ids=["none", "stranger"])
async def test_a_client_without_one_is_refused(files: Files, shows: trustme.LeafCert | None) -> None:
    async with (
        run_listener(tls=files.open(asks_clients=True)) as (listener, port),
        channel(port, shows) as opened,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await echo(opened)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        await opened.close(None)
        await until(lambda: listener.connections == 0)


def read_slowly(port: int, request: bytes) -> bytes:
    """All that comes until the server says goodbye; raises ssl.SSLEOFError if it only hangs up."""
    received = b""
    with (
        socket.create_connection(("localhost", port)) as plain,
        client("http/1.1").wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as sock,
    ):
        sock.sendall(request)
        while piece := sock.recv(10_000):
            received += piece
    return received


@pytest.mark.parametrize("path", [b"/", b"/large"])
async def test_the_last_bytes_arrive_and_then_a_goodbye(files: Files, path: bytes) -> None:
    async with run_listener(tls=files.open()) as (listener, port):
        answer = await asyncio.to_thread(read_slowly, port, LAST.replace(b" / ", b" %s " % path))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert len(answer.partition(b"\r\n\r\n")[2]) == (100_000 if path == b"/large" else 2)
        await until(lambda: listener.connections == 0)


async def test_a_reader_that_takes_its_time_gets_all_of_a_last_response(files: Files) -> None:
    whole = bytes(10_000_000)
    routes = Routes(http={("GET", "/"): lambda _: Response(200, whole)})
    async with run_listener(tls=files.open(), routes=routes) as (listener, port):
        reader, writer = await connect(port)
        # One goes to the socket's transport whatever its size; with a second, what waits is seen.
        writer.write(LAST.replace(b"connection: close\r\n", b"") + LAST)
        await until(lambda: [peer for peer in listener.peers if peer.ended is not None])
        (peer,) = listener.peers
        assert (peer.paused, peer.transport.is_closing()) == (True, False)
        listener.sweep(asyncio.get_running_loop().time() + LINGER_SECONDS + 1)
        assert (await reader.read()).endswith(b"\r\n\r\n" + whole)
        writer.close()


async def test_a_connection_without_a_descriptor_for_it_takes_no_place(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_exhausted(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async with run_listener(tls=files.open()) as (listener, port):
        with monkeypatch.context() as patched:
            patched.setattr(os, "dup", fail_exhausted)
            with pytest.raises(OSError):  # noqa: PT011 - the loops have different words for it
                await connect(port)
        assert listener.connections == 0
        assert await shown_certificate(port) == der(issue())


async def test_a_refusal_arrives_whole_though_the_client_goes_on_sending(files: Files) -> None:
    async with run_listener(tls=files.open(), limits=Limits(header_bytes=2_000)) as (_, port):
        reader, writer = await connect(port)
        writer.write(b"GET / HTTP/1.1\r\nx: " + bytes(1_000_000).replace(b"\0", b"x"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 431 ")
        writer.close()


# -- new certificates under load -----------------------------------------------------------------------------


BREATH = 0.01
"""Seconds between two calls of a client: the files are looked at once a second, and the load is not to take
all of the CPU until then.
"""


async def test_certificates_change_under_load_and_no_call_fails(files: Files) -> None:
    tls, answered, done = files.open(), 0, False
    async with run_listener(tls=tls) as (_, port):

        async def client_that_stays() -> None:
            nonlocal answered
            async with channel(port) as opened:
                while not done:
                    answered += await echo(opened) == b"hello"
                    await asyncio.sleep(BREATH)

        async def clients_that_come_and_go() -> None:
            nonlocal answered
            while not done:
                reader, writer = await connect(port)
                writer.write(LAST)
                answered += (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
                await asyncio.sleep(BREATH)

        load = [asyncio.create_task(client_that_stays()) for _ in range(2)]
        load += [asyncio.create_task(clients_that_come_and_go()) for _ in range(2)]
        for name in ("second", "third"):
            before, so_far = tls.context, answered
            files.rename(issue(name))
            await until(lambda before=before: tls.context is not before)  # type: ignore[misc] # a default binds the loop's value
            assert await shown_certificate(port) == der(issue(name))
            await until(lambda so_far=so_far: answered > so_far + 50)  # type: ignore[misc] # likewise
        done = True
        await asyncio.gather(*load)


async def test_a_changed_client_ca_holds_for_new_connections_only(files: Files) -> None:
    tls = files.open(asks_clients=True)
    async with run_listener(tls=tls) as (_, port), channel(port, issue("somebody")) as opened:
        assert await echo(opened) == b"hello"
        files.ca.write_bytes(ca_of("theirs"))
        assert tls.refresh()
        assert await echo(opened) == b"hello"
        async with channel(port, issue("somebody")) as refused:
            with pytest.raises(grpc.aio.AioRpcError):
                await echo(refused)
        async with channel(port, issue("stranger", "theirs")) as welcome:
            assert await echo(welcome) == b"hello"


async def test_a_session_does_not_outlive_its_client_ca(files: Files) -> None:
    tls = files.open(asks_clients=True)
    context = client("http/1.1", shows=issue("somebody"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def resume(session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("localhost", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as sock,
        ):
            assert sock.session_reused is (session is not None)
            return sock.session

    async with run_listener(tls=tls) as (_, port):
        session = await asyncio.to_thread(resume, None)
        assert await asyncio.to_thread(resume, session)
        files.ca.write_bytes(ca_of("theirs"))
        tls.refresh()
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(resume, session)


# -- handshakes that never end -------------------------------------------------------------------------------


async def test_a_handshake_counts_from_its_first_moment_and_has_an_end(files: Files) -> None:
    async with run_listener(tls=files.open(), limits=Limits(header_seconds=0.1)) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")
        await until(lambda: listener.connections == 1)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await until(lambda: listener.connections == 0)
        writer.close()


async def test_handshakes_take_places_as_others_do(files: Files) -> None:
    async with run_listener(tls=files.open(), limits=Limits(connections=2)) as (listener, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: listener.connections == 2)
        with pytest.raises(OSError):  # noqa: PT011 - the loops have different words for it
            await connect(port)
        for _, writer in silent:
            writer.close()
        await until(lambda: listener.connections == 0)
        assert await shown_certificate(port) == der(issue())


@pytest.mark.parametrize(
    "garbage",
    [LAST, b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\x15\x03\x03\x00\x02\x02\x28", bytes(300)],
    ids=["cleartext", "large", "alert", "zeros"],
)
async def test_garbage_instead_of_a_handshake_affects_no_other_connection(
    files: Files, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_listener(tls=files.open()) as (listener, port), channel(port) as opened:
        for _ in range(50):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.close()
            assert await echo(opened) == b"hello"
        await until(lambda: listener.connections == 1)
    assert not caplog.records


async def test_a_handshake_under_way_holds_up_no_drain(files: Files) -> None:
    async with run_listener(tls=files.open(), limits=Limits(header_seconds=50)) as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: listener.connections == 1)
        await listener.drain(50)
        assert listener.connections == 0
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_draining_over_tls_answers_what_is_in_flight_and_ends_cleanly(files: Files) -> None:
    async with run_listener(tls=files.open()) as (listener, port):
        reader, writer = await connect(port)
        writer.write(LAST[:20])
        await until(lambda: any(isinstance(peer, Http1Peer) for peer in listener.peers))
        draining = asyncio.create_task(listener.drain(20))
        await asyncio.sleep(0)
        writer.write(LAST[20:])
        assert b"200 OK" in await reader.read()
        writer.close()
        await draining
        assert listener.connections == 0
