"""Waves over two clusters: a commit arrives in eu once the FlagRollout of staging has promoted it."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.assets import find
from tests.cluster.controllers import controller
from tests.cluster.listener import Listener, run_listener
from tests.cluster.objects import Namespace
from tests.cluster.pages import page, token_of
from tests.cluster.patience import within
from tests.cluster.plane import run_plane
from tests.cluster.plugin import install, namespace_on
from tests.git_http import git_server
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import condition, flag_set, flag_source, manifest, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.timeout(300)]
STEPS: Final = [{"share": 10, "approval": "Required"}]


@dataclass(frozen=True, slots=True)
class Forge:
    """A Git server whose branches are protected by statuses of commits."""

    repository: Repository
    url: str
    statuses: Listener

    def states(self, commit: str, name: str) -> list[str]:
        """The states of a required status of a commit, in order."""
        asked = f"/api/v3/repos/shop/flags/statuses/{commit}"
        known = [each for each in self.statuses.received if each.path == asked]
        return [each.event["state"] for each in known if each.event["context"] == name]

    def merge(self, commit: str, branch: str, *required: str) -> bool:
        """Move a branch on to a commit, if all required statuses are green."""
        if any(self.states(commit, name)[-1:] != ["success"] for name in required):
            return False
        self.repository.git("update-ref", f"refs/heads/{branch}", commit)
        return True


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster with a controller, and the namespace with the flags in it."""

    name: str
    shop: Namespace
    kinds: tuple[str, ...] = field(default=("FlagRollout", "FlagSet"))

    @property
    def required(self) -> list[str]:
        """The names of the statuses that branch protection requires of this cluster."""
        return [f"flagstaff/{self.name}/{self.shop.name}/{kind}/flags" for kind in self.kinds]

    def follow(self, forge: Forge, branch: str, **rollout: Any) -> None:
        """Have the cluster follow a branch, roll its changes out, and tell the forge."""
        provider = {
            "type": "github",
            "address": f"{forge.statuses.url}shop/flags",
            "secretRef": {"name": "forge"},
        }
        sources = [{"kind": kind, "name": "flags"} for kind in self.kinds]
        spec = {"flagSetRef": {"name": "flags"}, "flags": ["banner"], "steps": STEPS, **rollout}
        self.shop.apply(
            secret("forge", token="a-token"),
            manifest("FlagProvider", "forge", provider),
            manifest("FlagAlert", "forge", {"providerRef": {"name": "forge"}, "eventSources": sources}),
            flag_source(forge.url, git={"ref": {"branch": branch}}),
            flag_set(),
            manifest("FlagRollout", "flags", spec),
        )
        self.wait_phase("Idle")

    def wait_phase(self, *phases: str) -> dict[str, Any]:
        """The FlagRollout once it is in one of these phases."""
        return self.shop.wait("flagrollout", lambda found: found.get("status", {}).get("phase") in phases)

    def fetch(self, commit: str) -> None:
        """Have the FlagSet apply a commit of the branch."""
        self.shop.poke("flagsource")
        self.shop.wait("flagset", lambda found: found["status"]["lastAppliedRevision"].endswith(commit))

    def request(self, verb: str) -> None:
        """Promote or abort what is rolled out."""
        candidate = self.wait_phase("Progressing", "Paused", "Pending")["status"]["candidates"][0]
        annotation = {f"flagstaff.dev/rollout-{verb}": candidate["digest"]}
        self.shop.patch("flagrollout", {"metadata": {"annotations": annotation}})

    def default(self) -> str:
        """The variant that everybody gets who is in no step."""
        promoted = self.shop.get("flagrollout")["status"]["promoted"]["shard"]
        shard = self.shop.get("flagshard", promoted)
        return str(shard["spec"]["flagSpec"]["flags"]["banner"]["defaultVariant"])


@pytest.fixture(scope="module")
def other_plane(spare: Plane) -> Iterator[Plane]:
    """A second cluster."""
    assert spare.kubeconfig.exists()
    assets = find()
    assert assets is not None
    with tempfile.TemporaryDirectory(prefix="flagstaff-eu-") as folder, run_plane(assets, Path(folder)) as eu:
        install(eu)
        yield eu


