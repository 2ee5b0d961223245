"""The artifact server, asked by curl."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey
from controller.artifacts.artifact_server import AT_ONCE, LIMITS, ArtifactServer
from controller.artifacts.storage import Storages
from evaluator.host.shares import FairShare
from evaluator.http.listener import Listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evaluator.http.messages import Headers

KEY = ObjectKey("FlagSource", "apps", "flags")
ARCHIVE = bytes(range(256)) * 40
SIZE = len(ARCHIVE)
LARGE = 12_000_000
ETAG = f'"sha256:{hashlib.sha256(ARCHIVE).hexdigest()}"'
TOKEN = "l3t-me-in"  # noqa: S105 - it guards nothing


class Served:
    """A listener with one artifact; `ask` is curl, with status 0 where a stream was reset before curl had
    received the response's head.
    """

    def __init__(self, root: Path) -> None:
        self.storages = Storages(root, "http://x")
        artifact = self.storages.of(KEY).put(
            ARCHIVE, revision="main@sha1:1", metadata={"flagstaff.dev/author": "Ada <ada@example.com>"}
        )
        self.path = "/" + self.storages.url(KEY, artifact)[0]
        self.port = 0

    async def ask(self, *options: str, path: str | None = None) -> tuple[int, Headers, bytes]:
        url = f"http://127.0.0.1:{self.port}{path or self.path}"
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-q", "-s", "-i", "--noproxy", "*", "--path-as-is", *options, url),
            stdout=asyncio.subprocess.PIPE,
        )
        answer, _ = await curl.communicate()
        head, _, body = (answer or b"HTTP/2 0 reset").partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = tuple(tuple(line.split(": ", 1)) for line in lines)
        return int(status.split()[1]), headers, body  # type: ignore[return-value] # pairs


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async for each in run_server(tmp_path, frozenset()):
        yield each


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    async for each in run_server(tmp_path, frozenset({"another", TOKEN})):
        yield each


async def run_server(root: Path, tokens: frozenset[str], most: int = AT_ONCE) -> AsyncIterator[Served]:
    served = Served(root)
    server = ArtifactServer(served.storages, lambda: tokens, FairShare(most))
    listener = Listener(server.routes(), LIMITS, name="artifacts")
    served.port = await listener.start("127.0.0.1", 0)
    yield served
    await listener.drain(0)
    served.storages.close()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
async def test_an_artifact_is_served_whole_and_for_ever(served: Served, version: str) -> None:
    status, headers, body = await served.ask(version)
    assert (status, body) == (200, ARCHIVE)
    expected = {"content-type": "application/gzip", "etag": ETAG, "accept-ranges": "bytes"}
    assert expected.items() <= dict(headers).items()
    assert dict(headers)["cache-control"] == "private, max-age=31536000, immutable"
    assert dict(headers)["content-length"] == str(SIZE)


async def test_head_answers_the_same_headers_without_the_body(served: Served) -> None:
    status, headers, body = await served.ask("-I")
    assert (status, body) == (200, b"")
    assert {"etag": ETAG, "content-length": str(SIZE)}.items() <= dict(headers).items()


@pytest.mark.parametrize("known", [ETAG, f'"x", {ETAG}', f"W/{ETAG}", "*"])
async def test_a_client_that_has_the_archive_is_answered_not_modified(served: Served, known: str) -> None:
    status, headers, body = await served.ask("-H", f"If-None-Match: {known}")
    assert (status, body, dict(headers)["etag"]) == (304, b"", ETAG)


async def test_a_client_with_another_archive_gets_this_one(served: Served) -> None:
    assert (await served.ask("-H", 'If-None-Match: "sha256:other"'))[0] == 200


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("0-0", 0, 0), ("10-19", 10, 19), ("10-", 10, SIZE - 1), ("-10", SIZE - 10, SIZE - 1),
        (f"-{SIZE * 2}", 0, SIZE - 1), (f"100-{SIZE * 2}", 100, SIZE - 1),
    ],
)  # fmt: skip
async def test_a_part_is_served(served: Served, asked: str, start: int, end: int) -> None:
    status, headers, body = await served.ask("-r", asked)
    assert (status, body) == (206, ARCHIVE[start : end + 1])
    assert dict(headers)["content-range"] == f"bytes {start}-{end}/{SIZE}"
    assert dict(headers)["etag"] == ETAG


@pytest.mark.parametrize("asked", [f"{SIZE}-", "-0", f"{SIZE * 9}-{SIZE * 10}"])
async def test_a_part_that_is_not_there_is_refused(served: Served, asked: str) -> None:
    status, headers, body = await served.ask("-H", f"Range: bytes={asked}")
    assert (status, body) == (416, b"")
    assert dict(headers)["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "header",
    [
        "Range: bytes=0-1,4-5", "Range: lines=0-1", "Range: bytes=-", "Range: bytes=5-2", "Range: bytes=x-y",
        f"Range: bytes={'9' * 30}-",
    ],
)  # fmt: skip
async def test_what_is_no_range_that_we_know_gets_the_whole(served: Served, header: str) -> None:
    status, _, body = await served.ask("-H", header)
    assert (status, body) == (200, ARCHIVE)


@pytest.mark.parametrize(("condition", "status"), [(ETAG, 206), ('"sha256:other"', 200)])
async def test_a_download_goes_on_only_with_the_same_archive(
    served: Served, condition: str, status: int
) -> None:
    assert (await served.ask("-r", "1-2", "-H", f"If-Range: {condition}"))[0] == status


@pytest.mark.parametrize(
    "path",
    [
        "/flagsource/apps/flags/index.json", "/flagsource/apps/flags/../flags/index.json",
        "/flagsource/../../../../etc/passwd", "/flagsource/%2e%2e/%2e%2e/etc/passwd",
        "/flagsource/apps/flags/..%2f..%2f..%2fetc%2fpasswd", "/flagsource/apps/flags/%00", "/flagsource/",
        "/other", "/",
    ],
)  # fmt: skip
async def test_nothing_else_is_served(served: Served, path: str) -> None:
    status, _, body = await served.ask(path=path)
    assert (status, b"root:" in body) == (404, False)


def large(served: Served) -> str:
    """The path of an archive that fits into no buffer."""
    artifact = served.storages.of(KEY).put(
        bytes(LARGE), revision="main@sha1:2", metadata={"flagstaff.dev/author": "Ada <ada@example.com>"}
    )
    return "/" + served.storages.url(KEY, artifact)[0]


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
async def test_a_large_archive_reaches_a_slow_reader(served: Served, version: str) -> None:
    path = large(served)
    status, _, body = await served.ask(version, "--limit-rate", "8M", path=path)
    assert (status, body == bytes(LARGE)) == (200, True)


async def test_nothing_is_written(served: Served) -> None:
    assert (await served.ask("-X", "PUT", "-d", "x"))[0] == 405
    assert (await served.ask("-X", "DELETE"))[0] == 405


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401), ("Bearer wrong", 401), ("Bearer ", 401), (f"Basic {TOKEN}", 401), (TOKEN, 401),
        ("Bearer \u00e9", 401), (f"Bearer {TOKEN}", 200), (f"bearer  {TOKEN}", 200), ("Bearer another", 200),
    ],
)  # fmt: skip
async def test_where_there_are_tokens_one_is_needed(
    guarded: Served, authorization: str | None, status: int
) -> None:
    options = () if authorization is None else ("-H", f"Authorization: {authorization}")
    answered, headers, body = await guarded.ask(*options)
    assert (answered, ARCHIVE in body) == (status, status == 200)
    assert (dict(headers).get("www-authenticate") == "Bearer") is (status == 401)


async def test_a_refused_client_does_not_learn_which_archives_exist(guarded: Served) -> None:
    there, gone = await guarded.ask(), await guarded.ask(path="/flagsource/apps/flags/none")
    assert (there[0], there[2]) == (gone[0], gone[2])


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
@pytest.mark.parametrize("content", [bytes(SIZE), bytes(SIZE * 20)], ids=["short", "long"])
async def test_a_damaged_archive_never_arrives_whole_and_is_set_aside(
    served: Served, tmp_path: Path, version: str, content: bytes
) -> None:
    (tmp_path / served.path[1:]).write_bytes(content)
    status, _, body = await served.ask(version)
    assert (status in {0, 200}, len(body) < len(content)) == (True, True)
    assert await set_aside(served, tmp_path)
    assert (await served.ask(version))[0] == 404


async def set_aside(served: Served, root: Path) -> bool:
    """A thread sets it aside."""
    async with asyncio.timeout(60):
        while (root / served.path[1:]).exists():  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)
    return (root / f"{served.path[1:]}.damaged").exists()


@pytest.mark.parametrize("version", ["--http1.1", "--http2-prior-knowledge"])
async def test_one_that_goes_while_it_is_sent_is_cut_short(
    served: Served, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = served.storages.find(served.path[1:])
    assert stored is not None
    monkeypatch.setattr(served.storages, "find", lambda _: replace(stored, size=SIZE + 1))
    status, _, body = await served.ask(version)
    assert (status in {0, 200}, len(body) <= SIZE) == (True, True)


async def test_an_empty_file_is_no_archive(served: Served, tmp_path: Path) -> None:
    (tmp_path / served.path[1:]).write_bytes(b"")
    assert (await served.ask())[0] == 404


async def test_a_connection_serves_several_one_after_the_other(served: Served) -> None:
    def ask() -> list[bytes]:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=30)
        connection.connect()
        first, found = connection.sock, []
        for _ in range(3):
            connection.request("GET", served.path)
            found.append(connection.getresponse().read())
            assert connection.sock is first
        connection.close()
        return found

    assert await asyncio.to_thread(ask) == [ARCHIVE] * 3


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Served]:
    async for served in run_server(tmp_path, frozenset(), most=1):
        yield served


async def test_only_so_many_are_sent_at_a_time(narrow: Served) -> None:
    served = narrow
    path = large(served)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await reader.readexactly(1)
    status, headers, _ = await served.ask(path=path)
    assert (status, dict(headers)["retry-after"]) == (503, "5")
    writer.close()
    async with asyncio.timeout(60):
        while (await served.ask(path=path))[0] != 200:  # noqa: ASYNC110 - state of the code under test
            await asyncio.sleep(0.01)


async def test_no_file_is_read_for_who_has_it_or_asks_for_none_of_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "open", None)
    for options in (("-I",), ("-H", f"If-None-Match: {ETAG}"), ("-r", f"{SIZE}-")):
        assert (await served.ask(*options))[0] in {200, 304, 416}


async def test_the_loop_goes_on_while_an_archive_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, go_on = threading.Event(), threading.Event()
    really = Path.open

    def slow(self: Path, *arguments: Any, **more: Any) -> Any:
        opened.set()
        assert go_on.wait(30)
        return really(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", slow)
    asking = asyncio.ensure_future(served.ask())
    assert await asyncio.to_thread(opened.wait, 30)
    assert (await served.ask("-I"))[0] == 200
    go_on.set()
    assert (await asking)[2] == ARCHIVE
