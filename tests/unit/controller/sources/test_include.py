"""Sources that include others: repositories, mirrors and storage are real."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from controller.artifacts.archive import SKIPPED_FILE, ArchiveLimits
from controller.runtime.setbacks import Failed
from controller.runtime.shards import Shard
from tests.repositories import Repository
from tests.signing import ssh_pair
from tests.worlds.sources import Beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.api.artifact_status import ArtifactStatus


class Two(Beside):
    """`flags` includes `shared`; each has a repository."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.own = Repository(root / "own")
        self.own.commit(flags__json="own")
        self.shared = Repository(root / "theirs")
        self.shared.write("base/banner.json", "shared")
        self.first = self.shared.commit(readme__md="read")

    async def include(self, *entries: dict[str, Any], **spec: Any) -> None:
        included = list(entries) or [{"repository": {"name": "shared"}}]
        await self.apply("flags", self.own.path.as_uri(), include=included, **spec)

    async def share(self, **spec: Any) -> None:
        await self.apply("shared", self.shared.path.as_uri(), **spec)


def of_shared(**paths: str) -> dict[str, Any]:
    return {"repository": {"name": "shared"}, **paths}


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    two = Two(tmp_path)
    yield two
    await two.close()


OWN = {"flags.json": "own"}


async def test_included_files_are_in_a_folder_of_the_sources_name_and_the_status_shows_their_revision(
    two: Two,
) -> None:
    await two.share()
    await two.include()
    assert two.files() == {**OWN, "shared/base/banner.json": "shared", "shared/readme.md": "read"}
    status = two.status()
    assert status["observedInclude"] == [{"repository": {"name": "shared"}}]
    (included,) = status["includedArtifacts"]
    theirs = two.status("shared")["artifact"]
    assert included == {name: each for name, each in theirs.items() if name != "metadata"}
    assert included["revision"] == f"main@sha1:{two.first}"
    assert two.condition()[1] == "Succeeded"


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        ({"fromPath": "base"}, {"shared/banner.json": "shared"}),
        ({"fromPath": "./base/", "toPath": "a/b/"}, {"a/b/banner.json": "shared"}),
        ({"fromPath": "base", "toPath": "."}, {"banner.json": "shared"}),
    ],
)
async def test_one_folder_is_taken_to_another(two: Two, paths: dict[str, str], files: dict[str, str]) -> None:
    await two.share()
    await two.include(of_shared(**paths))
    assert two.files() == OWN | files


async def test_a_commit_in_an_included_source_makes_a_new_artifact_at_once(two: Two) -> None:
    await two.share()
    await two.include(of_shared(fromPath="base"))
    before = two.status()["artifact"]
    two.shared.write("base/banner.json", "changed")
    second = two.shared.commit()
    await two.look("shared")
    after = two.status()["artifact"]
    assert two.files()["shared/banner.json"] == "changed"
    assert two.status()["includedArtifacts"][0]["revision"] == f"main@sha1:{second}"
    assert after["revision"] == before["revision"]
    assert after["digest"] != before["digest"]
    seen = "flagstaff.dev/observed-at"
    assert after["metadata"][seen] > before["metadata"][seen]


async def test_a_change_outside_the_included_files_fetches_nothing_and_is_shown(two: Two) -> None:
    await two.share()
    await two.include()
    before = two.status()["artifact"]
    second = two.shared.commit("no file")
    await two.look("shared")
    assert two.status()["includedArtifacts"][0]["revision"] == f"main@sha1:{second}"
    assert two.status()["artifact"] == before
    looks = len(two.looks)
    await two.look("shared")
    assert two.looks[looks:] == ["shared"]


async def test_a_source_that_is_included_by_an_included_one_changes_all_of_them(two: Two) -> None:
    await two.share()
    await two.apply("middle", two.own.path.as_uri(), include=[of_shared(fromPath="base")])
    await two.include({"repository": {"name": "middle"}})
    assert two.files()["middle/shared/banner.json"] == "shared"
    two.shared.write("base/banner.json", "changed")
    two.shared.commit()
    await two.look("shared")
    assert two.files()["middle/shared/banner.json"] == "changed"


