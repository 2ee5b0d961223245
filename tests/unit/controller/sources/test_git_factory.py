"""From spec and Secrets to files, against a real Git server."""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import ObjectKey
from controller.api.source_spec import GitSpec
from controller.runtime.hosts import DENIED, Hosts
from controller.runtime.secret_texts import Binding, SecretContent
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import FetchRequest
from controller.sources.freshness import SHARED, Freshness, PendingPushes
from controller.sources.git_factory import GitFactory
from controller.sources.reconciler import SourceReconciler
from tests.git_http import GitServer, git_server
from tests.repositories import Repository
from tests.worlds.sources import GitSources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "apps", "flags")
BASIC = {"username": b"me", "password": b"x"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json="1")
    return repository


@pytest.fixture
def server(repository: Repository) -> Iterator[GitServer]:
    with git_server(repository.path.parent) as running:
        yield running


@pytest.fixture
async def world(tmp_path: Path, server: GitServer) -> AsyncIterator[GitSources]:
    world = GitSources(tmp_path, f"{server.url}/repository/.git")
    yield world
    await world.close()


async def test_without_a_reference_the_branch_main_is_followed(
    world: GitSources, repository: Repository
) -> None:
    repository.git("checkout", "-q", "-b", "elsewhere")
    repository.commit("there", flags__json="2")
    assert await world.look() == b"1"
    assert world.statuses["flags"]["artifact"]["revision"].startswith("main@sha1:")


@pytest.mark.parametrize(
    ("ref", "revision"),
    [
        ({"branch": "side"}, "side@"),
        ({"tag": "v1.0.0"}, "v1.0.0@"),
        ({"semver": ">=1.0.0", "tag": "v1.0.0"}, "v1.0.0@"),
        ({"semver": ">=1.0.0"}, "v1.1.0@"),
        ({"name": "refs/heads/side"}, "refs/heads/side@"),
    ],
)
async def test_each_kind_of_reference_is_followed(
    world: GitSources, repository: Repository, ref: dict[str, str], revision: str
) -> None:
    repository.git("tag", "v1.0.0")
    repository.git("tag", "v1.1.0")
    repository.git("branch", "side")
    await world.look(ref=ref)
    stored = world.statuses["flags"]["artifact"]["revision"]
    assert stored.startswith(revision)


