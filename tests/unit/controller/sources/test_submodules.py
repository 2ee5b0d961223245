"""`spec.git.recurseSubmodules`, against a real Git server."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from controller.artifacts.archive import SKIPPED_FILE
from controller.runtime.hosts import Hosts
from controller.runtime.limits import NamespaceLimits
from controller.sources.backend import TreeLimits
from controller.sources.submodules import SubmoduleLimits
from tests.git_http import GitServer, git_server
from tests.repositories import Repository
from tests.worlds.sources import Beside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECURSE = {"recurseSubmodules": True}


class Team:
    """Repositories on one server, of which `flags` has the others as submodules."""

    def __init__(self, root: Path) -> None:
        self.root = root / "served"
        self.flags = self.repository("flags", flags__json="own")
        self.shared = self.repository("shared", shared__json="shared")

    def repository(self, name: str, **files: str) -> Repository:
        made = Repository(self.root / name)
        made.commit("first", **files)
        return made

    def link(self, holder: Repository, path: str, url: str, to: Repository, name: str = "") -> None:
        """Have `holder` record the newest commit of `to` at `path`."""
        commit = to.git("rev-parse", "HEAD")
        for key, value in (("path", path), ("url", url)):
            holder.git("config", "--file", ".gitmodules", f"submodule.{name or path}.{key}", value)
        holder.git("add", ".gitmodules")
        holder.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        holder.git("commit", "-q", "-m", f"record {path}")


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


@pytest.fixture
def server(team: Team) -> Iterator[GitServer]:
    with git_server(team.root) as running:
        yield running


async def apply(beside: Beside, server: GitServer, **git: object) -> None:
    await beside.apply("flags", f"{server.url}/flags/.git", git={**RECURSE, **git})


RELATIVE = "../../shared/.git"


async def test_files_of_a_submodule_are_taken_at_the_commit_that_is_recorded(
    beside: Beside, team: Team, server: GitServer
) -> None:
    team.link(team.flags, "libs/shared", RELATIVE, team.shared)
    team.shared.commit("newer", shared__json="newer")
    await apply(beside, server)
    assert beside.files() == {"flags.json": "own", "libs/shared/shared.json": "shared"}
    assert beside.status()["observedRecurseSubmodules"] is True
    team.link(team.flags, "libs/shared", RELATIVE, team.shared)
    await beside.look("flags")
    assert beside.files()["libs/shared/shared.json"] == "newer"


async def test_without_recursing_a_submodule_is_noted_as_left_out(
    beside: Beside, team: Team, server: GitServer
) -> None:
    team.link(team.flags, "libs/shared", RELATIVE, team.shared)
    await apply(beside, server, recurseSubmodules=False)
    assert json.loads(beside.files()[SKIPPED_FILE]) == ["libs/shared: submodule, not read"]
    await apply(beside, server)
    assert SKIPPED_FILE not in beside.files()
    assert beside.files()["libs/shared/shared.json"] == "shared"


async def test_nested_submodules_are_fetched_and_files_they_leave_out_are_named(
    beside: Beside, team: Team, server: GitServer
) -> None:
    deep = team.repository("deep", deep__json="deep")
    (deep.path / "link.json").symlink_to("deep.json")
    deep.commit("a link")
    team.link(team.shared, "in ner", "../../deep/.git", deep, name="a.b")
    team.link(team.flags, "outer", f"{server.url}/shared/.git", team.shared)
    await apply(beside, server)
    assert beside.files()["outer/in ner/deep.json"] == "deep"
    assert json.loads(beside.files()[SKIPPED_FILE]) == ["outer/in ner/link.json: symlink, not followed"]


async def test_repositories_that_hold_each_other_are_read_without_waiting_for_themselves(
    beside: Beside, team: Team, server: GitServer
) -> None:
    team.link(team.shared, "back", "../../flags/.git", team.flags)
    team.link(team.flags, "shared", RELATIVE, team.shared)
    await apply(beside, server)
    assert beside.files()["shared/back/flags.json"] == "own"


async def test_the_same_credentials_are_shown_for_submodules(beside: Beside, team: Team) -> None:
    team.link(team.flags, "shared", RELATIVE, team.shared)
    beside.secrets["git"] = {"username": b"ada", "password": b"correct-horse"}
    with git_server(team.root, login="ada:correct-horse") as server:
        await apply(beside, server, secretRef={"name": "git"})
        assert beside.files()["shared/shared.json"] == "shared"
        assert any(path.startswith("/shared/") for path in server.paths)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://127.0.0.1/shared.git",
         "submodule shared is on https://127.0.0.1: only those of http://127"),
        ("http://localhost:1/shared.git",
         "submodule shared is on http://localhost: only those of http://127"),
        ("git@github.com:team/shared.git", "submodule shared is on ssh://github.com: only those of"),
        ("/etc", "submodule shared is on this machine: only those of"),
        ("file:///etc", "submodule shared is on this machine: only those of"),
        ("ext::sh -c id", "submodule shared: not a valid repository location"),
        ("--upload-pack=id", "submodule shared: not a valid repository location"),
        ("", "submodule shared: .gitmodules has no URL for it"),
    ],
)  # fmt: skip
async def test_a_submodule_elsewhere_is_refused_by_path_and_host(
    beside: Beside, team: Team, server: GitServer, url: str, words: str
) -> None:
    await apply(beside, server)
    team.link(team.flags, "shared", url, team.shared)
    await beside.look("flags")
    assert beside.condition()[1] == "SubmoduleRefused"
    assert words in beside.condition()[2]
    assert beside.files() == {"flags.json": "own"}
    assert not [path for path in server.paths if not path.startswith("/flags/")]


async def test_the_address_of_the_host_is_judged_for_submodules_again(
    team: Team, server: GitServer, tmp_path: Path
) -> None:
    team.link(team.flags, "shared", RELATIVE, team.shared)
    mirrors = tmp_path / "mirrors"

    async def rebound(host: str, port: int) -> tuple[str, ...]:
        return ("10.1.1.1" if list(mirrors.glob("*/*.git/shallow")) else "127.0.0.1",)

    beside = Beside(tmp_path, Hosts((), ("10.0.0.0/8",), rebound))
    await beside.apply("flags", f"http://git.test:{server.server_port}/flags/.git", git=RECURSE)
    await beside.close()
    _, reason, message = beside.condition()
    assert reason == "HostDenied"
    assert "submodule shared: host git.test has the address 10.1.1.1" in message
    assert not [path for path in server.paths if path.startswith("/shared/")]


@pytest.mark.parametrize("text", ["[submodule", '[submodule "x"]\n\tpath\n\turl = y\n', ""])
async def test_a_file_that_git_cannot_read_is_refused(
    beside: Beside, team: Team, server: GitServer, text: str
) -> None:
    team.link(team.flags, "shared", RELATIVE, team.shared)
    team.flags.write(".gitmodules", text)
    team.flags.git("add", ".gitmodules")
    team.flags.git("commit", "-qm", "damage")
    await apply(beside, server)
    assert beside.condition()[1] == "SubmoduleRefused"
    assert ".gitmodules" in beside.condition()[2]


async def test_what_a_file_would_include_is_not_read(
    beside: Beside, team: Team, server: GitServer, tmp_path: Path
) -> None:
    secret = tmp_path / "elsewhere"
    secret.write_text(f'[submodule "shared"]\n\tpath = shared\n\turl = {RELATIVE}\n')
    team.link(team.flags, "shared", RELATIVE, team.shared)
    team.flags.write(".gitmodules", f"[include]\n\tpath = {secret}\n")
    team.flags.git("add", ".gitmodules")
    team.flags.git("commit", "-qm", "look elsewhere")
    await apply(beside, server)
    assert "submodule shared: .gitmodules has no URL for it" in beside.condition()[2]


async def test_a_missing_commit_is_reported_with_the_submodules_path(
    beside: Beside, team: Team, server: GitServer
) -> None:
    team.link(team.flags, "shared", RELATIVE, team.flags)
    await apply(beside, server)
    assert beside.condition()[0] == "False"
    assert beside.condition()[2].startswith("submodule shared: ")


async def test_the_number_of_submodules_is_bounded(beside: Beside, team: Team, server: GitServer) -> None:
    beside.git.submodule_limits = SubmoduleLimits(most=2)
    for name in ("a", "b"):
        team.link(team.flags, name, RELATIVE, team.shared)
    await apply(beside, server)
    assert beside.condition()[1] == "Succeeded"
    team.link(team.flags, "c", RELATIVE, team.shared)
    await beside.look("flags")
    assert beside.condition()[1] == "LimitExceeded"
    assert "more than 2 submodules" in beside.condition()[2]


async def test_the_depth_of_submodules_is_bounded(beside: Beside, team: Team, server: GitServer) -> None:
    beside.git.submodule_limits = SubmoduleLimits(deepest=1)
    team.link(team.shared, "deep", "../../flags/.git", team.flags)
    team.link(team.flags, "shared", RELATIVE, team.shared)
    await apply(beside, server)
    assert beside.condition()[1] == "LimitExceeded"
    assert "more than 1 submodules within each other" in beside.condition()[2]


async def test_a_folder_of_the_checkout_may_be_a_submodule(
    beside: Beside, team: Team, server: GitServer
) -> None:
    team.link(team.flags, "shared", RELATIVE, team.shared)
    await apply(beside, server, sparseCheckout=["shared"])
    assert beside.files() == {"shared/shared.json": "shared"}


def fetched_repositories(server: GitServer) -> list[str]:
    """The repositories that were fetched from; forgets them."""
    asked = [path.split("/")[1] for path in server.fetches]
    server.fetches.clear()
    return asked


async def test_mirrors_of_submodules_are_within_the_quota(
    team: Team, server: GitServer, tmp_path: Path
) -> None:
    team.shared.commit("huge", huge__bin=os.urandom(2_000_000).hex())
    team.link(team.flags, "shared", RELATIVE, team.shared)
    beside = Beside(tmp_path, limits=NamespaceLimits(mirror_bytes=1_000_000))
    await apply(beside, server)
    _, reason, message = beside.condition()
    assert reason == "QuotaExceeded"
    assert message.startswith("submodule shared: bytes of mirrors of Git repositories of namespace apps: ")
    assert len(mirrors(tmp_path)) == 1
    assert "shared" in fetched_repositories(server)
    await beside.look("flags")
    assert beside.condition()[1] == "QuotaExceeded"
    await beside.close()
    assert not fetched_repositories(server)


async def test_a_submodule_that_exceeds_a_limit_is_not_fetched_again_at_every_look(
    beside: Beside, team: Team, server: GitServer
) -> None:
    deep = team.shared.path / "/".join("d" * (TreeLimits().depth + 1))
    deep.mkdir(parents=True)
    (deep / "a.json").write_text("1")
    team.shared.commit("deep")
    team.link(team.flags, "shared", RELATIVE, team.shared)
    await apply(beside, server)
    assert beside.condition()[1] == "LimitExceeded"
    assert "shared" in fetched_repositories(server)
    before = beside.condition()
    await beside.look("flags")
    assert beside.condition() == before
    assert not fetched_repositories(server)


def mirrors(root: Path) -> set[Path]:
    return {*(root / "mirrors/apps").glob("*.git")}


async def until_mirrors(root: Path, count: int) -> None:
    """Until there are as many; removal is a thread's work."""
    async with asyncio.timeout(20):
        while len(mirrors(root)) != count:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)


