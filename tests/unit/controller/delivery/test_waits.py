"""What keeps a revision from everybody, and whose move it is."""

from __future__ import annotations

import pytest

from controller.delivery.actions import (
    Abort,
    AcceptRevision,
    Approve,
    EndOverride,
    FixFlag,
    Promote,
    PromoteAbandoned,
    ResumeCandidate,
    ResumeObject,
    Retry,
    Sort,
    Who,
)
from tests.worlds.delivery import WORLDS


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("everybody has it", []),
        ("a flag is held", [("PartiallyApplied", Who.COMMIT, [FixFlag]), ("Held", Who.COMMIT, [])]),
        ("the commit is refused", [("BuildFailed", Who.COMMIT, [FixFlag])]),
        ("the deletion guard waits", [("PruneGuard", Who.PERSON, [AcceptRevision])]),
        ("a rollout is at its first step", [("Progressing", Who.SYSTEM, [Abort, Promote])]),
        ("a step waits for an approval", [("WaitingForApproval", Who.PERSON, [Approve, Abort, Promote])]),
        ("a freeze is in force", [("Frozen", Who.TIME, [Abort, Promote])]),
        ("a rollout waits for a date", [("WaitingForDate", Who.TIME, [Abort, Promote])]),
        ("the rollout was aborted", [("Aborted", Who.PERSON, [Retry])]),
        ("the rollout is gone", [("Abandoned", Who.PERSON, [PromoteAbandoned])]),
        ("the rollout has not seen the flags yet", [("Held", Who.SYSTEM, [])]),
        ("the rollout is promoted, and not all serve it", []),
        ("an override is in force", [("OverrideActive", Who.TIME, [EndOverride])]),
        ("an override over a step has ended",
         [("OverrideEnded", Who.PERSON, [ResumeCandidate, Abort, Promote])]),
        ("the FlagSet is suspended", [("Suspended", Who.PERSON, [ResumeObject])]),
        ("the repository cannot be read", [("GitOperationFailed", Who.SYSTEM, [])]),
        ("the object is written by hand, with a bad flag", [("InvalidFlags", Who.COMMIT, [FixFlag])]),
    ],
)  # fmt: skip
def test_a_state_waits_for_somebody(title: str, expected: list[tuple[str, Who, list[type]]]) -> None:
    waits = WORLDS[title].state.waits
    assert [(wait.reason, wait.who, [*map(type, wait.actions)]) for wait in waits] == expected


def test_each_candidate_of_two_has_its_own_wait() -> None:
    waits = WORLDS["two candidates run beside each other"].state.waits
    assert [wait.sort for wait in waits] == [Sort.ROLLOUT, Sort.ROLLOUT]
    assert len({wait.message for wait in waits}) == 2


def test_the_guard_names_what_would_be_removed() -> None:
    (wait,) = WORLDS["the deletion guard waits"].state.waits
    assert wait.message.endswith("It would remove a, b, c, d, e.")


def test_the_cause_of_a_held_step_is_told() -> None:
    (wait,) = WORLDS["a step is held by its checks"].state.waits
    assert wait.message.endswith("its checks fail to run: http://prometheus:9090: connection refused")


def test_an_override_over_a_step_says_that_the_step_reaches_nobody_now() -> None:
    step = WORLDS["an override is over a step"].state.waits[0]
    assert (
        "10% of users would get the new definition of banner; an override hides it from users" in step.message
    )
