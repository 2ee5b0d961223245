"""FlagRollouts on the real API server: served step by step, decided by annotation, killed at every write."""

from __future__ import annotations

import json
import re
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from controller.runtime.clock import now
from tests.clients.asking import ask_flag
from tests.cluster import golden
from tests.cluster.controllers import ControllerProcess, controller
from tests.cluster.fleets import followed_source
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.replica import run_replica
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

pytestmark = [pytest.mark.timeout(300)]
PAGE = Path(__file__).parents[2] / "docs" / "rollouts.md"
USERS = 100
STEPS = [{"share": 20, "approval": "Required"}, {"share": 60, "approval": "Required"}]


@dataclass(frozen=True, slots=True)
class Installed:
    """What runs."""

    controller: ControllerProcess
    proxy: ProxyProcess


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("rollouts")
    with proxy(spare, folder / "proxy") as delivering, controller(spare, folder / "controller") as leader:
        leader.wait_leads()
        yield Installed(leader, delivering)


@pytest.fixture
def shop(installed: Installed, spare: Plane, spare_namespace: str) -> Namespace:
    """A namespace with a flag set, and a rollout for it."""
    assert installed.proxy.target
    space = Namespace(spare, spare_namespace)
    space.apply(configuration(flagSpec=json.loads(flags(pay="off"))), rollout())
    phase(space, "Idle")
    return space


@pytest.fixture
def pod(installed: Installed, shop: Namespace, tmp_path: Path) -> Iterator[PodProcess]:
    """An evaluator that serves the set."""
    source = followed_source(installed.proxy.target, shop.name)
    with pods(shop.plane, shop.name, source, tmp_path / "pods", "web-1") as [found]:
        within(lambda: users(found) == 0)
        yield found


def rollout(**spec: Any) -> dict[str, Any]:
    return manifest(
        "FlagRollout", "pay", {"flagSetRef": {"name": "flags"}, "flags": ["pay"], "steps": STEPS, **spec}
    )


def phase(shop: Namespace, wanted: str, reason: str | None = None) -> dict[str, Any]:
    """The rollout's status, with that of its only candidate as `candidate`, once it is in a phase."""

    def is_reached(found: dict[str, Any]) -> bool:
        status = found.get("status", {})
        return status.get("phase") == wanted and reason in {None, only_candidate(status).get("reason")}

    status: dict[str, Any] = shop.wait("flagrollout", is_reached, "pay")["status"]
    return {**status, "candidate": only_candidate(status)}


def only_candidate(status: dict[str, Any]) -> dict[str, Any]:
    return next(iter(status.get("candidates", ())), {})


def commit(shop: Namespace, **defaults: str) -> None:
    shop.apply(configuration(flagSpec=json.loads(flags(**defaults))))


def request(shop: Namespace, **annotations: str | None) -> None:
    named = {f"flagstaff.dev/rollout-{name}": value for name, value in annotations.items()}
    shop.patch("flagrollout", {"metadata": {"annotations": named}}, "pay")


def users(pod: PodProcess) -> int:
    """How many of a hundred users have `pay` on; -1 while nothing is served."""
    try:
        answers = [ask_flag(pod.port("ofrep"), "pay", targetingKey=f"user-{at}") for at in range(USERS)]
    except OSError:
        return -1
    return -1 if any("value" not in each for each in answers) else sum(each["value"] for each in answers)


def test_a_change_is_served_step_by_step_as_people_approve_it(shop: Namespace, pod: PodProcess) -> None:
    commit(shop, pay="on")
    status = phase(shop, "Paused", "WaitingForApproval")
    digest = status["candidate"]["digest"]
    assert status["candidate"]["served"] == {"served": 1, "total": 1}
    within(lambda: 5 <= users(pod) <= 40)
    golden.check("flagrollouts", lambda: golden.mask(shop.kubectl("get", "froll"), shop.name))
    request(shop, approve=f"{digest}/1")
    shop.wait("flagrollout", lambda found: only_candidate(found["status"]).get("stepText") == "2/2", "pay")
    within(lambda: 40 <= users(pod) <= 80)
    phase(shop, "Paused", "WaitingForApproval")
    request(shop, approve=f"{digest}/2")
    phase(shop, "Succeeded")
    within(lambda: users(pod) == USERS)
    reasons = {"RolloutStarted", "StepAdvanced", "WaitingForApproval", "Promoted"}
    within(lambda: reasons <= {event["reason"] for event in shop.all("event")})


def test_a_step_is_served_from_its_date_on(shop: Namespace, pod: PodProcess) -> None:
    date = (now() + timedelta(seconds=8)).astimezone(ZoneInfo("Europe/Berlin")).isoformat(timespec="seconds")
    shop.apply(rollout(steps=[{"share": 20, "at": date}, {"share": 60, "at": "2499-12-24T18:00:00+01:00"}]))
    commit(shop, pay="on")
    assert phase(shop, "Pending", "WaitingForDate")["candidate"]["message"] == f"until {date}"
    assert users(pod) == 0
    status = phase(shop, "Paused", "WaitingForDate")
    assert now() >= datetime.fromisoformat(date)
    assert status["candidate"]["message"] == "until 2499-12-24T18:00:00+01:00"
    within(lambda: 5 <= users(pod) <= 40)
    assert "it waits for a date: until 2499-12-24T18:00:00+01:00" in shop.kubectl(
        "get", "froll", "-o", "wide"
    )
    request(shop, promote=status["candidate"]["digest"])
    within(lambda: users(pod) == USERS)


