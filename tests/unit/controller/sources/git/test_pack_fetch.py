"""A new commit in two requests: what is sent, what a mirror is afterwards, and what is left to git."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.parsing.git_url import parse_location
from controller.runtime.reconciling.setbacks import Failed
from controller.sources.git.credentials import Credentials
from controller.sources.git.http import pack_fetch
from controller.sources.git.http.pack_fetch import PackFetch
from controller.sources.git.http.packets import PackAnswer
from controller.sources.git.listing.http_listing import HttpListing
from controller.sources.git.listing.reference import Reference
from controller.sources.git.programs import process
from controller.sources.git.provider import GitProvider
from controller.sources.looking.deadline import Deadline
from tests.git_http import GitServer, git_server
from tests.unit.controller.sources.git.test_packets import line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from controller.sources.git.listing.reference import References
    from controller.sources.git.programs.program import GitProgram
    from tests.repositories import Repository

SECRET = "s3cr3t"  # noqa: S105 - it guards nothing
OURS = ["list", "pack"]
BY_GIT = ["list", "pack"]
"""What git asks, which lists what the server can do once more."""


@pytest.fixture
def server(repository: Repository, tmp_path: Path) -> Iterator[GitServer]:
    repository.commit("first", flags__json="1", large__txt="\n".join(map(str, range(20_000))))
    with git_server(tmp_path) as running:
        yield running


@dataclass
class Looks:
    """A source that is looked at as in a cluster: a provider for each look."""

    root: Path
    server: GitServer
    listing: HttpListing
    credentials: Credentials | None = None
    lacks: frozenset[str] = frozenset()
    """Capabilities that the server is thought not to have."""
    sizes: list[int] = field(default_factory=list)
    """Of each answer with a pack for us, in bytes."""
    count: int = 0

    async def look(self, reference: str | None = "main") -> tuple[str, list[str]]:
        """What `flags.json` holds, and the requests of the look: `list`, `pack`."""
        self.count += 1
        self.server.paths.clear()
        into = self.root / f"files-{self.count}"
        into.mkdir()
        provider = self.provider(reference)
        await provider.fetch(await provider.resolve(), into)
        asked = ["list" if "info/refs" in each else "pack" for each in self.server.paths]
        return (into / "flags.json").read_text(), asked

    def provider(self, reference: str | None = "main", seconds: float = 30.0) -> GitProvider:
        location = parse_location(f"{self.server.url}/repository/.git")
        packs = PackFetch(self.listing.connections)

        def listed(program: GitProgram, options: tuple[str, ...]) -> Awaitable[References]:
            return packs.listed(self._references(program, options))

        return GitProvider(
            location,
            Reference.parse(reference),
            self.root / "mirrors",
            credentials=self.credentials,
            deadline=Deadline(seconds, location.shown),
            listed=listed,
            packs=packs,
        )

    async def _references(self, program: GitProgram, options: tuple[str, ...]) -> References:
        found = await self.listing.references(program, narrowed=bool(options))
        assert found is not None
        return replace(found, capabilities=found.capabilities - self.lacks)

    @property
    def mirror(self) -> Path:
        return self.provider().mirror.path

    def measure(self, answer: bytes) -> Iterable[bytes]:
        self.sizes.append(len(answer))
        yield answer


@pytest.fixture
async def looks(tmp_path: Path, server: GitServer) -> AsyncIterator[Looks]:
    listing = HttpListing()
    yield Looks(tmp_path, server, listing)
    await listing.close()


async def test_a_push_takes_two_requests_and_brings_what_is_new_alone(
    looks: Looks, repository: Repository
) -> None:
    looks.server.twist = looks.measure
    assert await looks.look() == ("1", OURS)
    for text in ("2", "3"):
        repository.commit("next", flags__json=text)
        assert await looks.look() == (text, OURS)
    assert looks.sizes[0] > 20_000
    assert max(looks.sizes[1:]) < 1_000


@pytest.mark.parametrize("few", [1, 100], ids=["packed", "unpacked"])
async def test_a_mirror_stays_sound_whoever_fetches(
    looks: Looks, repository: Repository, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(pack_fetch, "_FEW", few)
    for number in range(6):
        repository.commit("next", flags__json=f"{number}")
        looks.lacks = frozenset({"shallow"} if number % 3 == 1 else ())
        assert await looks.look() == (f"{number}", ["list", *BY_GIT] if looks.lacks else OURS)
        repository.git(f"--git-dir={looks.mirror}", "fsck", "--strict")
    reachable = repository.git(f"--git-dir={looks.mirror}", "rev-list", "--all")
    assert reachable == repository.git("rev-parse", "HEAD")
    repository.git(f"--git-dir={looks.mirror}", "gc", "-q", "--prune=now")
    assert await looks.look() == ("5", ["list"])


async def test_a_history_that_was_replaced_takes_two_requests(looks: Looks, repository: Repository) -> None:
    await looks.look()
    repository.commit("second", flags__json="2")
    await looks.look()
    repository.git("reset", "-q", "--hard", "HEAD~")
    repository.commit("instead", flags__json="3")
    assert await looks.look() == ("3", OURS)
    repository.git("checkout", "-q", "--orphan", "other")
    repository.commit("anew", flags__json="4")
    repository.git("branch", "-M", "other", "main")
    assert await looks.look() == ("4", OURS)


@pytest.mark.parametrize(
    "reference", ["tag:light", "tag:heavy", "semver:>=1.0", "name:refs/pull/1/head", None]
)
async def test_each_kind_of_reference_takes_two_requests(
    looks: Looks, repository: Repository, reference: str | None
) -> None:
    repository.git("tag", "light")
    repository.git("tag", "-a", "heavy", "-m", "annotated")
    repository.git("tag", "-a", "v1.2.0", "-m", "annotated")
    repository.git("update-ref", "refs/pull/1/head", "HEAD")
    if reference is not None:
        # What is marked is no tip of a branch.
        repository.commit("second", flags__json="2")
        repository.git("commit", "-q", "--amend", "-m", "instead")
    assert await looks.look(reference) == ("1", OURS)


async def test_sources_of_one_mirror_profit_from_each_other(looks: Looks, repository: Repository) -> None:
    looks.server.twist = looks.measure
    repository.git("branch", "side")
    await looks.look()
    assert await looks.look("side") == ("1", ["list"])
    repository.git("checkout", "-q", "side")
    repository.commit("second", flags__json="2")
    assert await looks.look("side") == ("2", OURS)
    assert await looks.look() == ("1", ["list"])
    assert looks.sizes[1] < 1_000


async def test_a_mirror_is_told_apart_by_what_is_cut_off(looks: Looks, repository: Repository) -> None:
    repository.commit("second", flags__json="2")
    await looks.look()
    # Of what has a history in the mirror, parts may be cut off there.
    repository.git(f"--git-dir={looks.mirror}", "fetch", "-q", "--unshallow", str(repository.path), "main")
    looks.server.twist = looks.measure
    repository.commit("third", flags__json="3")
    assert await looks.look() == ("3", OURS)
    assert looks.sizes[0] > 20_000


@pytest.mark.parametrize("lacking", ["shallow", "side-band-64k"])
async def test_a_server_that_lacks_a_capability_is_left_to_git(looks: Looks, lacking: str) -> None:
    looks.lacks = frozenset({lacking})
    assert await looks.look() == ("1", ["list", *BY_GIT])


async def test_a_commit_that_was_not_listed_is_left_to_git(looks: Looks, repository: Repository) -> None:
    content, asked = await looks.look(f"commit:{repository.git('rev-parse', 'HEAD')}")
    assert (content, asked) == ("1", BY_GIT)


async def test_a_history_that_is_verified_is_left_to_git(looks: Looks, tmp_path: Path) -> None:
    provider = looks.provider()
    revision = await provider.resolve()
    looks.server.paths.clear()
    whole = replace(provider.mirror, complete=True)
    await whole.write(provider.reference, revision, tmp_path / "whole", provider.limits, ())
    assert "info/refs" in looks.server.paths[0]


def cut(answer: bytes) -> Iterable[bytes]:
    yield answer[:-20]


def refuse(_: bytes) -> Iterable[bytes]:
    yield line(b"ERR upload-pack: not our ref")


def greet(_: bytes) -> Iterable[bytes]:
    yield b"<!DOCTYPE html>"


def be_silent(_: bytes) -> Iterable[bytes]:
    return ()


def damage(answer: bytes) -> Iterable[bytes]:
    yield answer[:-30] + bytes(each ^ 1 for each in answer[-30:-8]) + answer[-8:]


def go_on(answer: bytes) -> Iterable[bytes]:
    return chain([answer], repeat(line(b"\x02more"), 10))


def chatter(answer: bytes) -> Iterable[bytes]:
    return chain([answer[:-4]], repeat(line(b"\x02more") * 1_000, 100))


def claim(answer: bytes) -> Iterable[bytes]:
    start = answer.index(b"PACK")
    yield answer[: start + 8] + b"\x7f\xff\xff\xff" + answer[start + 12 :]


LIES: list[Callable[[bytes], Iterable[bytes]]] = [
    cut,
    refuse,
    greet,
    be_silent,
    damage,
    go_on,
    chatter,
    claim,
]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("few", [1, 100], ids=["packed", "unpacked"])
async def test_what_is_no_answer_is_left_to_git_and_leaves_nothing(
    looks: Looks,
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    lie: Callable[[bytes], Iterable[bytes]],
    few: int,
) -> None:
    monkeypatch.setattr(pack_fetch, "_FEW", few)
    monkeypatch.setattr(pack_fetch, "PackAnswer", lambda _: PackAnswer(150_000))
    await looks.look()
    repository.commit("second", flags__json="2")
    looks.server.twist = lie
    assert await looks.look() == ("2", [*OURS, *BY_GIT])
    repository.commit("third", flags__json="3")
    looks.server.twist = None
    assert await looks.look() == ("3", OURS)
    assert not [*looks.mirror.glob("objects/pack/tmp_*")]


def pack(repository: Repository, *objects: str) -> bytes:
    """An answer with these objects alone."""
    tip = repository.git("rev-parse", "HEAD")
    packed = repository.path / "packed"
    ids = "\n".join(repository.git("rev-parse", each) for each in objects)
    name = repository.git("pack-objects", "-q", str(packed), given=f"{ids}\n")
    content = (repository.path / f"packed-{name}.pack").read_bytes()
    return b"".join(
        [line(f"shallow {tip}".encode()), line(None), line(b"NAK\n"), line(b"\x01" + content), line(None)]
    )


@pytest.mark.parametrize("objects", [("HEAD:flags.json",), ("HEAD",), ("HEAD", "HEAD^{tree}")])
async def test_a_pack_that_lacks_something_is_fetched_by_git(
    looks: Looks, repository: Repository, objects: tuple[str, ...]
) -> None:
    await looks.look()
    repository.commit("second", flags__json="2")
    wrong = pack(repository, *objects)
    looks.server.twist = lambda _: [wrong]
    assert await looks.look() == ("2", [*OURS, *BY_GIT])


async def test_a_server_that_does_not_go_on_is_given_up_at_the_deadline(looks: Looks, tmp_path: Path) -> None:
    given_up = threading.Event()

    def hang(answer: bytes) -> Iterable[bytes]:
        yield answer[:-10]
        given_up.wait(60)

    looks.server.twist = hang
    (tmp_path / "files").mkdir()
    provider = looks.provider(seconds=1.0)
    revision = await provider.resolve()
    with pytest.raises(Failed, match="no answer within 1 seconds"):
        await provider.fetch(revision, tmp_path / "files")
    given_up.set()


async def test_a_redirect_is_not_followed_with_credentials(
    looks: Looks, tmp_path: Path, repository: Repository
) -> None:
    looks.credentials = Credentials("me", SECRET)
    provider = looks.provider()
    revision = await provider.resolve()
    (tmp_path / "files").mkdir()
    with git_server(tmp_path) as elsewhere:
        looks.server.redirect_to = elsewhere.url
        await provider.fetch(revision, tmp_path / "files")
        # Git alone followed, and showed nothing.
        assert "info/refs" in elsewhere.paths[0]
        assert not any(elsewhere.authorizations)


@pytest.mark.parametrize("credentials", [Credentials("me", SECRET), Credentials(bearer=SECRET)])
async def test_it_proves_itself_and_its_child_knows_no_secret(
    looks: Looks, monkeypatch: pytest.MonkeyPatch, credentials: Credentials
) -> None:
    environments: list[Any] = []

    async def run(*arguments: Any) -> Any:
        environments.append(arguments[1])
        return await real(*arguments)

    real = process.run
    monkeypatch.setattr(pack_fetch, "run", run)
    looks.credentials = credentials
    looks.server.login, looks.server.bearer = ("", SECRET) if credentials.bearer else (f"me:{SECRET}", "")
    assert await looks.look() == ("1", OURS)
    assert len(environments) == 1
    assert not [each for each in environments[0].values() if SECRET in each]


async def test_a_lock_that_was_left_behind_is_found_by_git(looks: Looks, repository: Repository) -> None:
    await looks.look()
    repository.commit("second", flags__json="2")
    (looks.mirror / "shallow.lock").touch()
    content, asked = await looks.look()
    assert content == "2"
    assert asked[:2] == OURS
