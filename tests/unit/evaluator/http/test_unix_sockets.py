"""Unix sockets: who may connect, what is replaced and what is not, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from evaluator.http import sockets
from evaluator.http.listener import Listener
from evaluator.http.messages import Call, Request, Response
from evaluator.http.routes import Routes
from tests.unit.evaluator.http.certificates import Files, client, issue
from tests.unit.evaluator.http.serving import ROUTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from evaluator.http.sockets import TlsFiles

LAST = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flagd.sock"


@asynccontextmanager
async def run_listener(
    path: Path, routes: Routes = ROUTES, tls: TlsFiles | None = None
) -> AsyncIterator[Listener]:
    listener = Listener(routes, name="test")
    await listener.start_unix(path, tls=tls)
    try:
        yield listener
    finally:
        await listener.drain(0)


async def answer(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(LAST)
    received = await reader.read()
    writer.close()
    return received


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def there(path: Path) -> bool:
    return path.is_socket()


def remove(path: Path) -> None:
    path.unlink()


def stale(path: Path) -> None:
    """What a process leaves behind that was killed."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()


async def test_a_grpc_client_is_served(path: Path) -> None:
    async with run_listener(path), grpc.aio.insecure_channel(f"unix:{path}") as channel:
        assert await channel.unary_unary("/t.T/Echo", None, None)(b"hello") == b"hello"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
async def test_curl_is_served(path: Path, version: str) -> None:
    async with run_listener(path):
        command = ["curl", "-sS", version, "--unix-socket", str(path), "http://h/tree/a?b"]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    assert ran.stdout == b"/tree/a|b"


async def test_tls_is_spoken_there_too(path: Path) -> None:
    files = Files(path.parent).write(issue())
    async with run_listener(path, tls=files.open()):
        reader, writer = await asyncio.open_unix_connection(
            path, ssl=client("http/1.1"), server_hostname="localhost"
        )
        writer.write(LAST)
        assert b"200 OK" in await reader.read()
        writer.close()


async def test_its_clients_have_no_address(path: Path) -> None:
    names: list[str] = []

    def unary(call: Call, message: bytes) -> bytes:
        names.append(call.peer)
        return message

    def plain(request: Request) -> Response:
        names.append(request.peer)
        return Response(200)

    async with run_listener(path, Routes(unary={"/t.T/Echo": unary}, http={("GET", "/"): plain})):
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            await channel.unary_unary("/t.T/Echo", None, None)(b"")
        await answer(path)
    assert names == ["unix:", "unix:"]


async def test_a_listener_may_have_a_port_as_well(path: Path) -> None:
    async with run_listener(path) as listener:
        port = await listener.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(LAST)
        assert b"200 OK" in await reader.read()
        assert b"200 OK" in await answer(path)
        writer.close()


# -- the file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
def test_owner_and_group_may_connect_whatever_the_umask(path: Path, mask: int) -> None:
    with umask(mask), sockets.bind(path).socket:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_another_mode_may_be_asked_for(path: Path) -> None:
    with sockets.bind(path, 0o600).socket:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_at_no_moment_may_more_connect(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    chmod = Path.chmod

    def note_and_chmod(self: Path, mode: int) -> None:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        chmod(self, mode)

    monkeypatch.setattr(Path, "chmod", note_and_chmod)
    with umask(0), sockets.bind(path).socket:
        assert seen == [0o660]


async def test_a_socket_that_nobody_listens_on_is_replaced(path: Path) -> None:
    stale(path)
    async with run_listener(path):
        assert b"200 OK" in await answer(path)


async def test_a_socket_in_use_is_left_to_its_owner(path: Path) -> None:
    async with run_listener(path):
        with pytest.raises(OSError, match=r"another process listens.*flagd\.sock"):
            await Listener(ROUTES, name="second").start_unix(path)
        assert b"200 OK" in await answer(path)


def test_a_socket_whose_backlog_is_full_is_in_use(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(str(path))
        busy.listen(0)
        first.connect(str(path))
        with pytest.raises(OSError, match="another process listens"):
            sockets.bind(path)


def test_a_socket_of_another_kind_is_not_touched(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(OSError, match="whether it is in use is not known"):
            sockets.bind(path)
    assert path.exists()


def test_what_is_no_socket_is_never_deleted(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(OSError, match=r"not a socket.*flagd\.sock"):
        sockets.bind(path)
    assert path.read_text() == "precious"


def test_a_link_is_not_followed(path: Path) -> None:
    stale(path.with_name("other"))
    path.symlink_to("other")
    with pytest.raises(OSError, match="not a socket"):
        sockets.bind(path)
    assert path.with_name("other").exists()


def test_a_missing_folder_is_an_error_that_names_the_path(path: Path) -> None:
    with pytest.raises(OSError, match=r"folder .* does not exist.*no/flagd\.sock"):
        sockets.bind(path.parent / "no" / path.name)


def test_a_path_that_is_too_long_is_an_error(path: Path) -> None:
    room = sockets.MAX_PATH_BYTES - len(os.fsencode(path.parent)) - 1
    with pytest.raises(OSError, match="at most 107 bytes, this one 108"):
        sockets.bind(path.with_name("x" * (room + 1)))
    with sockets.bind(path.with_name("x" * room)).socket:
        assert path.with_name("x" * room).is_socket()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_an_error(path: Path) -> None:
    path.parent.chmod(0o500)
    with pytest.raises(OSError, match=r"Permission denied.*flagd\.sock"):
        sockets.bind(path)


async def test_the_file_goes_with_its_listener(path: Path) -> None:
    async with run_listener(path):
        assert there(path)
    assert not there(path)


async def test_a_successors_file_stays(path: Path) -> None:
    async with run_listener(path) as listener:
        remove(path)
        async with run_listener(path):
            await listener.drain(0)
            assert b"200 OK" in await answer(path)


async def test_a_file_that_is_gone_already_is_no_fault(path: Path) -> None:
    async with run_listener(path):
        remove(path)
