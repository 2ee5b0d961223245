"""The same references by one HTTP request as by git's program; and which remotes it leaves to git."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from controller.api.parsing.git_url import parse_location
from controller.runtime.reconciling.setbacks import Failed
from controller.runtime.user_text.secret_texts import Tls
from controller.sources.git.credentials import Credentials
from controller.sources.git.listing import http_listing
from controller.sources.git.listing.http_listing import HttpListing, parse_advertisement
from controller.sources.git.listing.reference import References, parse
from controller.sources.git.programs.program import GitProgram
from controller.sources.looking.deadline import Deadline
from tests.git_http import git_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.repositories import Repository

SECRET = "s3cr3t"  # noqa: S105 - it guards nothing


@pytest.fixture
async def listing() -> AsyncIterator[HttpListing]:
    listing = HttpListing()
    yield listing
    await listing.close()


def program(url: str, credentials: Credentials | None = None, seconds: float = 30.0) -> GitProgram:
    location = parse_location(f"{url}/repository/.git")
    return GitProgram(location, credentials, Deadline(seconds, location.shown))


@pytest.mark.parametrize("options", [(), ("--heads", "--tags")], ids=["all", "narrowed"])
@pytest.mark.parametrize("head", ["main", "--detach", "empty"])
async def test_it_lists_what_git_lists(
    listing: HttpListing, repository: Repository, tmp_path: Path, options: tuple[str, ...], head: str
) -> None:
    if head != "empty":
        repository.commit("first", a="1")
        repository.git("tag", "light")
        repository.git("tag", "-a", "heavy", "-m", "annotated")
        repository.git("update-ref", "refs/pull/1/head", "HEAD")
        repository.git("checkout", "-q", head)
    with git_server(tmp_path) as server:
        asked = program(server.url)
        found = await listing.references(asked, narrowed=bool(options))
        assert len(server.paths) == 1
        by_git = await parse(await asked.list_references(*options), "r")
    assert found is not None
    assert found.commits == by_git.commits
    if not options and head != "empty":
        assert found.head == by_git.head


@pytest.mark.parametrize("proof", [{"login": f"me:{SECRET}"}, {"bearer": SECRET}])
async def test_it_proves_itself_at_the_first_request(
    listing: HttpListing, repository: Repository, tmp_path: Path, proof: dict[str, str]
) -> None:
    repository.commit("first")
    credentials = Credentials("me", SECRET) if "login" in proof else Credentials(bearer=SECRET)
    with git_server(tmp_path, **proof) as server:  # type: ignore[arg-type]  # words only
        assert await listing.references(program(server.url, credentials), narrowed=True) is not None
        assert len(server.paths) == 1


async def test_a_private_authority_is_trusted_and_no_other(
    listing: HttpListing, repository: Repository, tmp_path: Path
) -> None:
    repository.commit("first")
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with git_server(tmp_path, tls=context) as server:
        for ca, believed in ((authority, True), (stranger, False)):
            credentials = Credentials(tls=Tls(ca.cert_pem.bytes().decode()))
            found = await listing.references(program(server.url, credentials), narrowed=True)
            assert (found is not None) is believed


async def test_what_is_refused_redirected_or_gone_is_left_to_git(
    listing: HttpListing, repository: Repository, tmp_path: Path
) -> None:
    repository.commit("first")
    with git_server(tmp_path) as elsewhere, git_server(tmp_path, login="me:other") as server:
        assert await listing.references(program(server.url, Credentials("me", "x")), narrowed=True) is None
        assert await listing.references(program(f"{elsewhere.url}/nowhere"), narrowed=True) is None
        server.redirect_to, server.login = elsewhere.url, ""
        elsewhere.paths.clear()
        assert await listing.references(program(server.url), narrowed=True) is None
        assert not elsewhere.paths
    assert await listing.references(program(server.url), narrowed=True) is None


@pytest.mark.parametrize("credentials", [Credentials(proxy="http://h:1"), Credentials(tls=Tls("", "C", "K"))])
async def test_proxies_and_client_certificates_are_left_to_git(
    listing: HttpListing, repository: Repository, tmp_path: Path, credentials: Credentials
) -> None:
    repository.commit("first")
    with git_server(tmp_path) as server:
        assert await listing.references(program(server.url, credentials), narrowed=True) is None
        assert not server.paths


async def test_a_remote_of_many_references_is_left_to_git_from_then_on(
    listing: HttpListing, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("first")
    monkeypatch.setattr(http_listing, "_MAX_BYTES", 10)
    with git_server(tmp_path) as server:
        for _ in range(2):
            assert await listing.references(program(server.url), narrowed=True) is None
        assert len(server.paths) == 1


async def test_a_server_that_does_not_answer_is_given_up_at_the_deadline(listing: HttpListing) -> None:
    import socket

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        asked = program(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.2)
        with pytest.raises(Failed, match=r"within 0\.2 seconds"):
            await listing.references(asked, narrowed=True)


HELLO = b"001e# service=git-upload-pack\n0000"


@pytest.mark.parametrize(
    "content",
    [b"", b"0000", HELLO, HELLO + b"0005", HELLO + b"ffff0000", HELLO + b"zzzz", b"0008test0000", HELLO[:-4]],
)
def test_what_is_cut_or_no_answer_of_git_is_refused(content: bytes) -> None:
    if content == HELLO:
        assert parse_advertisement(content, narrowed=True) == References({}, None)
        return
    with pytest.raises(ValueError, match=r".+"):
        parse_advertisement(content, narrowed=True)


@given(st.binary(max_size=60))
def test_any_answer_is_read_or_refused(tail: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_advertisement(HELLO + tail, narrowed=False)
