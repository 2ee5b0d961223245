"""`flagstaff wait rollout/NAME`: a revision is applied, served, and everybody's."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.objects.meta import Resource
from controller.delivery.progress.rollout_waiting import rollout_wait_state
from controller.delivery.waiting import WaitState, WaitTarget

REVISION = "main@sha1:" + "a" * 40
CANDIDATE = "sha256:" + "c" * 64


def configuration(rollouts: list[dict[str, Any]], served: str = "2/2") -> Resource:
    count, total = map(int, served.split("/"))
    status = {
        "revision": REVISION,
        "digest": "sha256:" + "d" * 64,
        "served": f"{count}/{total}",
        "total": total,
        "observedGeneration": 1,
        "rollouts": rollouts,
    }
    metadata = {"namespace": "shop", "name": "checkout", "generation": 1}
    return Resource.of({"kind": "FeatureFlagConfiguration", "metadata": metadata, "status": status})


def entry(phase: str, candidate: str | None = CANDIDATE) -> dict[str, Any]:
    parts = {"name": "steps", "shard": "steps-promoted-1", "phase": phase}
    return parts if candidate is None else {**parts, "candidate": candidate, "flags": {"a": "0a1b"}}


def wait_state(rollouts: list[dict[str, Any]], *candidates: dict[str, Any], served: str = "2/2") -> WaitState:
    listed = [{"digest": CANDIDATE, "flags": {"a": "0a1b"}, **candidate} for candidate in candidates]
    rollout = Resource.of(
        {
            "kind": "FlagRollout",
            "metadata": {"namespace": "shop", "name": "steps"},
            "status": {"candidates": listed},
        }
    )
    return rollout_wait_state(rollout, configuration(rollouts, served), None, WaitTarget(REVISION))


def test_a_revision_that_leaves_nothing_to_roll_out_is_everybodys() -> None:
    state = wait_state([entry("Idle", None)])
    assert (state.done, state.over) == (True, False)
    assert state.message.endswith("everybody's by FlagRollout steps")


@pytest.mark.parametrize(
    ("rollouts", "served", "candidates", "message"),
    [
        ([], "2/2", [], "FlagRollout steps has not seen the flags yet"),
        (
            [entry("Exposed")],
            "2/2",
            [{"phase": "Paused", "stepText": "2/4", "reason": "WaitingForApproval"}],
            "FlagRollout steps: step 2/4, Paused, WaitingForApproval",
        ),
        ([entry("Held")], "2/2", [{"phase": "Pending"}], "FlagRollout steps: Pending"),
        ([entry("Held")], "2/2", [], "FlagRollout steps: not reconciled yet"),
        (
            [entry("Held"), entry("Exposed", "sha256:2")],
            "2/2",
            [{"phase": "Failed"}, {"digest": "sha256:2", "phase": "Progressing", "stepText": "1/2"}],
            "FlagRollout steps: Failed; step 1/2, Progressing",
        ),
        ([entry("Idle", None)], "1/2", [], "1 of 2 evaluators serve"),
    ],
)
def test_a_revision_under_way_is_waited_for(
    rollouts: list[dict[str, Any]], served: str, candidates: list[dict[str, Any]], message: str
) -> None:
    state = wait_state(rollouts, *candidates, served=served)
    assert (state.done, state.over) == (False, False)
    assert message in state.message


def test_a_revision_that_was_rolled_back_is_waited_for_no_longer() -> None:
    state = wait_state([entry("Held")], {"phase": "Failed", "reason": "FailureLimit"})
    assert (state.done, state.over) == (False, True)
    assert state.message == "FlagRollout steps: Failed, FailureLimit"
