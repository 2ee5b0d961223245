"""References over smart HTTP without a process, beside git's own program asking the same servers."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from aiohttp import web

from controller.api.addresses import parse_location
from controller.runtime.hosts import DENIED, Hosts
from controller.runtime.http_client import HttpClient
from controller.runtime.limited_child import ProcessLimits
from controller.runtime.secret_texts import Tls
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.deadline import Deadline
from controller.sources.git_credentials import Credentials
from controller.sources.git_listing import list_over_http
from controller.sources.git_program import GitProgram
from controller.sources.git_references import parse
from tests.git_http import git_server, http_proxy
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

ME = Credentials("me", "s3cr3t")
HEADS_AND_TAGS = ("--heads", "--tags")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="1")
    repository.git("tag", "light")
    repository.git("tag", "-a", "-m", "v1", "v1")
    repository.git("update-ref", "refs/pull/1/head", "HEAD")
    repository.git("branch", "größer")
    return repository


def program(url: str, credentials: Credentials | None = None, **settings: Any) -> GitProgram:
    location = parse_location(url)
    return GitProgram(location, credentials, Deadline(30.0, location.shown), **settings)


async def ask(asked: GitProgram, *options: str, hosts: Hosts | None = None) -> str | None:
    client = HttpClient(hosts, system_proxies=True)
    try:
        return await list_over_http(client, asked, options)
    finally:
        await client.close()


@pytest.mark.parametrize("options", [(), HEADS_AND_TAGS])
@pytest.mark.parametrize("detached", [False, True])
async def test_it_lists_what_git_lists(
    repository: Repository, options: tuple[str, ...], detached: bool
) -> None:
    if detached:
        repository.git("checkout", "--detach")
    with git_server(repository.path.parent) as server:
        asked = program(f"{server.url}/repository/.git")
        listing = await ask(asked, *options)
        assert server.paths == ["/repository/.git/git-upload-pack"]
        assert listing is not None
        ours, gits = await parse(listing, "r"), await parse(await asked.list_references(*options), "r")
    assert ours == gits
    assert ("refs/pull/1/head" in ours.commits) is not bool(options)


async def test_a_repository_without_commits_lists_nothing(tmp_path: Path) -> None:
    Repository(tmp_path / "new")
    with git_server(tmp_path) as server:
        assert await ask(program(f"{server.url}/new/.git")) == ""


@pytest.mark.parametrize(
    "credentials", [ME, Credentials(bearer="t0ken"), None, Credentials("me", "wrong")], ids=str
)
async def test_credentials_let_in_and_others_are_left_to_git(
    repository: Repository, credentials: Credentials | None
) -> None:
    bearer = "t0ken" if credentials is not None and credentials.bearer else ""
    with git_server(repository.path.parent, login="" if bearer else "me:s3cr3t", bearer=bearer) as server:
        listing = await ask(program(f"{server.url}/repository/.git", credentials))
    assert (listing is not None) is (credentials in {ME, Credentials(bearer="t0ken")})


async def test_a_redirect_is_not_followed(repository: Repository) -> None:
    with git_server(repository.path.parent) as elsewhere, git_server(repository.path.parent) as first:
        first.redirect_to = elsewhere.url
        assert await ask(program(f"{first.url}/repository/.git", ME)) is None
        assert not elsewhere.paths


async def test_a_server_of_an_older_protocol_is_left_to_git(repository: Repository) -> None:
    with git_server(repository.path.parent, newest_protocol=False) as server:
        assert await ask(program(f"{server.url}/repository/.git")) is None


async def test_a_denied_host_is_not_asked(repository: Repository) -> None:
    with git_server(repository.path.parent) as server:
        denied = Hosts((), DENIED)
        assert await ask(program(f"{server.url}/repository/.git"), hosts=denied) is None
        assert not server.paths


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_private_authority_and_a_client_are_known_by_their_certificates(
    repository: Repository, trusted: bool
) -> None:
    authority, clients = trustme.CA(), trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    clients.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = (clients if trusted else trustme.CA()).issue_cert("me@example.com")
    chain = "".join(blob.bytes().decode() for blob in mine.cert_chain_pems)
    tls = Tls(authority.cert_pem.bytes().decode(), chain, mine.private_key_pem.bytes().decode())
    with git_server(repository.path.parent, tls=context) as server:
        listing = await ask(program(f"{server.url}/repository/.git", Credentials(tls=tls)))
    assert (listing is not None) is trusted


async def test_the_secrets_proxy_is_used(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http_proxy("me:s3cr3t") as proxy, git_server(repository.path.parent) as server:
        address = proxy.address.replace("//", "//me:s3cr3t@")
        assert await ask(program(f"{server.url}/repository/.git", Credentials(proxy=address))) is not None
        assert proxy.targets
        socks = Credentials(proxy=address.replace("http:", "socks5:"))
        assert await ask(program(f"{server.url}/repository/.git", socks)) is None
        assert not any(server.authorizations)


@pytest.mark.parametrize("location", ["/srv/r", "ssh://h/r", "h:r"])
async def test_other_transports_are_left_to_git(location: str) -> None:
    assert await ask(program(location)) is None


OID = "a" * 40


@pytest.fixture
async def answers() -> Any:
    """A server that answers with what is put into the list; and its URL at the end."""
    content: list[bytes] = []

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content[0], content_type="application/x-git-upload-pack-result")

    application = web.Application()
    application.router.add_post("/r/git-upload-pack", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield content, f"http://127.0.0.1:{runner.addresses[0][1]}/r"
    await runner.cleanup()


def packets(*lines: str) -> bytes:
    return b"".join(b"%04x%b" % (len(line.encode()) + 4, line.encode()) for line in lines)


LINE = packets(f"{OID} refs/heads/main\n")


@pytest.mark.parametrize(
    "content",
    [
        b"", LINE, LINE[:-5], LINE + b"0000x", LINE + b"-001", LINE + b"0001", LINE + b"zzzz",
        packets("ERR not today") + b"0000", packets(f"{OID[1:]} refs/heads/main") + b"0000",
        packets(f"{OID} refs/heads/main\nrefs/heads/other") + b"0000", packets(f"{OID} ") + b"0000",
        packets(f"{OID} refs/heads/a\tb") + b"0000", b"<html>Sign in</html>",
    ],
)  # fmt: skip
async def test_what_is_no_whole_list_is_left_to_git(answers: Any, content: bytes) -> None:
    answers[0].append(content)
    assert await ask(program(answers[1])) is None


async def test_many_references_are_read_beside_the_loop(
    answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_threads = []
    to_thread = asyncio.to_thread

    async def note(function: Any, *arguments: Any) -> Any:
        in_threads.append(function.__name__)
        return await to_thread(function, *arguments)

    monkeypatch.setattr("controller.sources.git_listing.asyncio.to_thread", note)
    answers[0].append(
        packets(*(f"{OID} refs/tags/{number} peeled:{OID}\n" for number in range(2_000))) + b"0000"
    )
    listing = await ask(program(answers[1]))
    assert listing is not None
    assert listing.count("\n") == 4_000
    assert "_read" in in_threads


async def test_an_endless_list_is_cut_off(answers: Any) -> None:
    answers[0].append(LINE * 100 + b"0000")
    asked = program(answers[1], limits=ProcessLimits(output_bytes=1_000))
    with pytest.raises(Stalled, match="more than 1000 bytes of references") as setback:
        await ask(asked)
    assert setback.value.reason == "LimitExceeded"


async def test_a_server_that_never_answers_is_not_asked_again(repository: Repository) -> None:
    with git_server(repository.path.parent) as server:
        server.mood = "hang"
        asked = program(f"{server.url}/repository/.git")
        asked.deadline.left = 0.3
        with pytest.raises(Failed) as setback:
            await ask(asked)
        server.mood = ""
    assert setback.value.reason == "Timeout"
