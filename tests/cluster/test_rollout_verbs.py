"""`flagstaff rollout` and the verbs that show rollouts, on the real API server."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from controller.cli.published.json_schemas import json_schemas
from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.fleets import flagstaff
from tests.cluster.objects import configuration, flags, manifest
from tests.cluster.patience import within
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.objects import Namespace

pytestmark = [pytest.mark.timeout(300)]
STEPS = [{"share": 10, "approval": "Required"}, {"share": 50, "approval": "Required"}]


@pytest.fixture
def shop(space: Namespace) -> Namespace:
    """A set of flags whose changes are rolled out in two steps that people approve."""
    space.apply(configuration(flagSpec=json.loads(flags(pay="off"))))
    space.wait_ready("ffc")
    spec = {"flagSetRef": {"name": "flags"}, "flags": ["pay*"], "steps": STEPS, "promotion": "Manual"}
    space.apply(manifest("FlagRollout", "checkout", spec))
    space.wait("flagrollout", lambda found: found.get("status", {}).get("phase") == "Idle", "checkout")
    return space


def verb(shop: Namespace, *words: str, code: int = 0) -> str:
    ended, text = flagstaff(shop.plane, *words, "-n", shop.name)
    assert ended == code, text
    return text


def change(shop: Namespace, default: str) -> None:
    shop.apply(configuration(flagSpec=json.loads(flags(pay=default))))


def reach(shop: Namespace, phase: str, **status: Any) -> None:
    """Until the rollout is at a phase, with these fields of its status."""

    def is_reached(found: dict[str, Any]) -> bool:
        now = found.get("status", {})
        return now.get("phase") == phase and {name: now.get(name) for name in status} == status

    shop.wait("flagrollout", is_reached, "checkout")


def test_people_approve_steps_and_the_promotion(shop: Namespace) -> None:
    assert "Phase:     Idle" in verb(shop, "rollout", "status", "checkout")
    refused = verb(shop, "rollout", "approve", "checkout", code=1)
    assert refused == "flagstaff rollout: FlagRollout/checkout: nothing to approve: it is Idle\n"

    change(shop, "on")
    reach(shop, "Paused", stepText="1/2", reason="WaitingForApproval")
    text = verb(shop, "rollout", "status", "checkout")
    assert "Phase:     Paused, step 1/2, 10% of users, WaitingForApproval" in text
    assert "1/2   10%    -      -        required  now" in text
    assert "FlagRollout/checkout  Paused, step 1/2, 10%" in verb(shop, "tree")
    assert "Paused  1/2   10%" in verb(shop, "get", "rollouts")
    assert "Steps:\n" in verb(shop, "describe", "rollout", "checkout")
    assert "Rollout:  checkout, Paused, step 1/2, 10%" in verb(shop, "trace", "pay")

    assert "step 1/2 of" in verb(shop, "rollout", "approve", "checkout")
    reach(shop, "Paused", stepText="2/2", reason="WaitingForApproval")
    record = json.loads(verb(shop, "rollout", "status", "checkout", "-o", "json"))
    jsonschema_rs.validator_for(json_schemas()["output-rollout-status"]).validate(record)
    assert [step["state"] for step in record["steps"]] == ["done", "now"]

    verb(shop, "rollout", "approve", "checkout")
    reach(shop, "WaitingPromotion")
    assert "promotion of" in verb(shop, "rollout", "approve", "checkout")
    reach(shop, "Succeeded")
    assert shop.get("flagrollout", "checkout")["status"]["history"][0]["outcome"] == "Promoted"


def test_a_rollout_is_aborted_retried_paused_and_promoted(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2")
    assert "is rolled back" in verb(shop, "rollout", "abort", "checkout")
    reach(shop, "Failed", reason="Aborted")
    assert "is rolled out again" in verb(shop, "rollout", "retry", "checkout")
    reach(shop, "Paused", stepText="1/2", reason="WaitingForApproval")
    assert "paused at step 1/2" in verb(shop, "rollout", "pause", "checkout")
    assert verb(shop, "rollout", "pause", "checkout") == "FlagRollout/checkout: already paused\n"
    verb(shop, "rollout", "approve", "checkout")
    reach(shop, "Paused", stepText="1/2", reason="Paused")
    assert verb(shop, "rollout", "resume", "checkout") == "FlagRollout/checkout: resumed\n"
    reach(shop, "Paused", stepText="2/2", reason="WaitingForApproval")
    assert "everybody gets it" in verb(shop, "rollout", "promote", "checkout")
    reach(shop, "Succeeded")


def test_what_a_deleted_rollout_holds_back_is_promoted_by_the_same_verb(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2")
    shop.delete("flagrollout", "checkout")

    def phases(found: dict[str, Any]) -> list[str]:
        return [entry["phase"] for entry in found["status"].get("rollouts", ())]

    shop.wait("ffc", lambda found: phases(found) == ["Abandoned"])
    assert "is gone: everybody gets what it held back" in verb(shop, "rollout", "promote", "checkout")
    shop.wait("ffc", lambda found: phases(found) == [])
    assert "there is no FlagRollout checkout" in verb(shop, "rollout", "promote", "checkout", code=1)


def test_a_live_view_follows_each_change(shop: Namespace) -> None:
    command = [FLAGSTAFF, "rollout", "status", "checkout", "--watch", "-n", shop.name]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(shop.plane.kubeconfig)], stdout=subprocess.PIPE, text=True
    ) as watching:
        try:
            assert watching.stdout is not None
            change(shop, "on")
            until = time.monotonic() + 60
            seen = ""
            while "Paused, step 1/2, 10% of users" not in seen:
                assert time.monotonic() < until, seen
                seen += watching.stdout.readline()
        finally:
            watching.terminate()


def test_a_plan_compares_a_change_with_what_the_cluster_has_promoted(shop: Namespace, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(flags__json=flags(pay="on"))
    shop.apply(manifest("FlagSet", "flags", {
        "sourceRef": {"kind": "FlagSource", "name": "none"}, "target": {"name": "flags"}, "suspend": True,
    }))  # fmt: skip
    words = ("rollout", "plan", "checkout", "--source", str(repository.path), "--path", "flags.json")
    within(lambda: "1 flag in 2 steps" in flagstaff(shop.plane, *words, "-n", shop.name)[1])
    [record] = json.loads(verb(shop, *words, "-o", "json"))
    jsonschema_rs.validator_for(json_schemas()["output-rollout-plan"]).validate([record])
    assert [step["moved"] for step in record["steps"]] == pytest.approx([10, 50, 100], abs=3)
