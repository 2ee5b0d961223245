"""What each backend promises when a server, a network or a person does what it should not, on real servers:
what was stored last stays, nobody is asked for more than is needed, and what is corrected is taken at the
next reconcile.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from controller.artifacts.archive import unpack
from controller.sources.bucket_factory import BucketFactory
from controller.sources.git_factory import GitFactory
from controller.sources.oci_backend import OciFactory
from tests.contract.remotes import REMOTES
from tests.git_http import http_proxy
from tests.registry.front import Answer
from tests.worlds.sources import Verified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from controller.sources.backend import BackendFactory
    from tests.contract.remotes import Remote

pytestmark = pytest.mark.long

CONTENT = 20_000
"""Bytes of an answer that holds definitions, in these tests; one that lists what there is has fewer."""


class Followed(Verified):
    """A FlagSource of a remote, and Secrets by their names; nothing need be signed."""

    def __init__(self, root: Path, remote: Remote) -> None:
        self.remote = remote
        super().__init__(root, "")
        self.secrets: dict[str, Mapping[str, bytes]] = {"login": remote.login}
        self.spec = {"interval": "10m", remote.provider: remote.spec}

    def backend_factory(self) -> tuple[str, BackendFactory[Any]]:
        made: dict[str, BackendFactory[Any]] = {
            "git": GitFactory(self.secret, self.root / "mirrors"),
            "oci": OciFactory(self.secret),
            "bucket": BucketFactory(self.secret),
        }
        return self.remote.provider, made[self.remote.provider]

    async def secret(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
        return self.secrets.get(name)

    @property
    def names(self) -> set[str]:
        """Of the files in the artifact."""
        found = self.storages.read(self.status["artifact"]["path"])
        assert found is not None
        return {name for name in unpack(found) if not name.startswith(".")}

    def written_files(self) -> dict[str, tuple[int, int]]:
        """Each file of the storage, and what changes when it is written anew."""
        files = (self.root / "artifacts").rglob("*")
        return {str(each): (each.stat().st_ino, each.stat().st_mtime_ns) for each in files if each.is_file()}


def noise(size: int = 2 * CONTENT) -> str:
    """Text that does not get smaller."""
    return os.urandom(size // 2).hex()


@pytest.fixture(params=REMOTES)
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with REMOTES[request.param](tmp_path) as made:
        made.put(flags__json="1")
        yield made


@pytest.fixture
async def source(tmp_path: Path, remote: Remote) -> AsyncIterator[Followed]:
    made = Followed(tmp_path, remote)
    assert (await made.look(), made.stored) == ("Succeeded", "1")
    yield made
    await made.close()


async def fails(source: Followed) -> tuple[str, str]:
    """(reason, message) of Ready; what was stored stays, whole."""
    artifact, written = source.status["artifact"], source.written_files()
    reason = await source.look()
    assert source.condition("Ready")[0] == "False"
    assert (source.status["artifact"], source.written_files()) == (artifact, written)
    assert source.condition("ArtifactInStorage")[0] == "True"
    return reason, source.condition("Ready")[2]


async def recovers(source: Followed, text: str) -> None:
    """What is pushed now is stored at the next look."""
    source.remote.put(flags__json=text)
    assert (await source.look(), source.stored) == ("Succeeded", text)


async def test_a_reference_that_moved_is_followed(source: Followed) -> None:
    before = source.status["artifact"]["revision"]
    await recovers(source, "2")
    assert source.status["artifact"]["revision"] != before


async def test_nothing_new_is_neither_fetched_nor_written(source: Followed) -> None:
    source.remote.put(noise__json=noise())
    assert await source.look() == "Succeeded"
    front, status, written = source.remote.front, source.status, source.written_files()
    front.asked.clear()
    front.sent = 0
    assert await source.look() == "Succeeded"
    # Git is refused once before it shows its credentials, and lists in two requests.
    assert len(front.asked) <= 3
    assert front.sent < CONTENT // 10
    assert (source.status, source.written_files(), source.events) == (status, written, [])


async def test_deleted_definitions_are_reported_and_may_come_back(source: Followed) -> None:
    source.remote.present(False)
    assert (await fails(source))[0] == source.remote.gone
    source.remote.present(True)
    await recovers(source, "2")


async def test_a_forbidden_source_is_reported_and_may_be_allowed(source: Followed) -> None:
    body = b"<Error><Code>AccessDenied</Code></Error>"
    source.remote.front.instead = lambda asked, answer: Answer(403, body=body)
    assert (await fails(source))[0] == "AuthenticationFailed"
    source.remote.front.instead = lambda asked, answer: None
    await recovers(source, "2")


@pytest.mark.parametrize("what", ["everything", "content"])
async def test_one_that_is_slow_is_given_up_in_time(source: Followed, what: str) -> None:
    released = threading.Event()

    def slow(asked: str, answer: Answer) -> None:
        if what == "everything" or len(answer.body) >= CONTENT:
            released.wait(60)

    source.remote.put(noise__json=noise())
    source.remote.front.instead = slow
    source.spec["timeout"] = "2s"
    try:
        async with asyncio.timeout(30):
            assert (await fails(source))[0] == "Timeout"
    finally:
        released.set()
    source.remote.front.instead = lambda asked, answer: None
    source.spec["timeout"] = "60s"
    await recovers(source, "2")


@pytest.mark.parametrize("what", ["everything", "content"])
async def test_what_is_truncated_is_not_stored(source: Followed, what: str) -> None:
    cuts: list[str] = []

    def cut(asked: str, answer: Answer) -> Answer | None:
        if what == "content" and len(answer.body) < CONTENT:
            return None
        cuts.append(asked)
        return Answer(answer.status, answer.headers, answer.body, cut=True)

    source.remote.put(noise__json=noise())
    source.remote.front.instead = cut
    await fails(source)
    assert cuts
    source.remote.front.instead = lambda asked, answer: None
    await recovers(source, "2")


async def test_a_file_that_is_too_large_is_left_out_and_named(source: Followed) -> None:
    source.remote.put_large()
    assert await source.look() == "Succeeded"
    assert source.names == {"flags.json"}
    assert ["large.json: too large" in message for _, message in source.events] == [True]


async def test_a_bomb_is_refused_within_the_limits(source: Followed) -> None:
    source.remote.put_bomb()
    await fails(source)
    assert source.condition("Stalled")[0] == "True"
    source.remote.defuse()
    await recovers(source, "2")


async def test_credentials_that_are_rotated_are_taken_while_it_runs(source: Followed) -> None:
    source.remote.rotate()
    reason, message = await fails(source)
    assert reason == "AuthenticationFailed"
    assert source.remote.password not in message
    source.secrets["login"] = source.remote.login
    await recovers(source, "2")


async def test_a_proxy_is_asked_for_everything(source: Followed) -> None:
    with http_proxy("me:p@ss/word") as proxy:
        source.secrets["proxy"] = {
            "address": proxy.address.encode(),
            "username": b"me",
            "password": b"p@ss/word",
        }
        source.spec[source.remote.provider]["proxySecretRef"] = {"name": "proxy"}
        source.remote.front.asked.clear()
        await recovers(source, "2")
        assert proxy.admitted == len(source.remote.front.asked) > 0
        source.secrets["proxy"] = {**source.secrets["proxy"], "password": b"wr@ng/word"}
        source.remote.put(flags__json="3")
        _, message = await fails(source)
        assert "wr@ng" not in message