@pytest.fixture(scope="module")
def planes(
    spare: Plane, other_plane: Plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Plane]]:
    """Two clusters, each with a controller that knows its name."""
    made = {"staging": spare, "eu": other_plane}
    with contextlib.ExitStack() as stack:
        for name, plane in made.items():
            folder = tmp_path_factory.mktemp(name)
            options = ("--cluster-name", name, "--allow-local-providers")
            stack.enter_context(controller(plane, folder, *options, name=name)).wait_leads()
        yield made


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json=flags(banner="off"))
    for branch in ("staging", "eu"):
        repository.git("branch", branch)
    with git_server(tmp_path) as server, run_listener() as statuses:
        yield Forge(repository, f"{server.url}/{repository.path.name}/.git", statuses)


@pytest.fixture
def staging(planes: dict[str, Plane]) -> Iterator[Stage]:
    with namespace_on(planes["staging"]) as name:
        yield Stage("staging", Namespace(planes["staging"], name))


@pytest.fixture
def eu(planes: dict[str, Plane]) -> Iterator[Stage]:
    with namespace_on(planes["eu"]) as name:
        yield Stage("eu", Namespace(planes["eu"], name))


def test_eu_s_branch_gets_a_commit_once_staging_has_promoted_it_and_keeps_it_when_eu_rolls_back(
    forge: Forge, staging: Stage, eu: Stage
) -> None:
    for stage in (staging, eu):
        stage.follow(forge, stage.name)
    commit = forge.repository.commit("banner on", flags__json=flags(banner="on"))
    assert forge.merge(commit, "staging")
    staging.fetch(commit)
    staging.wait_phase("Paused")
    rollout_status, set_status = staging.required
    within(lambda: forge.states(commit, rollout_status)[-1:] == ["pending"])
    assert not forge.merge(commit, "eu", *staging.required)
    staging.request("promote")
    # Without a proxy nobody says that evaluators serve it, so the status of the flag set stays pending.
    within(lambda: forge.merge(commit, "eu", rollout_status))
    assert set(forge.states(commit, rollout_status)[:-1]) == {"pending"}
    assert "success" not in forge.states(commit, set_status)
    eu.fetch(commit)
    eu.wait_phase("Paused")
    eu.request("abort")
    within(lambda: all(forge.states(commit, name)[-1:] == ["failure"] for name in eu.required))
    assert (staging.default(), eu.default()) == ("on", "off")


def test_eu_stays_before_its_first_step_until_the_page_of_staging_confirms(
    forge: Forge, staging: Stage, eu: Stage, tmp_path: Path
) -> None:
    with page(staging.shop.plane, tmp_path / "page") as shown:
        token = token_of(staging.shop)
        path = f"/rollouts/{staging.shop.name}/flags/promoted"
        hook = {"name": "staging", "type": "confirm-rollout", "url": f"{shown.url}{path}"}
        eu.shop.apply(secret("reader", token=token))
        staging.follow(forge, "main")
        analysis = {"interval": "10s"}
        eu.follow(forge, "main", webhooks=[{**hook, "secretRef": {"name": "reader"}}], analysis=analysis)
        commit = forge.repository.commit("banner on", flags__json=flags(banner="on"))
        for stage in (staging, eu):
            stage.fetch(commit)
        staging.wait_phase("Paused")
        held = eu.shop.wait(
            "flagrollout",
            lambda found: any(
                each.get("reason") == "WaitingForConfirmation" for each in found["status"]["candidates"]
            ),
        )
        assert held["status"]["phase"] == "Pending"
        asked = f"{path}?revision={commit}"
        assert shown.get(asked)[0] == 401
        status, text = shown.get(asked, token)
        assert (status, "step 1/1" in text) == (409, True)
        staging.request("promote")
        within(lambda: shown.get(asked, token)[0] == 200)
        eu.wait_phase("Paused")


def test_production_waits_for_the_commit_beside_staging_in_one_cluster(forge: Forge, staging: Stage) -> None:
    staging.follow(forge, "main")
    after = [{"kind": "FlagRollout", "name": "flags"}]
    staging.shop.apply(flag_set(name="production", flagSetId="production", dependsOn=after))
    staging.shop.wait_ready("flagset", "production")
    commit = forge.repository.commit("banner on", flags__json=flags(banner="on"))
    staging.fetch(commit)
    staging.wait_phase("Paused")
    waits = staging.shop.wait_reason("flagset", "DependencyNotReady", "production")
    message = condition(waits, "Ready")["message"]
    assert f"has not promoted main@sha1:{commit}" in message
    staging.shop.wait(
        "flagset", lambda found: "step 1/1" in condition(found, "Ready")["message"], "production"
    )
    assert staging.shop.served_variants("production") == {"banner": "off"}
    staging.request("promote")
    staging.shop.wait_ready("flagset", "production")
    within(lambda: staging.shop.served_variants("production") == {"banner": "on"})