def test_an_abort_and_a_revert_are_served_at_once(shop: Namespace, pod: PodProcess) -> None:
    commit(shop, pay="on")
    digest = phase(shop, "Paused", "WaitingForApproval")["candidate"]["digest"]
    request(shop, abort=digest)
    phase(shop, "Failed", "Aborted")
    within(lambda: users(pod) == 0)
    request(shop, retry="1")
    phase(shop, "Paused", "WaitingForApproval")
    within(lambda: users(pod) > 0)
    commit(shop, pay="off")
    within(lambda: users(pod) == 0)
    phase(shop, "Idle")


def test_the_role_of_the_page_lets_on_call_decide_and_allows_nothing_else(shop: Namespace) -> None:
    [block] = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    role = yaml.safe_load(block)
    role["metadata"]["namespace"] = shop.name
    shop.kubectl("apply", "-f", "-", given=json.dumps(role))
    shop.kubectl("create", "rolebinding", "on-call", f"--role={role['metadata']['name']}", "--user=ada")
    commit(shop, pay="on")
    digest = phase(shop, "Paused", "WaitingForApproval")["candidate"]["digest"]
    abort = f"flagstaff.dev/rollout-abort={digest}"
    for words in (("annotate", "ffc", "flags", abort), ("delete", "froll", "pay"), ("get", "secrets")):
        with pytest.raises(RuntimeError, match="Forbidden"):
            shop.kubectl(*words, "--as=ada")
    shop.kubectl("annotate", "froll", "pay", abort, "--as=ada")
    phase(shop, "Failed", "Aborted")


def test_manifests_that_are_applied_again_cause_no_write(shop: Namespace) -> None:
    commit(shop, pay="on")
    phase(shop, "Paused", "WaitingForApproval")
    versions = {shop.get(kind, name)["metadata"]["resourceVersion"] for kind, name in OBJECTS}
    for _ in range(20):
        commit(shop, pay="on")
        shop.apply(rollout())
    assert {shop.get(kind, name)["metadata"]["resourceVersion"] for kind, name in OBJECTS} == versions


OBJECTS = (("flagrollout", "pay"), ("ffc", "flags"))


def test_without_its_rollout_the_promoted_definition_stays(shop: Namespace, pod: PodProcess) -> None:
    commit(shop, pay="on")
    phase(shop, "Paused", "WaitingForApproval")
    shop.delete("flagrollout", "pay")
    within(lambda: users(pod) == 0)
    shop.wait("ffc", lambda found: found["status"]["rollouts"][0]["phase"] == "Abandoned")
    assert shop.all("flagshard")


@pytest.mark.slow
def test_a_leader_that_is_killed_after_each_write_leaves_the_next_one_the_same_end(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    shop = Namespace(spare, spare_namespace)
    process = ControllerProcess(spare, tmp_path / "a", "--no-leader-election")
    writes = "controller.kube.client:Cluster.write_status:after,controller.kube.client:Cluster.apply:after"
    command = process.command
    dying = [sys.executable, "-m", "tests.cluster.dying", writes, *command[1:]]
    process.command = ["env", f"PYTHONPATH={ROOT}", *dying]
    shop.apply(
        configuration(flagSpec=json.loads(flags(pay="off"))), rollout(steps=[{"share": 20}, {"share": 60}])
    )
    # The promoted definitions, and the status that names them.
    assert until_phase(process, shop, "Idle") >= 2
    assert shop.get("flagrollout", "pay")["status"]["promoted"]["shard"]
    commit(shop, pay="on")
    # Pending, two steps, the promotion, the new definitions and the end; writes of the set's status beside.
    assert until_phase(process, shop, "Succeeded") >= 6
    status = shop.get("flagrollout", "pay")["status"]
    assert [entry["outcome"] for entry in status["history"]] == ["Promoted"]
    process.command = command
    with run_replica(process):
        commit(shop, pay="off")
        phase(shop, "Succeeded")
        shop.wait("ffc", lambda found: not found["status"]["rollouts"][0].get("candidate"))


def until_phase(process: ControllerProcess, shop: Namespace, wanted: str) -> int:
    """Start one controller after the other; each is killed after its first write. Return their number."""
    for lives in range(1, 60):
        process.start()
        if process.wait() != -signal.SIGKILL:
            raise AssertionError(process.log_text()[-3000:])
        if shop.get("flagrollout", "pay").get("status", {}).get("phase") == wanted:
            return lives
    raise AssertionError(json.dumps(shop.get("flagrollout", "pay"), indent=2)[-4000:])