async def test_mirrors_of_submodules_go_with_their_use(
    beside: Beside, team: Team, server: GitServer, tmp_path: Path
) -> None:
    other = team.repository("other", other__json="other")
    team.link(team.flags, "shared", RELATIVE, team.shared)
    team.link(team.flags, "other", "../../other/.git", other)
    await apply(beside, server)
    await beside.look("flags")
    assert len(mirrors(tmp_path)) == 3
    team.flags.git("rm", "-q", "--cached", "other")
    team.flags.git("commit", "-qm", "without the other")
    await beside.look("flags")
    await until_mirrors(tmp_path, 2)
    await beside.apply("second", f"{server.url}/shared/.git")
    await beside.delete("flags")
    await until_mirrors(tmp_path, 1)
    await beside.delete("second")
    await until_mirrors(tmp_path, 0)


async def test_mirrors_of_submodules_that_are_in_use_are_not_swept(
    beside: Beside, team: Team, server: GitServer, tmp_path: Path
) -> None:
    team.link(team.flags, "shared", RELATIVE, team.shared)
    await apply(beside, server)
    # It fails at the second of them, and still uses the first.
    team.link(team.flags, "wrong", RELATIVE, team.flags)
    await beside.look("flags")
    assert beside.condition()[0] == "False"
    made = datetime.fromtimestamp(max(each.stat().st_mtime for each in mirrors(tmp_path)), UTC)
    await beside.git.sweep(made + timedelta(days=20))
    assert len(mirrors(tmp_path)) == 2


def test_rules_that_would_not_see_their_files_exclude_submodules() -> None:
    rules = [{"paths": ["production/**"], "anyOf": [{"signers": ["ada@example.com"]}]}]
    verify = {"mode": "EveryCommit", "secretRef": {"name": "signers"}, "rules": rules}
    spec = {"interval": "1m", "git": {"url": "https://h/r", **RECURSE}, "verify": verify}
    with pytest.raises(InvalidSpecError, match="rules do not see the files of submodules"):
        read(FlagSourceSpec, spec)


async def test_a_folder_of_this_machine_has_none(beside: Beside, team: Team) -> None:
    await beside.apply("flags", team.flags.path.as_uri(), git=RECURSE)
    assert beside.condition()[1] == "InvalidSpec"
    assert "needs a remote repository" in beside.condition()[2]