async def test_a_source_that_is_not_there_is_waited_for(two: Two) -> None:
    await two.include()
    status, reason, message = two.condition()
    assert (status, reason) == ("False", "IncludeUnavailable")
    assert message == "FlagSource shared does not exist; create it, or correct spec.include"
    assert "artifact" not in two.status()
    await two.share()
    assert two.files()["shared/readme.md"] == "read"


async def test_a_source_without_an_artifact_is_waited_for_and_its_failure_is_shown(two: Two) -> None:
    await two.share(git={"ref": {"branch": "nowhere"}})
    await two.include()
    assert two.condition()[1] == "IncludeUnavailable"
    assert "FlagSource shared has no artifact yet: " in two.condition()[2]
    assert "nowhere" in two.condition()[2]
    await two.share()
    assert two.condition()[1] == "Succeeded"


async def test_the_last_good_artifact_stays_when_an_included_source_goes(two: Two) -> None:
    await two.share()
    await two.include()
    before = two.status()["artifact"]
    await two.delete("shared")
    two.own.commit(flags__json="newer")
    await two.look("flags")
    assert two.condition()[:2] == ("False", "IncludeUnavailable")
    assert two.status()["artifact"] == before
    assert two.files()["flags.json"] == "own"


async def test_a_source_that_fails_now_is_included_as_it_was_and_a_condition_says_so(two: Two) -> None:
    await two.share()
    await two.include()
    await two.share(git={"ref": {"branch": "nowhere"}})
    two.own.commit(flags__json="newer")
    await two.look("flags")
    assert two.files() == {
        "flags.json": "newer",
        "shared/base/banner.json": "shared",
        "shared/readme.md": "read",
    }
    status, reason, message = two.condition("IncludesReady")
    assert (status, reason) == ("False", "SourceFailed")
    assert message.startswith("FlagSource shared is not ready; its last artifact is included: ")
    assert two.condition()[1] == "Succeeded"
    await two.share()
    assert two.condition("IncludesReady") == ("", "", "")


async def test_sources_that_include_each_other_are_refused_by_name_until_one_does_not(two: Two) -> None:
    await two.apply("shared", two.shared.path.as_uri(), include=[{"repository": {"name": "third"}}])
    await two.apply("third", two.shared.path.as_uri(), include=[{"repository": {"name": "flags"}}])
    await two.include()
    for name in ("flags", "shared", "third"):
        assert two.condition(name=name)[1] == "IncludeCycle"
    message = "these FlagSources include each other: flags → shared → third → flags"
    assert two.condition()[2] == message
    await two.apply("third", two.shared.path.as_uri())
    assert two.files()["shared/third/readme.md"] == "read"


async def test_a_source_cannot_include_itself(two: Two) -> None:
    await two.include({"repository": {"name": "flags"}})
    assert two.condition()[1:] == ("IncludeCycle", "these FlagSources include each other: flags → flags")


@pytest.mark.parametrize("into", [".", "flags.json"])
async def test_a_file_that_is_there_already_is_refused(two: Two, into: str) -> None:
    two.shared.commit(flags__json="theirs")
    await two.share()
    await two.include(of_shared(toPath=into))
    assert two.condition()[1] == "IncludeConflict"
    assert "flags.json" in two.condition()[2]
    assert "FlagSource shared" in two.condition()[2]


async def test_a_folder_that_is_not_there_is_refused_by_name_until_it_comes(two: Two) -> None:
    await two.share()
    await two.include(of_shared(fromPath="bas"))
    assert two.condition()[1] == "IncludeUnavailable"
    assert "FlagSource shared has no folder bas with files" in two.condition()[2]
    two.shared.write("bas/banner.json", "there")
    two.shared.commit()
    await two.look("shared")
    assert two.files() == OWN | {"shared/banner.json": "there"}


async def test_ignore_leaves_out_included_files_too(two: Two) -> None:
    await two.share()
    await two.include(ignore="*.md")
    assert two.files() == {**OWN, "shared/base/banner.json": "shared"}


