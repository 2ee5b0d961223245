"""The annotations by which `flagstaff rollout` tells a FlagRollout what a person decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli.rollout import REQUESTS, AnnotationRequest, RefusedRequest
from controller.delivery.rollout_state import rollout_state
from tests.worlds.delivery import AT_STEP, FIRST, SECOND, candidate, rollout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.meta import Resource

NOW = datetime(2026, 11, 30, 8, tzinfo=UTC)
AT = "2026-11-30T08:00:00.000Z"
PAUSE = "flagstaff.dev/rollout-pause"
HALF = {"step": 1, "stepText": "2/2", "share": 50.0, "shareText": "50%"}


def at(
    phase: str, annotations: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **fields: Any
) -> Resource:
    """A FlagRollout with one candidate at its first step."""
    made = rollout(candidate(phase, FIRST, "banner", **{**AT_STEP, **fields}), spec=spec)
    return annotate(made, annotations or {})


def annotate(resource: Resource, annotations: dict[str, str]) -> Resource:
    """The object with annotations."""
    return replace(resource, annotations=annotations)


def two(annotations: dict[str, str] | None = None) -> Resource:
    """A FlagRollout with two candidates."""
    made = rollout(
        candidate("Progressing", FIRST, "banner", **AT_STEP), candidate("Progressing", SECOND, "pay", **HALF)
    )
    return annotate(made, annotations or {})


def ask(verb: str, resource: Resource, *named: str) -> AnnotationRequest:
    """The request of a verb."""
    return REQUESTS[verb](resource, rollout_state(resource), named, NOW)


@pytest.mark.parametrize(
    ("verb", "phase", "annotation", "value"),
    [
        ("approve", "Paused", "approve", f"{FIRST}/1/{AT}"),
        ("approve", "WaitingPromotion", "approve", f"{FIRST}/promotion/{AT}"),
        ("promote", "Progressing", "promote", f"{FIRST}/{AT}"),
        ("promote", "Failed", "promote", f"{FIRST}/{AT}"),
        ("abort", "Progressing", "abort", f"{FIRST}/{AT}"),
        ("abort", "Promoting", "abort", f"{FIRST}/{AT}"),
        ("retry", "Failed", "retry", f"{FIRST}/{AT}"),
    ],
)
def test_a_request_names_the_only_candidate(verb: str, phase: str, annotation: str, value: str) -> None:
    assert ask(verb, at(phase)) == AnnotationRequest((FIRST,), {f"flagstaff.dev/rollout-{annotation}": value})


@pytest.mark.parametrize(
    ("verb", "resource", "why"),
    [
        ("approve", rollout(), "nothing to approve: it is Idle, without a candidate"),
        (
            "approve",
            at("Pending", step=None),
            r"nothing to approve: 444444444444 \(banner\): has not started",
        ),
        ("abort", at("Failed"), "nothing to roll back"),
        ("abort", rollout(phase=None), "nothing to roll back: it is not reconciled yet"),
        ("retry", at("Progressing"), "nothing to retry"),
        ("abort", at("Progressing", spec={"suspend": True}), "suspended: set spec.suspend to false"),
        ("resume", at("Paused", spec={"pause": True}), r"spec\.pause is true"),
    ],
    ids=["idle", "pending", "stopped", "new", "not stopped", "suspended", "paused in the spec"],
)
def test_a_request_without_effect_is_refused(verb: str, resource: Resource, why: str) -> None:
    with pytest.raises(RefusedRequest, match=why):
        ask(verb, resource)


def test_of_two_candidates_one_must_be_named() -> None:
    with pytest.raises(RefusedRequest, match=r"--candidate: 444444444444 \(banner\), 555555555555 \(pay\)"):
        ask("approve", two())
    assert ask("approve", two(), "5" * 12).annotations == {
        "flagstaff.dev/rollout-approve": f"{SECOND}/2/{AT}"
    }
    assert ask("abort", two(), "4" * 12, SECOND).annotations == {
        "flagstaff.dev/rollout-abort": f"{FIRST}/{AT},{SECOND}/{AT}"
    }


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (["7" * 12], "there is no candidate 777777777777: 444444444444"),
        (["4" * 11], "there is no candidate 44444444444"),
    ],
)
def test_an_unknown_candidate_is_refused_with_those_that_are_there(named: Sequence[str], why: str) -> None:
    with pytest.raises(RefusedRequest, match=why):
        ask("abort", two(), *named)


def test_a_candidate_that_the_verb_is_not_about_is_refused() -> None:
    with pytest.raises(RefusedRequest, match=r"candidate 444444444444 \(banner\) is Progressing"):
        ask("retry", two(), "4" * 12)


def test_a_step_is_approved_once() -> None:
    approvals = [{"gate": "1", "digest": FIRST, "at": "2026-11-30T07:00:00Z"}]
    assert ask("approve", at("Progressing", approvals=approvals)) == AnnotationRequest((FIRST,))


def test_the_request_about_another_candidate_stays() -> None:
    asked = ask("approve", two({"flagstaff.dev/rollout-approve": f"{SECOND}/2"}), "4" * 12)
    assert asked.annotations == {"flagstaff.dev/rollout-approve": f"{SECOND}/2,{FIRST}/1/{AT}"}
    again = ask("approve", two({"flagstaff.dev/rollout-approve": f"{FIRST}/1"}), "4" * 12)
    assert again.annotations == {"flagstaff.dev/rollout-approve": f"{FIRST}/1/{AT}"}


def test_a_pause_holds_all_candidates_or_those_that_are_named() -> None:
    assert ask("pause", two()).annotations == {PAUSE: "true"}
    assert ask("pause", two(), "5" * 12) == AnnotationRequest((SECOND,), {PAUSE: SECOND})
    assert ask("pause", at("Paused", {PAUSE: "true"})) == AnnotationRequest()


def test_a_pause_by_annotation_is_resumed() -> None:
    assert ask("resume", at("Paused", {PAUSE: "true"})).annotations == {PAUSE: None}
    assert ask("resume", two({PAUSE: f"{FIRST},{SECOND}"}), "4" * 12).annotations == {PAUSE: SECOND}
    assert ask("resume", two({PAUSE: FIRST}), "4" * 12).annotations == {PAUSE: None}
    assert ask("resume", at("Progressing")) == AnnotationRequest()


def test_a_candidate_that_an_override_interrupted_is_resumed() -> None:
    asked = ask("resume", at("Progressing", reason="OverrideEnded"))
    assert asked.annotations == {"flagstaff.dev/rollout-resume": f"{FIRST}/{AT}"}


def test_a_candidate_without_steps_is_approved_before_its_promotion() -> None:
    asked = ask("approve", at("Pending", reason="WaitingForPromotion", step=None))
    assert asked.annotations == {"flagstaff.dev/rollout-approve": f"{FIRST}/promotion/{AT}"}
