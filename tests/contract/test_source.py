"""What every source promises, on the fake, on Git (in place, through a mirror of a folder, and over HTTP) and
on a container registry; and a bucket, which has no branches and tags, as far as the promises are not about
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pytest

from controller.api.addresses import parse_address
from controller.api.meta import AUTHOR, SUBJECT
from controller.api.source_spec import LayerSelector, OciReference
from controller.runtime.setbacks import Failed, Waiting
from controller.sources.backend import SourceBackend
from controller.sources.bucket_backend import open_bucket
from controller.sources.git_backend import open_source
from controller.sources.git_references import Reference
from controller.sources.oci_backend import OciBackend
from controller.sources.oci_registry import Registry, RegistryAccess, RegistryClient, Scope
from tests.buckets.fixtures import KINDS, azure_port, bucket, empty_bucket, google_port
from tests.fakes import FakeRepository, FakeSource
from tests.git_http import git_server
from tests.registry.artifacts import flux
from tests.registry.fixtures import Shelf, registry, shelf
from tests.registry.front import Answer
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.sources.backend import Revision
    from tests.buckets.relay import Relay

__all__ = ["azure_port", "google_port", "registry", "shelf"]


class Source(SourceBackend, Protocol):
    """A backend that reports changes, too."""

    def changes(self) -> AsyncIterator[None]: ...


class Place(Protocol):
    """A repository under test; it starts empty."""

    algorithm: str
    """Of the digests of its revisions, which `commit` returns without it."""

    def commit(self, subject: str, branch: str = "main", **files: str) -> str: ...
    def tag(self, name: str) -> None: ...
    def point(self, name: str, oid: str | None) -> None: ...
    def present(self, there: bool) -> None: ...
    def source(self, reference: str | None = None) -> Source: ...


class AnyPlace(Protocol):
    """What holds definitions, in whatever form; it starts empty."""

    algorithm: str
    empty: str
    """The reason while it is empty."""
    gone: str
    """The reason while it is away."""

    def commit(self, subject: str, branch: str = "main", **files: str) -> str: ...
    def present(self, there: bool) -> None: ...
    def source(self, reference: str | None = None) -> Source: ...


class FakePlace:
    algorithm, empty, gone = "sha1", "EmptyRepository", "RepositoryNotFound"

    def __init__(self) -> None:
        self.repository = FakeRepository()
        self.commit = self.repository.commit
        self.tag = self.repository.tag
        self.point = self.repository.point

    def present(self, there: bool) -> None:
        self.repository.present = there

    def source(self, reference: str | None = None) -> Source:
        return FakeSource(self.repository, Reference.parse(reference))


class GitPlace:
    """A real repository; `location` says how it is reached."""

    algorithm, empty, gone = "sha1", "EmptyRepository", "RepositoryNotFound"

    def __init__(self, root: Path, location: str) -> None:
        self.root = root
        self.location = location
        self.repository = Repository(root / "repository")

    def commit(self, subject: str, branch: str = "main", **files: str) -> str:
        git = self.repository.git
        if branch != git("symbolic-ref", "--short", "HEAD"):
            git("checkout", "-q", "-B", branch)
        try:
            return self.repository.commit(subject, **files)
        finally:
            git("checkout", "-q", "-B", "main", "main")

    def tag(self, name: str) -> None:
        self.repository.git("tag", "-a", name, "-m", "annotated", "main")

    def point(self, name: str, oid: str | None) -> None:
        self.repository.git("update-ref", *(("-d", name) if oid is None else (name, oid)))

    def present(self, there: bool) -> None:
        here, away = self.repository.path, self.root / "away"
        (away if there else here).rename(here if there else away)

    def source(self, reference: str | None = None) -> Source:
        return open_source(
            self.location, reference=reference, mirror_root=self.root / "mirrors", interval=0.2
        )


class OciPlace:
    """A repository of a real registry, whose tags are branches and tags alike."""

    algorithm, empty, gone = "sha256", "EmptyRepository", "RepositoryNotFound"

    def __init__(self, shelf: Shelf, client: RegistryClient) -> None:
        self.shelf = shelf
        self.client = client
        self.files: dict[str, dict[str, str | bytes]] = {}
        # It is there, and has no tag.
        self.commit("nothing", branch="gone")
        self.point("refs/heads/gone", None)

    def commit(self, subject: str, branch: str = "main", **files: str) -> str:
        held = self.files.setdefault(branch, dict(self.files.get("main", {})))
        held |= {name.replace("__", "."): text for name, text in files.items()}
        artifact = flux(held, authors="Ada <ada@example.com>", title=subject)
        manifest = artifact.manifest.replace(b"org.opencontainers.image.title", SUBJECT.encode())
        digest = self.shelf.pusher.push(self.shelf.repository, branch, replace(artifact, manifest=manifest))
        return digest.removeprefix("sha256:")

    def tag(self, name: str) -> None:
        self.shelf.pusher.tag(self.shelf.repository, "main", name)

    def point(self, name: str, oid: str | None) -> None:
        tag = name.rpartition("/")[2]
        if oid is None:
            self.shelf.pusher.delete(self.shelf.repository, tag)
        else:
            self.shelf.pusher.tag(self.shelf.repository, f"sha256:{oid}", tag)

    def present(self, there: bool) -> None:
        unknown = Answer(404, body=b'{"errors": [{"code": "NAME_UNKNOWN"}]}')
        self.shelf.front.instead = lambda asked, answer: None if there else unknown

    def source(self, reference: str | None = None) -> Source:
        kind, _, value = (reference or "main").rpartition(":")
        if kind == "semver":
            ref = OciReference(semver=value)
        elif kind == "commit":
            ref = OciReference(digest=f"sha256:{value}")
        else:
            ref = OciReference(tag=value.rpartition("/")[2])
        registry = Registry(
            Scope(parse_address(self.shelf.url, insecure=True), RegistryAccess()), self.client
        )
        return OciBackend(registry, ref, LayerSelector(), interval=0.2)


class BucketPlace:
    """A real bucket, where a commit is whatever was put last."""

    algorithm, empty, gone = "sha256", "EmptyBucket", "BucketNotFound"

    def __init__(self, store: Relay) -> None:
        self.store = store
        self.present = store.present

    def commit(self, subject: str, branch: str = "main", **files: str) -> str:
        self.store.put(**files)
        return hashlib.sha256(self.store.index.encode()).hexdigest()

    def source(self, reference: str | None = None) -> Source:
        found = open_bucket(self.store.shown, {}, endpoint=self.store.endpoint, interval=0.2)
        return replace(found, bucket=bucket(self.store))


PLACES = ["fake", "in place", "mirrored", "http", "registry"]


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(request, tmp_path) as found:
        yield found


@pytest.fixture(params=[*PLACES, *KINDS])
async def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AnyPlace]:
    if request.param not in KINDS:
        async with open_place(request, tmp_path) as found:
            yield found
        return
    with empty_bucket(request.param, request, tmp_path) as store:
        yield BucketPlace(store)


@contextlib.asynccontextmanager
async def open_place(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[FakePlace | GitPlace | OciPlace]:
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "fake":
            yield FakePlace()
            return
        if request.param == "registry":
            client = RegistryClient()
            stack.push_async_callback(client.close)
            yield OciPlace(request.getfixturevalue("shelf"), client)
            return
        location = str(tmp_path / "repository")
        if request.param == "http":
            server = stack.enter_context(git_server(tmp_path))
            location = f"{server.url}/repository/.git"
        git_place = GitPlace(tmp_path, location)
        if request.param == "mirrored":
            # An extension that git knows and libgit2 does not.
            git_place.repository.git("config", "core.repositoryFormatVersion", "1")
            git_place.repository.git("config", "extensions.partialClone", "origin")
        yield git_place


async def files(source: Source, revision: Revision, into: Path) -> dict[str, str]:
    await asyncio.to_thread(into.mkdir)
    await source.fetch(revision, into)
    return await asyncio.to_thread(read_files, into)


def empty(below: Path) -> Path:
    folder = below / "empty"
    folder.mkdir()
    return folder


def read_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


async def test_the_default_is_the_head_branch_at_its_tip(place: Place) -> None:
    oid = place.commit("first", a__json="1")
    assert str(await place.source().resolve()) == f"main@{place.algorithm}:{oid}"


async def test_a_fetched_revision_is_its_files_and_its_story(place: Place, tmp_path: Path) -> None:
    place.commit("first", a__json="1", b__json="2")
    source = place.source()
    revision = await source.resolve()
    assert await files(source, revision, tmp_path / "into") == {"a.json": "1", "b.json": "2"}
    commit = await source.fetch(revision, await asyncio.to_thread(empty, tmp_path))
    found = (commit.revision, commit.metadata[AUTHOR], commit.metadata[SUBJECT])
    assert found == (revision, "Ada <ada@example.com>", "first")


async def test_what_is_put_is_what_is_fetched(any_place: AnyPlace, tmp_path: Path) -> None:
    before = any_place.commit("first", a__json="1", b__json="2")
    source = any_place.source()
    revision = await source.resolve()
    assert revision.digest.partition(":")[2] == before
    assert await files(source, revision, tmp_path / "1") == {"a.json": "1", "b.json": "2"}
    after = any_place.commit("second", a__json="3")
    revision = await source.resolve()
    assert revision.digest.partition(":")[2] == after
    assert await files(source, revision, tmp_path / "2") == {"a.json": "3", "b.json": "2"}


async def test_unchanged_content_has_the_same_revision_for_all(any_place: AnyPlace) -> None:
    any_place.commit("first", a__json="1")
    source = any_place.source()
    assert await source.resolve() == await source.resolve() == await any_place.source().resolve()


async def test_a_branch_is_followed(place: Place, tmp_path: Path) -> None:
    place.commit("first", a__json="1")
    place.commit("on the side", branch="dev", a__json="side")
    source = place.source("dev")
    assert await files(source, await source.resolve(), tmp_path / "1") == {"a.json": "side"}
    oid = place.commit("more on the side", branch="dev", a__json="more")
    revision = await source.resolve()
    assert str(revision) == f"dev@{place.algorithm}:{oid}"
    assert await files(source, revision, tmp_path / "2") == {"a.json": "more"}


@pytest.mark.parametrize("reference", ["tag:v1.2.0", "semver:1.x", "name:refs/tags/v1.2.0"])
async def test_a_tag_is_the_commit_that_it_marks(place: Place, tmp_path: Path, reference: str) -> None:
    oid = place.commit("first", a__json="1")
    place.tag("v1.2.0")
    place.commit("second", a__json="2")
    place.tag("v2.0.0")
    source = place.source(reference)
    revision = await source.resolve()
    assert revision.digest == f"{place.algorithm}:{oid}"
    assert await files(source, revision, tmp_path / "into") == {"a.json": "1"}


async def test_a_pinned_commit_is_fetched_though_nothing_points_at_it(place: Place, tmp_path: Path) -> None:
    oid = place.commit("first", a__json="1")
    place.commit("second", a__json="2")
    source = place.source(f"commit:{oid}")
    revision = await source.resolve()
    assert str(revision) == f"{place.algorithm}:{oid}"
    assert await files(source, revision, tmp_path / "into") == {"a.json": "1"}


async def test_a_commit_that_never_was_is_gone(place: Place, tmp_path: Path) -> None:
    digits = len(place.commit("first"))
    source = place.source("commit:" + ("0123456789" * 7)[:digits])
    with pytest.raises(Failed, match="0123456789") as setback:
        await files(source, await source.resolve(), tmp_path / "into")
    assert setback.value.reason == "RevisionGone"


async def test_every_push_of_a_local_backend_is_shown(any_place: AnyPlace) -> None:
    backend: SourceBackend = any_place.source()
    assert backend.shows_every_push


async def test_an_empty_place_is_waited_for(any_place: AnyPlace) -> None:
    with pytest.raises(Waiting) as setback:
        await any_place.source().resolve()
    assert setback.value.reason == any_place.empty


async def test_a_deleted_branch_fails_and_says_which_there_are(place: Place) -> None:
    place.point("refs/heads/dev", place.commit("first"))
    source = place.source("dev")
    await source.resolve()
    place.point("refs/heads/dev", None)
    with pytest.raises(Failed, match=r"no (branch|tag) 'dev'; (branches|tags): main") as setback:
        await source.resolve()
    assert setback.value.reason == "ReferenceNotFound"


async def test_a_force_push_is_followed(place: Place, tmp_path: Path) -> None:
    first = place.commit("first", a__json="1")
    place.commit("second", a__json="2")
    source = place.source("main")
    assert await files(source, await source.resolve(), tmp_path / "1") == {"a.json": "2"}
    place.point("refs/heads/main", first)
    assert await files(source, await source.resolve(), tmp_path / "2") == {"a.json": "1"}


async def test_a_place_that_vanishes_fails_and_may_come_back(any_place: AnyPlace) -> None:
    oid = any_place.commit("first", a__json="1")
    source = any_place.source()
    await source.resolve()
    any_place.present(False)
    with pytest.raises(Failed) as setback:
        await source.resolve()
    assert setback.value.reason == any_place.gone
    any_place.present(True)
    assert (await source.resolve()).digest.endswith(oid)


async def test_changes_begins_at_once_and_reports_a_commit(any_place: AnyPlace) -> None:
    any_place.commit("first", a__json="1")
    source = any_place.source()
    async with asyncio.timeout(20):
        changes = source.changes()
        await anext(changes)
        oid = any_place.commit("second", a__json="2")
        while not (await source.resolve()).digest.endswith(oid):
            await anext(changes)


async def test_changes_goes_on_while_the_place_is_away(any_place: AnyPlace) -> None:
    any_place.commit("first", a__json="1")
    source = any_place.source()
    async with asyncio.timeout(20):
        changes = source.changes()
        await anext(changes)
        any_place.present(False)
        await anext(changes)
        await anext(changes)
        any_place.present(True)
        await anext(changes)
    assert await source.resolve()