async def test_a_commit_that_was_fetched_once_needs_no_network(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    pinned = {"commit": repository.git("rev-parse", "HEAD")}
    assert await world.look(ref=pinned) == b"1"
    server.paths.clear()
    assert await world.look(ref=pinned) == b"1"
    world.storages.forget(KEY)
    assert await world.look(ref=pinned) == b"1"
    assert not server.paths


async def test_a_remote_that_is_down_fails_and_comes_back(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    await world.look()
    port = server.server_port
    server.shutdown()
    server.server_close()
    assert isinstance(await world.fails(), Failed)
    with git_server(repository.path.parent) as again:
        world.url = world.url.replace(str(port), str(again.server_port))
        assert await world.look() == b"1"


async def test_a_secret_that_is_missing_is_named_and_helps_once_it_is_there(
    world: GitSources, server: GitServer
) -> None:
    server.login = "me:x"
    setback = await world.fails(secretRef={"name": "git"})
    assert (type(setback), setback.reason) == (Failed, "AuthenticationFailed")
    assert "Secret apps/git does not exist" in setback.message
    world.secrets["apps", "git"] = BASIC
    assert await world.look(secretRef={"name": "git"}) == b"1"


async def test_a_secret_is_read_as_the_account_that_the_source_names(
    world: GitSources, server: GitServer
) -> None:
    server.login = "me:x"
    world.secrets["apps", "git"] = BASIC
    await world.look(secretRef={"name": "git"})
    assert world.readers == {None}
    world.account = "flags"
    await world.look(secretRef={"name": "git"})
    assert world.readers == {None, "flags"}


async def test_a_secret_is_sent_to_no_host_that_its_annotation_does_not_name(
    world: GitSources, server: GitServer
) -> None:
    server.login = "me:x"
    for hosts, lets in (("git.example.com",), False), (("127.0.0.*",), True):
        world.secrets["apps", "git"] = SecretContent(BASIC, Binding("apps", "git", hosts))
        if lets:
            assert await world.look(secretRef={"name": "git"}) == b"1"
            continue
        setback = await world.fails(secretRef={"name": "git"})
        assert (type(setback), setback.reason) == (Stalled, "SecretHostDenied")
        assert "Secret apps/git may not be used for host 127.0.0.1" in setback.message
    proxy = {"address": b"http://proxy.example.com:3128"}
    world.secrets["apps", "proxy"] = SecretContent(proxy, Binding("apps", "proxy", ("127.0.0.1",)))
    setback = await world.fails(secretRef={"name": "git"}, proxySecretRef={"name": "proxy"})
    assert "Secret apps/proxy may not be used for host proxy.example.com" in setback.message


async def test_a_bound_secret_goes_in_clear_through_no_proxy_that_it_does_not_name(world: GitSources) -> None:
    world.secrets["apps", "git"] = SecretContent(BASIC, Binding("apps", "git", ("127.0.0.1",)))
    world.secrets["apps", "proxy"] = {"address": b"http://proxy.example.com:3128"}
    setback = await world.fails(secretRef={"name": "git"}, proxySecretRef={"name": "proxy"})
    assert setback.reason == "SecretHostDenied"
    assert "host proxy.example.com" in str(setback)


async def test_credentials_that_are_revoked_fail_and_new_ones_are_taken_at_once(
    world: GitSources, server: GitServer
) -> None:
    server.login = "me:x"
    world.secrets["apps", "git"] = BASIC
    await world.look(secretRef={"name": "git"})
    server.login = "me:y"
    setback = await world.fails(secretRef={"name": "git"})
    assert setback.reason == "AuthenticationFailed"
    world.secrets["apps", "git"] = BASIC | {"password": b"y"}
    assert await world.look(later=0, secretRef={"name": "git"}) == b"1"


async def test_a_secret_of_another_namespace_is_none(world: GitSources) -> None:
    world.secrets["other", "git"] = BASIC
    assert "apps/git does not exist" in (await world.fails(secretRef={"name": "git"})).message


@pytest.mark.parametrize(
    ("git", "reason"),
    [
        ({"url": "file:///srv/flags"}, "URLInvalid"),
        ({"url": "https://h"}, "URLInvalid"),
        ({"url": "ssh://h/r"}, "AuthenticationFailed"),
        ({"url": "ssh://h/r", "secretRef": {"name": "basic"}}, "InvalidSecret"),
        ({"proxySecretRef": {"name": "basic"}}, "InvalidSecret"),
        ({"ref": {"branch": "-x"}}, "InvalidReference"),
        ({"ref": {"semver": "newest"}}, "InvalidReference"),
        ({"ref": {"commit": "ab" * 32}}, "InvalidReference"),
    ],
)
async def test_an_invalid_spec_stalls_before_any_request(
    world: GitSources, server: GitServer, git: dict[str, Any], reason: str
) -> None:
    world.secrets["apps", "basic"] = BASIC
    setback = await world.fails(**git)
    assert (type(setback), setback.reason) == (Stalled, reason)
    assert not server.paths


async def test_a_folder_of_this_machine_is_read_where_that_is_allowed(
    world: GitSources, repository: Repository
) -> None:
    world.sources = GitFactory(world.secret, world.mirrors, allow_local=True)
    world.opened.append(world.sources)
    world.reconciler = SourceReconciler({"git": world.sources}, world.storages, PendingPushes(), lambda: 0.5)
    assert await world.look(url=f"file://{repository.path}") == b"1"


def deny_hosts(world: GitSources, denied: tuple[str, ...] = ()) -> None:
    """Sources on hosts that are not denied; `git.test` is this machine."""

    async def resolve(host: str, port: int) -> tuple[str, ...]:
        return ("127.0.0.1",) if host in {"git.test", "127.0.0.1"} else ()

    hosts = Hosts((), denied, resolve)
    world.sources = GitFactory(world.secret, world.mirrors, hosts=hosts)
    world.opened.append(world.sources)
    world.reconciler = SourceReconciler({"git": world.sources}, world.storages, PendingPushes(), lambda: 0.5)


async def test_a_host_that_is_denied_is_not_asked(world: GitSources, server: GitServer) -> None:
    deny_hosts(world, DENIED)
    setback = await world.fails()
    assert (type(setback), setback.reason) == (Stalled, "HostDenied")
    assert not server.paths


async def test_plain_http_may_be_denied(world: GitSources, server: GitServer) -> None:
    sources = GitFactory(world.secret, world.mirrors, hosts=Hosts((), (), plain_http=False))
    world.opened.append(sources)
    with pytest.raises(Stalled, match="denied by --deny-http-sources") as refused:
        await sources.open(GitSpec(url=world.url), FetchRequest(KEY, 1.5, Freshness(NOW, NOW)))
    assert refused.value.reason == "URLInvalid"
    assert not server.paths


async def test_git_connects_to_the_address_that_was_judged(world: GitSources) -> None:
    deny_hosts(world)
    # Nobody but our resolver knows the name.
    assert await world.look(url=world.url.replace("127.0.0.1", "git.test")) == b"1"


async def test_a_redirect_is_not_followed_where_hosts_are_judged(
    world: GitSources, server: GitServer
) -> None:
    deny_hosts(world)
    server.redirect_to = "http://elsewhere.test"
    setback = await world.fails()
    assert setback.reason == "Redirected"
    assert "write the URL that it redirects to" in setback.message


async def test_the_spec_says_how_long_git_may_take(world: GitSources) -> None:
    source: Any = await world.sources.open(
        GitSpec(url=world.url), FetchRequest(KEY, 1.5, Freshness(NOW, NOW))
    )
    assert source.deadline.left == 1.5


async def test_sources_of_one_remote_ask_it_once_and_fetch_once(world: GitSources, server: GitServer) -> None:
    await asyncio.gather(*(world.look(str(number), later=0) for number in range(10)))
    assert len(server.fetches) == 1
    server.paths.clear()
    world.now += timedelta(hours=1)
    await asyncio.gather(*(world.look(str(number), later=0) for number in range(10)))
    # One listing.
    assert len(server.paths) == 1
    assert len(server.fetches) == 1
    assert len(list((world.mirrors / "apps").glob("*.git"))) == 1


async def test_a_push_that_woke_a_source_is_seen_by_it_whatever_listing_others_used(
    world: GitSources, repository: Repository
) -> None:
    for name in ("one", "other"):
        await world.look(name)
    await world.look("one")
    repository.commit("second", flags__json="2")
    assert await world.look("other", later=SHARED.total_seconds() / 2) == b"1"
    assert await world.look("other", later=0) == b"2"


async def mirrors(world: GitSources, wanted: int) -> None:
    """Until there are as many; removal is a thread's work."""
    async with asyncio.timeout(20):
        while len(list((world.mirrors / "apps").iterdir())) != 2 * wanted:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)


async def test_a_mirror_goes_with_the_last_source_that_uses_it(world: GitSources) -> None:
    for name in ("one", "other"):
        await world.look(name)
    world.reconciler.forget(ObjectKey("FlagSource", "apps", "one"))
    assert len(list((world.mirrors / "apps").glob("*.git"))) == 1
    world.reconciler.forget(ObjectKey("FlagSource", "apps", "other"))
    await mirrors(world, 0)


async def test_a_mirror_goes_with_credentials_that_are_renewed(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    for token in ("1", "2", "3"):
        repository.commit("more", flags__json=token)
        world.secrets["apps", "git"] = {"bearerToken": token.encode()}
        server.bearer = token
        await world.look(secretRef={"name": "git"})
    await mirrors(world, 1)


async def test_mirrors_of_credentials_that_changed_before_a_restart_go_after_a_week(
    world: GitSources, repository: Repository, server: GitServer, tmp_path: Path
) -> None:
    for token in ("before", "now"):
        world.restart(tmp_path)
        repository.commit("more", flags__json=token)
        world.secrets["apps", "git"] = {"bearerToken": token.encode()}
        server.bearer = token
        await world.look(secretRef={"name": "git"})
    root = world.mirrors / "apps"
    used = max(root.glob("*.git"), key=lambda mirror: mirror.stat().st_mtime)
    now = datetime.fromtimestamp(used.stat().st_mtime, UTC)
    await world.sources.sweep(now + timedelta(days=6))
    assert len({*root.glob("*.git")}) == 2
    del world.secrets["apps", "git"]
    await world.fails(secretRef={"name": "git"})
    await world.sources.sweep(now + timedelta(days=20))
    assert {*root.glob("*.git")} == {used}


async def test_nothing_is_kept_of_a_source_that_is_gone(world: GitSources, server: GitServer) -> None:
    server.bearer = "s3cret"
    world.secrets["apps", "git"] = {"bearerToken": b"s3cret"}
    await world.look(secretRef={"name": "git"})
    reconciler, sources = world.reconciler, world.sources
    reconciler.pending.expect(KEY, "f" * 40, NOW)
    reconciler.forget(KEY)
    world.storages.close()
    await mirrors(world, 0)
    assert len(sources.listings) == 0
    assert not reconciler.pending.is_waiting(KEY, NOW)
    assert not [*(world.mirrors.with_name("artifacts") / "flagsource").iterdir()]


async def test_an_unchanged_remote_is_listed_and_not_fetched(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    for fetches in (1, 1):
        await world.look()
        assert len(server.fetches) == fetches
    repository.commit("second", flags__json="2")
    assert await world.look() == b"2"
    assert len(server.fetches) == 2


def noise(size: int) -> str:
    """Text that does not get smaller."""
    return os.urandom(size // 2).hex()


async def test_a_mirror_that_outgrows_the_quota_is_removed_and_its_artifact_stays(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    world.restart(world.mirrors.parent, mirror_bytes=1_000_000)
    assert await world.look() == b"1"
    repository.commit("huge", huge__bin=noise(4_000_000), flags__json="2")
    refused = await world.fails()
    assert (refused.reason, isinstance(refused, Stalled)) == ("QuotaExceeded", True)
    match = re.fullmatch(
        r"bytes of mirrors of Git repositories of namespace apps: (\d+), and its quota is 1000000; "
        r"remove some, or have the quota raised \(--quota-mirror-bytes\)",
        refused.message,
    )
    assert match is not None
    assert 1_000_000 < int(match[1]) < 4_000_000
    assert not [*(world.mirrors / "apps").glob("*.git")]
    assert world.storages.read(world.statuses["flags"]["artifact"]["path"]) is not None
    server.fetches.clear()
    assert (await world.fails()).reason == "QuotaExceeded"
    assert not server.fetches
    world.restart(world.mirrors.parent, mirror_bytes=10_000_000)
    assert await world.look() == b"2"


@pytest.mark.long
async def test_a_mirror_that_outgrew_the_quota_over_time_is_made_anew(
    world: GitSources, repository: Repository
) -> None:
    world.restart(world.mirrors.parent, mirror_bytes=3_000_000)
    for number in range(4):
        repository.commit("other", other__bin=noise(2_000_000), flags__json=str(number))
        assert await world.look() == str(number).encode()


async def test_what_one_namespace_follows_makes_no_other_s_mirror_grow(
    world: GitSources, repository: Repository
) -> None:
    repository.git("checkout", "-q", "-b", "huge")
    repository.commit("huge", huge__bin=noise(4_000_000))
    look = FetchRequest(ObjectKey("FlagSource", "other", "flags"), 60.0, Freshness(NOW, NOW))
    backend = await world.sources.open(
        GitSpec.model_validate({"url": world.url, "ref": {"branch": "huge"}}), look
    )
    into = world.mirrors.parent / "into"
    into.mkdir()
    await backend.fetch(await backend.resolve(), into)
    assert await world.look() == b"1"
    repository.git("checkout", "-q", "main")
    repository.commit("second", flags__json="2")
    assert await world.look() == b"2"
    sizes = {
        namespace: sum(
            each.stat().st_size for each in (world.mirrors / namespace).rglob("*") if each.is_file()
        )
        for namespace in ("apps", "other")
    }
    assert sizes["apps"] < 1_000_000 < sizes["other"]


@pytest.mark.long
async def test_where_another_source_goes_there_is_room_for_its_mirror(
    world: GitSources, repository: Repository, server: GitServer
) -> None:
    world.restart(world.mirrors.parent, mirror_bytes=3_000_000)
    repository.commit("large", large__bin=noise(4_000_000))
    await world.look("first")
    # Another address of the same server: another remote.
    world.url = world.url.replace("127.0.0.1", "localhost")
    with pytest.raises(Stalled, match="its quota is 3000000"):
        await world.look("second")
    world.reconciler.forget(ObjectKey("FlagSource", "apps", "first"))
    assert await world.look("second") == b"1"
