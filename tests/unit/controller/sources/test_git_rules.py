"""Who may sign what, by path, over repositories whose commits are signed by several people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.repositories import Repository
from tests.signing import SshPair, ssh_pair
from tests.worlds.sources import Verified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Team:
    """Ada may change production alone; of Bob and Carol it takes both; Eve is trusted with the rest."""

    def __init__(self, root: Path) -> None:
        self.repository = Repository(root / "repository")
        self.pairs = {name: ssh_pair(root, name=f"{name}@x") for name in ("ada", "bob", "carol", "eve")}
        self.source = Verified(root, f"file://{self.repository.path}")
        self.source.trusted = {f"{name}.sshpub": each.public.encode() for name, each in self.pairs.items()}
        rule = {
            "paths": ["production/**"],
            "anyOf": [{"signers": ["ada@x"]}, {"signers": ["bob@x", self.carol.fingerprint], "count": 2}],
            "mergesCount": True,
        }
        self.source.spec["verify"] = {
            "mode": "EveryCommit", "secretRef": {"name": "trusted"}, "rules": [rule]
        }  # fmt: skip

    @property
    def carol(self) -> SshPair:
        return self.pairs["carol"]

    def git(self, name: str, *arguments: str) -> str:
        """As somebody who signs."""
        self.pairs[name].use(self.repository)
        return self.repository.git("-c", "commit.gpgSign=true", *arguments)

    def commit(self, name: str, **files: str) -> str:
        for path, text in files.items():
            self.repository.write(path.replace("__", "/").replace("_json", ".json"), text)
        self.repository.git("add", "-A")
        self.git(name, "commit", "-q", "--allow-empty", "-m", f"by {name}")
        return self.repository.git("rev-parse", "HEAD")

    async def refusal(self) -> str:
        assert await self.source.look() == "SignerNotAllowed"
        return self.source.condition("SourceVerified")[2]


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    team = Team(tmp_path)
    team.commit("eve", flags_json="0", production__a_json="0")
    assert await team.source.look() == "Succeeded"
    yield team
    await team.source.close()


async def test_one_of_a_group_is_enough_and_others_may_change_the_rest(team: Team) -> None:
    team.commit("ada", production__a_json="1")
    team.commit("eve", flags_json="1")
    assert (await team.source.look(), team.source.stored) == ("Succeeded", "1")


async def test_a_change_of_another_author_is_refused_whatever_is_signed_on_top_of_it(team: Team) -> None:
    bad = team.commit("eve", production__a_json="1", flags_json="1")
    message = await team.refusal()
    assert f"commit {bad}: production/a.json was changed by eve@x (SSH " in message
    assert f"it needs 1 of ada@x or 2 of bob@x, {team.carol.fingerprint}; have them sign" in message
    team.commit("ada", flags_json="2")
    assert "eve@x" in await team.refusal()
    team.repository.git("rm", "-q", "production/a.json")
    team.commit("eve")
    await team.refusal()
    team.commit("ada", production__a_json="3")
    assert (await team.source.look(), team.source.stored) == ("Succeeded", "2")


async def test_a_committer_and_a_merger_are_two_of_a_group(team: Team) -> None:
    team.repository.git("checkout", "-q", "-b", "side")
    team.commit("bob", production__a_json="1", flags_json="1")
    team.repository.git("checkout", "-q", "main")
    team.repository.git("merge", "-q", "--ff-only", "side")
    assert "bob@x" in await team.refusal()
    team.repository.git("reset", "-q", "--hard", "HEAD~1")
    team.git("eve", "merge", "-q", "--no-ff", "-m", "merge", "side")
    await team.refusal()
    team.repository.git("reset", "-q", "--hard", "HEAD~1")
    team.git("carol", "merge", "-q", "--no-ff", "-m", "merge", "side")
    assert (await team.source.look(), team.source.stored) == ("Succeeded", "1")


async def test_a_merge_that_brings_back_what_was_before_is_refused(team: Team) -> None:
    old = team.repository.git("rev-parse", "HEAD")
    team.commit("ada", production__a_json="1", flags_json="1")
    assert await team.source.look() == "Succeeded"
    # The old tree is the first parent's, so the merge itself changes nothing there.
    new = team.repository.git("rev-parse", "HEAD")
    team.repository.git("reset", "-q", "--hard", old)
    team.git("eve", "merge", "-q", "-s", "ours", "--no-ff", "-m", "back", new)
    assert "no signed commit that introduces it" in await team.refusal()


async def test_a_merge_vouches_for_no_change_of_others_unless_merges_count(team: Team) -> None:
    (rule,) = team.source.spec["verify"]["rules"]
    team.repository.git("branch", "ada")
    team.commit("eve", production__a_json="evil")
    team.repository.git("checkout", "-q", "ada")
    team.commit("ada", flags_json="1")
    team.git("ada", "merge", "-q", "-m", "pull", "main")
    team.repository.git("checkout", "-q", "-B", "main")
    rule["mergesCount"] = False
    assert "changed by eve@x" in await team.refusal()
    # A merge that makes it something else is a change by who merges.
    team.repository.write("production/a.json", "good")
    team.repository.git("add", "-A")
    team.git("ada", "commit", "-q", "--amend", "--no-edit")
    assert await team.source.look() == "Succeeded"


async def test_a_name_is_no_fingerprint_and_two_keys_of_a_name_are_one_person(
    team: Team, tmp_path: Path
) -> None:
    (rule,) = team.source.spec["verify"]["rules"]
    wanted = team.pairs["ada"].fingerprint
    rule["anyOf"] = [{"signers": [wanted]}]
    fake = team.pairs["eve"].public.split()[:2]
    team.source.trusted = {**team.source.trusted, "eve.sshpub": " ".join((*fake, wanted)).encode()}
    team.commit("eve", production__a_json="1")
    await team.refusal()
    (tmp_path / "second").mkdir()
    team.pairs["ada2"] = second = ssh_pair(tmp_path / "second", name="ada@x")
    team.source.trusted = {**team.source.trusted, "ada2.sshpub": second.public.encode()}
    for named in (["ada@x", wanted], [wanted, second.fingerprint]):
        rule["anyOf"] = [{"signers": named, "count": 2}]
        team.commit("ada", production__a_json="2")
        team.commit("ada2", production__a_json=f"{named}")
        await team.refusal()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "HEAD"}, "rules need mode EveryCommit"),
        ({"rules": [{"paths": ["x"], "anyOf": []}]}, "anyOf"),
        ({"rules": [{"paths": ["[z-a]"], "anyOf": [{"signers": ["x"]}]}]}, "[z-a]"),
    ],
)
async def test_rules_that_cannot_be_meant_are_refused(
    team: Team, change: dict[str, Any], message: str
) -> None:
    team.source.spec["verify"] |= change
    assert await team.source.look() == "InvalidSpec"
    assert message in team.source.condition("Ready")[2]


@pytest.mark.parametrize("patterns", ["production/", "*", "/production/a.json", "**/*.json\n!flags.json"])
async def test_nobody_removes_a_protected_file_by_the_sources_own_patterns(team: Team, patterns: str) -> None:
    team.repository.write(".sourceignore", patterns)
    team.commit("eve", flags_json="1")
    assert await team.source.look() == "Succeeded"
    assert team.source.files["production/a.json"] == b"0"
    team.commit("ada", production__b_json="1")
    assert await team.source.look() == "Succeeded"
    assert team.source.files["production/b.json"] == b"1"
