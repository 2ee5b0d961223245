"""The health checks and actions for Argo CD, run by the Lua that it uses."""

from __future__ import annotations

import os
from typing import Any

import pytest

from controller.api.kinds import WATCHED
from tests import argocd


def resource(kind: str = "FlagSet", **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "generation": 2}, "spec": {}, "status": status}


def condition(name: str, status: str, reason: str = "Because", generation: int = 2) -> dict[str, Any]:
    return {
        "type": name, "status": status, "reason": reason, "message": "what happened",
        "observedGeneration": generation,
    }  # fmt: skip


READY = condition("Ready", "True", "ReconciliationSucceeded")
FAILED = condition("Ready", "False", "BuildFailed")
WAITING = condition("Ready", "False", "DependencyNotReady")


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        ([READY], "Healthy"),
        ([FAILED, condition("Reconciling", "True", "ProgressingWithRetry")], "Degraded"),
        ([FAILED, condition("Stalled", "True")], "Degraded"),
        ([WAITING, condition("Reconciling", "True", "Progressing")], "Progressing"),
        ([READY, condition("Reconciling", "True", "Progressing")], "Progressing"),
        ([condition("Ready", "True", generation=1)], "Progressing"),
        ([], "Progressing"),
    ],
)
def test_health_follows_the_conditions_of_the_newest_generation(
    conditions: list[dict[str, Any]], health: str
) -> None:
    found = argocd.run("health.lua", resource(conditions=conditions, observedGeneration=2))
    assert found["status"] == health
    assert found["message"]


def test_health_of_an_older_generation_is_progressing() -> None:
    older = resource(conditions=[READY], observedGeneration=1)
    assert argocd.run("health.lua", older)["status"] == "Progressing"


def test_a_suspended_object_is_suspended_and_an_object_without_spec_or_status_is_progressing() -> None:
    suspended = resource(conditions=[FAILED], observedGeneration=2) | {"spec": {"suspend": True}}
    assert argocd.run("health.lua", suspended)["status"] == "Suspended"
    assert argocd.run("health.lua", {"metadata": {}})["status"] == "Progressing"


def test_actions_are_offered_where_they_change_something() -> None:
    running, paused = resource(), resource() | {"spec": {"suspend": True}}
    disabled = {
        name: (action["disabled"], argocd.run("actions/discovery.lua", paused)[name]["disabled"])
        for name, action in argocd.run("actions/discovery.lua", running).items()
    }
    assert disabled == {"reconcile": (False, True), "suspend": (False, True), "resume": (True, False)}
    assert argocd.run("actions/discovery.lua", resource("FeatureFlag")).keys() == {"reconcile"}


def test_actions_change_the_object_as_the_verbs_do() -> None:
    suspended = argocd.run("actions/suspend.lua", resource())
    assert suspended["spec"]["suspend"] is True
    assert "suspend" not in argocd.run("actions/resume.lua", suspended)["spec"]
    annotations = argocd.run("actions/reconcile.lua", resource())["metadata"]["annotations"]
    assert annotations["reconcile.fluxcd.io/requestedAt"].endswith("Z")


def rollout_status(*candidates: dict[str, Any], **status: Any) -> dict[str, Any]:
    """The status of a FlagRollout with these candidates."""
    listed = [{"digest": "sha256:a", "phase": "Progressing", "step": 1, **one} for one in candidates]
    return {"phase": listed[0]["phase"] if listed else "Idle", "candidates": listed, **status}


@pytest.mark.parametrize(
    ("candidate", "health"),
    [
        ({"phase": "Progressing"}, "Progressing"),
        ({"phase": "Pending"}, "Progressing"),
        ({"phase": "Pending", "reason": "OutsideWindow"}, "Suspended"),
        ({"phase": "Paused", "reason": "Inconclusive"}, "Suspended"),
        ({"phase": "WaitingPromotion", "reason": "WaitingForPromotion"}, "Suspended"),
        ({"phase": "Promoting"}, "Progressing"),
    ],
)
def test_a_rollout_that_waits_is_suspended(candidate: dict[str, str], health: str) -> None:
    conditions = [WAITING, condition("Reconciling", "True", "Progressing")]
    status = rollout_status(candidate, {"phase": "Queued", "digest": "sha256:b"})
    rollout = resource("FlagRollout", conditions=conditions, observedGeneration=2, **status)
    assert argocd.run("health.lua", rollout)["status"] == health


def test_a_rollout_that_failed_is_degraded() -> None:
    conditions = [FAILED, condition("Stalled", "True")]
    rollout = resource("FlagRollout", conditions=conditions, observedGeneration=2, phase="Failed")
    assert argocd.run("health.lua", rollout)["status"] == "Degraded"


