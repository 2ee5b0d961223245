"""A plan of a pull request: fetched from a real repository, without Secrets of the FlagSet, and bounded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.artifact_status import ArtifactStatus
from controller.api.fields import read
from controller.api.flagset import FlagSetSpec
from controller.api.meta import Resource
from controller.app.pull_request_plans import PullRequestPlanner
from controller.events.pull_requests import PullRequest
from controller.flagsets.build import build
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers, HelperTasks
from controller.runtime.limits import Places
from controller.runtime.setbacks import Setback, Stalled
from controller.sources.git_factory import GitFactory
from tests.git_http import git_server
from tests.repositories import Repository
from tests.worlds.flags import flag, flags
from tests.worlds.flagsets import pack
from tests.worlds.objects import cache_of, thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from controller.runtime.cache import Cache
    from tests.git_http import GitServer

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
TYPE: Final = "githubpullrequestcomment"
TESTS: Final = "tests: [{name: the banner is on, flag: banner, expect: {variant: 'on'}}]"

OPEN: Final[list[GitFactory]] = []
"""Those of the running test, whose connections end with it."""


@pytest.fixture(autouse=True)
async def close_factories() -> AsyncIterator[None]:
    yield
    while OPEN:
        await OPEN.pop().close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """On its main branch the banner is on; pull request 7 turns it off."""
    made = Repository(tmp_path / "flags")
    made.commit("first", flags__json=flags(banner="on"), flags__flagtest__yaml=TESTS)
    made.git("checkout", "-q", "-b", "change")
    propose(made, flags__json=flags(banner="off", new="on"))
    return made


def propose(repository: Repository, **files: str) -> str:
    commit = repository.commit("change", **files)
    repository.git("update-ref", "refs/pull/7/head", commit)
    return commit


@pytest.fixture
def server(tmp_path: Path, repository: Repository) -> Iterator[GitServer]:
    del repository
    with git_server(tmp_path) as served:
        yield served


async def no_secret(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
    raise AssertionError(f"{namespace}/{name} is read by {account}")


class Production:
    """FlagSet `production`, which delivers what the main branch had, and its FlagSource."""

    def __init__(self, server: GitServer, folder: Path, helpers: Helpers, **spec: Any) -> None:
        self.address = f"{server.url}/flags/.git"
        source = thing("FlagSource", "source", {"interval": "1h", "git": {"url": self.address}})
        wanted = {"sourceRef": {"kind": "FlagSource", "name": "source"}, **spec}
        flag_set = thing("FlagSet", "production", wanted, {"digest": "sha256:1"})
        self.objects: Cache = cache_of(source, flag_set, *delivered(flag_set), stages=(FLAG_SETS,))
        self.git = GitFactory(no_secret, folder / "mirrors")
        OPEN.append(self.git)
        limits = TaskLimits(cpu_seconds=60.0)
        tasks = HelperTasks(helpers, Places(2, resource="foreign content"), limits)
        self.planner = PullRequestPlanner(self.objects, self.git, tasks, lambda: NOW, "flagstaff")

    async def plan(self, *, is_fork: bool = False, reference: str = "refs/pull/7/head") -> str:
        pull = PullRequest(7, "a" * 40, reference, is_fork, frozenset())
        return await self.planner.plan("shop", "production", pull, self.address, TYPE)


def delivered(flag_set: Resource) -> list[Resource]:
    spec = read(FlagSetSpec, {"sourceRef": {"kind": "FlagSource", "name": "source"}})
    artifact = ArtifactStatus(url="http://a", revision="main@sha1:1", digest="sha256:1")
    archive = pack({"flags.json": flags(banner="on")})
    return [
        Resource.of({**manifest, "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}})
        for manifest in build(archive, spec, artifact, flag_set, None).manifests
    ]


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    made = Helpers(("controller.flagsets.foreign_plans",))
    yield made
    await made.close()


async def test_a_plan_says_who_gets_another_value_and_which_test_fails(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    text = await Production(server, tmp_path, helpers).plan()
    assert text.startswith(
        "**Flags**: 2 flags differ; 1 of them gives up to 100 % of users another value; 1 test fails "
        "(`FlagSet production` → `refs/pull/7/head@sha1:"
    )
    assert "! banner: default on (true) → off (false)\n" in text
    assert "    100 % of users get another value (exact, by arithmetic): on → off\n" in text
    assert '    the test "the banner is on" fails: expected variant "on"; came variant "off"' in text
    assert "+ new: added, default on (true)\n    no test covers it\n" in text


async def test_a_plan_names_the_rollout_and_the_override_of_a_flag(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    production = Production(server, tmp_path, helpers)
    before = production.planner.version("shop", "production")
    about = {"flagSetRef": {"name": "production"}}
    ends = {"reason": "down", "expiresAt": "2999-01-01T00:00:00Z"}
    for made in (
        thing("FlagRollout", "slow", {**about, "flags": ["ban*"], "steps": [{"share": 10}]}),
        thing("FlagOverride", "incident", {**about, **ends, "flag": "banner", "variant": "on"}),
        thing("FlagOverride", "elsewhere", {"flagSetRef": {"name": "other"}, **ends, "flag": "new"}),
    ):
        production.objects.learn(made)
    text = await production.plan()
    assert "    FlagRollout slow serves this in steps\n" in text
    assert "    FlagOverride incident decides now what users get, until it ends\n" in text
    assert "elsewhere" not in text
    assert production.planner.version("shop", "production") != before


async def test_a_plan_has_the_calendar_of_its_schedules(
    repository: Repository, server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    document = json.loads(flags(banner="off"))
    period = {"between": ["2499-12-24T18:00", "2499-12-27T06:00", "Europe/Berlin"]}
    document["flags"]["banner"]["targeting"] = {"if": [period, "on"]}
    propose(repository, flags__json=json.dumps(document))
    text = await Production(server, tmp_path, helpers).plan()
    line = "from 2499-12-24 18:00 to 2499-12-27 06:00 Europe/Berlin: banner: on"
    assert f"Calendar:\n\n```text\n{line}\n```" in text


async def test_a_pull_request_that_changes_nothing_has_no_plan(
    server: GitServer, tmp_path: Path, helpers: Helpers, repository: Repository
) -> None:
    propose(repository, flags__json=flags(banner="on"), readme__md="words")
    assert await Production(server, tmp_path, helpers).plan() == ""


async def test_mirrors_of_pull_requests_are_not_kept(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    world = Production(server, tmp_path, helpers)
    await world.plan()
    await world.git.close()
    assert not [*(tmp_path / "mirrors").rglob("HEAD")]


def with_variable(**more: Any) -> dict[str, Any]:
    return {"flags": {"banner": flag("on", {"on": "${WORD}"}, **more)}}


@pytest.mark.parametrize(("is_fork", "shown"), [(False, 'true → "hello"'), (True, "no flag differs")])
async def test_a_fork_has_no_variables_and_nobody_has_those_of_secrets(
    is_fork: bool, shown: str, server: GitServer, tmp_path: Path, helpers: Helpers, repository: Repository
) -> None:
    propose(repository, flags__json=json.dumps(with_variable()))
    # Reading either Secret fails the test.
    more = {"substituteFrom": [{"kind": "Secret", "name": "words"}]}
    keys = {"decryption": {"provider": "sops", "secretRef": {"name": "keys"}}}
    production = Production(server, tmp_path, helpers, substitute={"WORD": "hello"}, **more, **keys)
    text = await production.plan(is_fork=is_fork)
    assert shown in text
    assert ("WORD" in text) == is_fork
    propose(repository, flags__json=json.dumps(with_variable()).replace("WORD", "SECRET_WORD"))
    assert "no flag differs" in await production.plan()


async def test_a_bad_definition_is_told_and_the_comment_is_no_markup(
    server: GitServer, tmp_path: Path, helpers: Helpers, repository: Repository
) -> None:
    propose(repository, flags__json=flags(banner="```\n@team"))
    text = await Production(server, tmp_path, helpers).plan()
    assert text.startswith("**Flags**: no flag differs (")
    assert "flags.json:1:" in text
    assert text.count("```") == 2


async def test_definitions_that_take_too_much_are_refused(
    server: GitServer, tmp_path: Path, helpers: Helpers, repository: Repository
) -> None:
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    propose(repository, flags__json=flags(banner="on"), bomb__yaml=bomb)
    text = await Production(server, tmp_path, helpers).plan()
    assert "bomb.yaml" in text


async def test_a_reference_that_is_gone_is_said(server: GitServer, tmp_path: Path, helpers: Helpers) -> None:
    with pytest.raises(Setback) as raised:
        await Production(server, tmp_path, helpers).plan(reference="refs/pull/8/head")
    assert "refs/pull/8/head" in raised.value.message


async def test_a_source_of_another_repository_is_refused(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    world = Production(server, tmp_path, helpers)
    world.address = f"{server.url}/others"
    with pytest.raises(Stalled, match="reads another repository than the provider's"):
        await world.plan()


async def test_a_set_of_another_kind_of_source_is_refused(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    world = Production(server, tmp_path, helpers, sourceRef={"kind": "Bucket", "name": "source"})
    with pytest.raises(Stalled, match="has no FlagSource in its own namespace"):
        await world.plan()


async def test_what_a_plan_is_made_of_changes_with_what_is_delivered(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    world = Production(server, tmp_path, helpers)
    before = world.planner.version("shop", "production")
    assert before == world.planner.version("shop", "production")
    wanted = {"sourceRef": {"kind": "FlagSource", "name": "source"}}
    world.objects.learn(thing("FlagSet", "production", wanted, {"digest": "sha256:2"}, resourceVersion="2"))
    assert world.planner.version("shop", "production") != before
    assert world.planner.version("shop", "unknown") == ""


def steady(action: str, **spec: Any) -> dict[str, Any]:
    validation = {"expression": "plan.most <= 10", "messageExpression": '"ask " + author'}
    return {"action": action, "validations": [validation], **spec}


async def test_a_plan_says_which_policies_are_not_met_and_still_whom_it_moves(
    server: GitServer, tmp_path: Path, helpers: Helpers, repository: Repository
) -> None:
    propose(
        repository,
        flags__json=flags(banner="off"),
        signed__flagpolicy__yaml=json.dumps(
            {"name": "signed", "action": "Deny", "validations": [{"expression": 'signer.startsWith("ada")'}]}
        ),
    )
    production = Production(server, tmp_path, helpers)
    unpoliced = production.planner.version("shop", "production")
    given = thing("FlagPolicy", "steady", steady("Hold", namespaces=["sh*"]), namespace="flagstaff")
    production.objects.learn(given)
    assert production.planner.version("shop", "production") != unpoliced
    text = await production.plan()
    place, banner = "flags.json:1:0", 'flag "banner"'
    assert f"{place}: error: policy flagstaff/steady (Hold): {banner}: ask Ada <ada@example.com>\n" in text
    assert f"{place}: note: policy signed (Deny): {banner}: not judged: it asks for the signer" in text
    assert "    100 % of users get another value (exact, by arithmetic): on → off\n" in text


async def test_a_rollout_of_the_flag_set_is_seen_by_policies(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    production = Production(server, tmp_path, helpers)
    rule = {"validations": [{"expression": 'plan.rollout != "" || plan.most <= 10'}]}
    production.objects.learn(thing("FlagPolicy", "steps", {"action": "Deny", **rule}))
    assert "policy shop/steps (Deny)" in await production.plan()
    about = {"flagSetRef": {"name": "production"}, "flags": ["*"], "steps": [{"share": 10}]}
    production.objects.learn(thing("FlagRollout", "slow", about))
    assert "policy" not in await production.plan()


async def test_there_is_no_plan_for_a_set_in_another_cluster(
    server: GitServer, tmp_path: Path, helpers: Helpers
) -> None:
    production = Production(server, tmp_path, helpers, kubeConfig={"secretRef": {"name": "eu"}})
    with pytest.raises(Stalled, match="FlagSet production writes to another cluster") as caught:
        await production.plan()
    assert caught.value.reason == "OtherCluster"