async def test_a_file_that_an_included_source_left_out_is_named_with_its_included_path(two: Two) -> None:
    (two.shared.path / "base/link.json").symlink_to("banner.json")
    (two.shared.path / "elsewhere.json").symlink_to("base/banner.json")
    two.shared.commit()
    await two.share()
    await two.include(of_shared(fromPath="base", toPath="x"))
    assert json.loads(two.files()[SKIPPED_FILE]) == ["x/link.json: symlink, not followed"]


async def test_included_files_are_bounded_in_all(two: Two) -> None:
    await two.share()
    await two.include()
    two.reconciler = replace(two.reconciler, included=ArchiveLimits(files=3))
    await two.include(of_shared(toPath="a"), of_shared(toPath="b"))
    assert two.condition()[1] == "ArchiveRefused"
    assert "with FlagSource shared the included files are over 3 files" in two.condition()[2]


async def test_an_artifact_that_is_lost_is_waited_for_and_taken_when_it_is_back(two: Two) -> None:
    await two.share()
    (two.root / "artifacts" / two.status("shared")["artifact"]["path"]).unlink()
    await two.include()
    assert two.condition()[1] == "IncludeUnavailable"
    assert "is not in storage" in two.condition()[2]
    await two.look("shared")
    await two.look("flags")
    assert two.condition()[1] == "Succeeded"


async def test_the_artifact_of_another_shard_is_read_from_there_and_waited_for(two: Two) -> None:
    await two.share()
    stored = two.root / "artifacts" / two.status("shared")["artifact"]["path"]
    archive: bytes = stored.read_bytes()
    asked, down = list[str](), True
    stored.unlink()

    async def read(namespace: str, artifact: ArtifactStatus) -> bytes:
        asked.append(f"{namespace}: {artifact.url}")
        if down:
            raise Failed("ArtifactFailed", "no answer")
        return archive

    two.reconciler = replace(two.reconciler, read=read, shard=Shard.of(None, ["elsewhere"]))
    await two.include()
    assert two.condition() == ("False", "IncludeUnavailable", "FlagSource shared: no answer")
    down = False
    await two.look("flags")
    assert two.files() == {**OWN, "shared/base/banner.json": "shared", "shared/readme.md": "read"}
    theirs = two.status("shared")["artifact"]["url"]
    assert {line.partition(": ")[2] for line in asked} == {theirs}


async def test_a_verified_source_includes_only_verified_ones(two: Two, tmp_path: Path) -> None:
    ada = ssh_pair(tmp_path)
    for each in (two.own, two.shared):
        ada.use(each)
        each.git("commit", "-q", "--amend", "-S", "-m", "signed")
    two.secrets["signers"] = {"ada.sshpub": ada.public.encode()}
    verify = {"mode": "HEAD", "secretRef": {"name": "signers"}}
    await two.share()
    await two.include(verify=verify)
    assert two.condition()[1] == "IncludeUnverified"
    assert "FlagSource shared is not verified" in two.condition()[2]
    await two.share(verify=verify)
    assert two.condition()[1] == "Succeeded"
    assert two.files()["shared/readme.md"] == "read"
    rule = {"paths": ["production/**"], "anyOf": [{"signers": ["ada@example.com"]}]}
    ruled = verify | {"mode": "EveryCommit", "rules": [rule]}
    await two.include(of_shared(toPath="production"), verify=ruled)
    assert two.condition()[1] == "IncludeUnverified"
    assert "FlagSource shared brings production/" in two.condition()[2]
    await two.include(verify=ruled)
    assert two.condition()[1] == "Succeeded"


@pytest.mark.parametrize("path", ["/etc", "..", "a/../../b"])
def test_a_path_that_leaves_the_source_is_refused(path: str) -> None:
    spec = {"interval": "1m", "git": {"url": "https://h/r"}, "include": [of_shared(toPath=path)]}
    with pytest.raises(InvalidSpecError, match=r"spec\.include\.0\.toPath: must be a folder within"):
        read(FlagSourceSpec, spec)


def test_a_source_includes_eight_at_most() -> None:
    spec = {"interval": "1m", "git": {"url": "https://h/r"}, "include": [of_shared()] * 9}
    with pytest.raises(InvalidSpecError, match=r"spec\.include"):
        read(FlagSourceSpec, spec)