@pytest.mark.parametrize(
    ("type_", "health"), [("RolloutActive", "Progressing"), ("OverrideActive", "Suspended")]
)
@pytest.mark.parametrize("kind", ["FlagSet", "FeatureFlagConfiguration"])
def test_flags_that_not_every_user_gets_are_not_healthy(kind: str, type_: str, health: str) -> None:
    flags = resource(kind, conditions=[READY, condition(type_, "True", "FlagsHeld")], observedGeneration=2)
    assert argocd.run("health.lua", flags) == {"status": health, "message": "FlagsHeld: what happened"}


@pytest.mark.parametrize(
    ("propagated", "health"), [("True", "Healthy"), ("Unknown", "Healthy"), ("False", "Progressing")]
)
def test_flags_are_healthy_once_the_evaluators_that_report_serve_them(propagated: str, health: str) -> None:
    conditions = [READY, condition("Propagated", propagated)]
    flags = resource(conditions=conditions, observedGeneration=2)
    assert argocd.run("health.lua", flags)["status"] == health


APPROVABLE = {"phase": "Paused", "reason": "WaitingForApproval"}
BOTH = ({**APPROVABLE, "step": 0}, {"digest": "sha256:b", "phase": "Failed"})


@pytest.mark.parametrize(
    ("candidates", "offered"),
    [
        ((), {"pause"}),
        (({},), {"promote", "abort", "pause"}),
        ((APPROVABLE,), {"approve", "promote", "abort", "pause"}),
        (({"phase": "Failed"},), {"promote", "retry", "pause"}),
        (({"phase": "Queued"},), {"pause"}),
        (({"phase": "Paused", "reason": "OverrideEnded"},), {"promote", "abort", "pause", "resume"}),
        (BOTH, {"approve", "promote", "abort", "retry", "pause"}),
    ],
)
def test_a_rollout_is_offered_what_can_have_an_effect(
    candidates: tuple[dict[str, Any], ...], offered: set[str]
) -> None:
    actions = argocd.run("actions/discovery.lua", resource("FlagRollout", **rollout_status(*candidates)))
    assert {name for name, action in actions.items() if not action["disabled"]} == offered | {
        "reconcile", "suspend",
    }  # fmt: skip


def annotation(action: str, of: dict[str, Any]) -> str:
    """The request that an action writes, without its times; empty: none."""
    changed = argocd.run(f"actions/{action}.lua", of)
    text = str((changed["metadata"].get("annotations") or {}).get(f"flagstaff.dev/rollout-{action}", ""))
    return ",".join(part.rpartition("/20")[0] for part in text.split(",")) if text else ""


def test_actions_of_a_rollout_name_each_candidate_that_they_are_about() -> None:
    rollout = resource("FlagRollout", **rollout_status(*BOTH))
    assert annotation("approve", rollout) == "sha256:a/1"
    assert annotation("abort", rollout) == "sha256:a"
    assert annotation("promote", rollout) == "sha256:a,sha256:b"
    both = rollout_status(APPROVABLE, {**APPROVABLE, "digest": "sha256:b", "phase": "WaitingPromotion"})
    assert annotation("approve", resource("FlagRollout", **both)) == "sha256:a/2,sha256:b/promotion"
    interrupted = rollout_status({"phase": "Paused", "reason": "OverrideEnded"})
    assert annotation("resume", resource("FlagRollout", **interrupted)) == "sha256:a"


def test_actions_without_a_candidate_change_nothing() -> None:
    for status in ({}, rollout_status()):
        rollout = resource("FlagRollout", **status)
        for action in ("approve", "abort", "promote"):
            assert argocd.run(f"actions/{action}.lua", rollout)["metadata"] == rollout["metadata"]


def test_a_rollout_is_paused_resumed_and_tried_again() -> None:
    rollout, name = resource("FlagRollout", **rollout_status({})), "flagstaff.dev/rollout-"
    assert argocd.run("actions/retry.lua", rollout)["metadata"]["annotations"][f"{name}retry"].endswith("Z")
    paused = argocd.run("actions/pause.lua", rollout)
    assert paused["metadata"]["annotations"] == {f"{name}pause": "true"}
    assert not argocd.run("actions/discovery.lua", paused)["resume"]["disabled"]
    assert argocd.run("actions/resume.lua", paused)["metadata"]["annotations"] == {}


def test_the_patch_has_the_scripts_for_every_kind_with_conditions() -> None:
    if os.environ.get("FLAGSTAFF_REWRITE"):
        argocd.PATCH.write_text(argocd.patch())
    assert argocd.PATCH.read_text() == argocd.patch()
    known = {(kind.group, kind.kind) for kind in WATCHED}
    assert {(group, kind) for group, kinds in argocd.KINDS.items() for kind in kinds} <= known
