"""`flagstaff rollout` and the verbs that show rollouts, on the real API server."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from controller.cli.json_schemas import json_schemas
from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.fleets import flagstaff
from tests.cluster.patience import within
from tests.repositories import Repository
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, manifest

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


def reach(shop: Namespace, phase: str, **fields: Any) -> None:
    """Until the rollout is at a phase, with a candidate with these fields, if there are any."""

    def is_reached(found: dict[str, Any]) -> bool:
        now = found.get("status", {})
        candidates = now.get("candidates") or [{}]
        reached = {name: candidates[0].get(name) for name in fields}
        return now.get("phase") == phase and reached == fields

    shop.wait("flagrollout", is_reached, "checkout")


@pytest.mark.long
def test_each_verb_tells_of_a_step(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2", reason="WaitingForApproval")
    step = "step 1/2, 10% of users"
    text = verb(shop, "rollout", "status", "checkout")
    assert f"Phase:     Paused, {step}" in text
    assert "Held:      WaitingForApproval: it waits for an approval" in text
    assert "To do:     flagstaff rollout approve checkout --candidate " in text
    assert "1/2   10%    -      -        required  now" in text
    assert f"FlagRollout/checkout  Paused; {step}: pay; it waits for an approval" in verb(shop, "tree")
    assert "Paused  1        1/2 10%" in verb(shop, "get", "rollouts")
    assert "Candidate " in verb(shop, "describe", "rollout", "checkout")
    told = f"FlagRollout checkout: {step} get the new definition of pay; it waits for an approval"
    assert f"Rollout:  {told}" in verb(shop, "trace", "pay")
    assert told in verb(shop, "describe", "ffc", "flags")
    assert "rollout checkout 1/2 10%" in verb(shop, "get", "ffc")
    assert "rollout checkout 1/2 10%" in verb(shop, "get", "flags")


def test_people_approve_steps_and_the_promotion(shop: Namespace) -> None:
    assert "Phase:     Idle" in verb(shop, "rollout", "status", "checkout")
    refused = verb(shop, "rollout", "approve", "checkout", code=1)
    why = "nothing to approve: it is Idle, without a candidate"
    assert refused == f"flagstaff rollout: FlagRollout/checkout: {why}\n"

    change(shop, "on")
    reach(shop, "Paused", stepText="1/2", reason="WaitingForApproval")
    assert "step 2/2, 50% of users get the new definition of pay" in verb(
        shop, "rollout", "approve", "checkout"
    )
    reach(shop, "Paused", stepText="2/2", reason="WaitingForApproval")
    record = json.loads(verb(shop, "rollout", "status", "checkout", "-o", "json"))
    jsonschema_rs.validator_for(json_schemas()["output-rollout-status"]).validate(record)
    [shown] = record["candidates"]
    assert [one["state"] for one in shown["steps"]] == ["done", "now"]

    approved = verb(shop, "rollout", "approve", "checkout", "--candidate", shown["digest"][7:19])
    assert "it waits for somebody to promote it" in approved
    reach(shop, "WaitingPromotion")
    assert "pay: Promoted" in verb(shop, "rollout", "approve", "checkout")
    reach(shop, "Succeeded")
    assert shop.get("flagrollout", "checkout")["status"]["history"][0]["outcome"] == "Promoted"
    assert "rollout checkout" not in verb(shop, "get", "ffc")


@pytest.mark.long
def test_a_rollout_is_aborted_retried_paused_and_promoted(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2")
    aborted = verb(shop, "rollout", "abort", "checkout")
    assert "was stopped, nobody gets the new definition of pay; somebody aborted it" in aborted
    reach(shop, "Failed", reason="Aborted")
    assert "get the new definition of pay" in verb(shop, "rollout", "retry", "checkout")
    reach(shop, "Paused", stepText="1/2", reason="WaitingForApproval")
    assert verb(shop, "rollout", "pause", "checkout").startswith("FlagRollout/checkout: paused; step 1/2")
    assert verb(shop, "rollout", "pause", "checkout").startswith("FlagRollout/checkout: paused; step 1/2")
    assert "somebody paused it" in verb(shop, "rollout", "approve", "checkout")
    reach(shop, "Paused", stepText="1/2", reason="Paused")
    assert verb(shop, "rollout", "resume", "checkout").startswith("FlagRollout/checkout: resumed; step")
    reach(shop, "Paused", stepText="2/2", reason="WaitingForApproval")
    assert "pay: Promoted" in verb(shop, "rollout", "promote", "checkout")
    reach(shop, "Succeeded")


def test_a_request_that_names_no_candidate_is_refused_with_those_that_are_there(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2")
    refused = verb(shop, "rollout", "abort", "checkout", "--candidate", "0" * 12, code=1)
    assert "there is no candidate 000000000000: " in refused
    assert "(pay): step 1/2, 10% of users" in refused


@pytest.mark.long
def test_a_rollout_is_suspended_and_resumed(shop: Namespace) -> None:
    change(shop, "on")
    reach(shop, "Paused", stepText="1/2")
    assert "(pay): step 1/2, 10% of users" in verb(shop, "suspend", "rollout", "checkout")
    assert "suspended" in verb(shop, "rollout", "approve", "checkout", code=1)
    assert "resumed: " in verb(shop, "resume", "rollout", "checkout")


@pytest.mark.long
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
            while "step 1/2, 10% of users" not in seen:
                assert time.monotonic() < until, seen
                seen += watching.stdout.readline()
        finally:
            watching.terminate()


@pytest.mark.long
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
