"""The annotations by which `flagstaff rollout` tells a FlagRollout what a person decides."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.objects.meta import Resource
from controller.cli.rollouts.rollout_requests import REQUESTS, RefusedRequest, Request

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)
DIGEST = "sha256:" + "a" * 64
CANDIDATE = {"digest": DIGEST, "revision": "main@sha1:" + "b" * 40}
PAUSE = "flagstaff.dev/rollout-pause"


def rollout(
    phase: str | None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> Resource:
    """A FlagRollout with a candidate, at the second of four steps."""
    at = {"phase": phase, "candidate": CANDIDATE, "step": 1, "stepText": "2/4", **status}
    return Resource.of(
        {
            "kind": "FlagRollout",
            "metadata": {"namespace": "shop", "name": "checkout", "annotations": annotations},
            "spec": spec or {},
            "status": {name: value for name, value in at.items() if value is not None},
        }
    )


def ask(verb: str, resource: Resource) -> Request:
    return REQUESTS[verb](resource, NOW)


@pytest.mark.parametrize(
    ("verb", "phase", "annotations", "message"),
    [
        ("approve", "Paused", {"approve": f"{DIGEST}/2"}, "step 2/4 of main@sha1:bbbbbbbbbbbb approved"),
        (
            "approve",
            "WaitingPromotion",
            {"approve": f"{DIGEST}/promotion"},
            "promotion of main@sha1:bbbbbbbbbbbb approved",
        ),
        ("promote", "Progressing", {"promote": DIGEST}, "everybody gets it"),
        ("promote", "Failed", {"promote": DIGEST}, "everybody gets it"),
        ("abort", "Progressing", {"abort": DIGEST}, "is rolled back"),
        ("abort", "Promoting", {"abort": DIGEST}, "is rolled back"),
        ("retry", "Failed", {"retry": "2026-11-30T08:00:00.000Z"}, "is rolled out again"),
        ("pause", "Progressing", {"pause": "true"}, "paused at step 2/4"),
        ("pause", "Idle", {"pause": "true"}, "paused"),
    ],
)
def test_a_request_names_the_candidate(
    verb: str, phase: str, annotations: dict[str, str], message: str
) -> None:
    request = ask(verb, rollout(phase))
    assert request.annotations == {
        f"flagstaff.dev/rollout-{name}": value for name, value in annotations.items()
    }
    assert message in request.message


@pytest.mark.parametrize(
    ("verb", "phase", "why"),
    [
        ("approve", "Idle", "nothing to approve: it is Idle"),
        ("approve", "Pending", "nothing to approve: it is Pending, OutsideWindow"),
        ("promote", "Succeeded", "nothing to promote"),
        ("abort", "Failed", "nothing to roll back"),
        ("abort", None, "it is not reconciled yet"),
        ("retry", "Progressing", "only what failed is tried again"),
    ],
)
def test_a_request_without_effect_is_refused(verb: str, phase: str | None, why: str) -> None:
    with pytest.raises(RefusedRequest, match=why):
        ask(verb, rollout(phase, reason="OutsideWindow" if phase == "Pending" else None))


def test_a_suspended_rollout_takes_no_request() -> None:
    with pytest.raises(RefusedRequest, match="suspended"):
        ask("abort", rollout("Progressing", spec={"suspend": True}))


def test_a_step_is_approved_once() -> None:
    approvals = [{"gate": "2", "digest": DIGEST, "at": "2026-11-30T07:00:00Z"}]
    request = ask("approve", rollout("Progressing", approvals=approvals))
    assert (request.annotations, request.message.endswith("approved already")) == ({}, True)


def test_a_pause_by_annotation_is_resumed_and_one_by_the_spec_is_not() -> None:
    assert ask("resume", rollout("Paused", {PAUSE: "true"})).annotations == {PAUSE: None}
    assert ask("resume", rollout("Progressing")).annotations == {}
    assert ask("pause", rollout("Paused", {PAUSE: "true"})).annotations == {}
    with pytest.raises(RefusedRequest, match=r"spec\.pause is true"):
        ask("resume", rollout("Paused", {PAUSE: "true"}, {"pause": True}))
