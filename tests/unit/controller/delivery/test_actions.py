"""What a person is told to do, in a cluster and in local mode."""

from __future__ import annotations

import pytest

from controller.api.flagrollout import names_candidate
from controller.api.meta import ObjectKey
from controller.delivery.actions import (
    AcceptRevision,
    Action,
    Approve,
    EndOverride,
    FixFlag,
    PromoteAbandoned,
    ResumeCandidate,
    ResumeObject,
    Retry,
    Unpause,
    annotation_of,
    in_cluster,
    in_file,
)
from tests.worlds.delivery import FIRST, NEW, OBJECT, SET, WORLDS

ROLLOUT = ObjectKey("FlagRollout", "shop", "checkout")
ANNOTATE = "add to metadata.annotations of FlagRollout checkout: flagstaff.dev/rollout-"
NAMED = "checkout --candidate 444444444444 -n shop"
ACCEPT = "kubectl -n shop annotate flagset checkout --overwrite flagstaff.dev/accept-revision="
OVERRIDE = ObjectKey("FlagOverride", "shop", "checkout.banner")


@pytest.mark.parametrize(
    ("action", "command", "change"),
    [
        (Approve(ROLLOUT, FIRST, "1"), f"flagstaff rollout approve {NAMED}",
         f'{ANNOTATE}approve: "444444444444/1"'),
        (ResumeCandidate(ROLLOUT, FIRST), f"flagstaff rollout resume {NAMED}",
         f'{ANNOTATE}resume: "444444444444"'),
        (Retry(ROLLOUT, FIRST), f"flagstaff rollout retry {NAMED}",
         f'{ANNOTATE}retry: "444444444444"'),
        (Unpause(ROLLOUT), "flagstaff rollout resume checkout -n shop",
         "remove spec.pause and the annotation flagstaff.dev/rollout-pause of FlagRollout checkout"),
        (PromoteAbandoned(OBJECT, FIRST),
         f"kubectl -n shop annotate ffc checkout --overwrite flagstaff.dev/rollout-promote={FIRST}",
         "add the FlagRollout again, with the annotation flagstaff.dev/rollout-promote: 444444444444"),
        (FixFlag("flags/base.json", 4), "", "correct flags/base.json:4, and commit it"),
        (FixFlag(""), "", "commit a correction"),
        (AcceptRevision(SET, NEW.rpartition("@")[2]),
         f"{ACCEPT}sha1:{'b' * 40}",
         "restart without --prune-guard, or commit the removal in smaller parts"),
        (EndOverride(OVERRIDE), "flagstaff override end checkout.banner -n shop",
         "remove FlagOverride checkout.banner"),
        (ResumeObject(SET), "flagstaff resume set checkout -n shop",
         "set spec.suspend of FlagSet checkout to false"),
    ],
)  # fmt: skip
def test_an_action_is_a_command_or_a_change_of_a_file(action: Action, command: str, change: str) -> None:
    assert (in_cluster(action), in_file(action)) == (command, change)


def test_no_command_for_a_cluster_is_in_what_local_mode_says() -> None:
    texts = [in_file(act) for world in WORLDS.values() for wait in world.state.waits for act in wait.actions]
    assert texts
    assert not [text for text in texts if "flagstaff rollout" in text or "kubectl" in text or "-n " in text]


def test_the_annotation_names_the_candidate() -> None:
    name, value = annotation_of(Approve(ROLLOUT, FIRST, "1"))
    digest, _, gate = value.rpartition("/")
    assert (name, gate) == ("flagstaff.dev/rollout-approve", "1")
    assert names_candidate(digest, FIRST)
