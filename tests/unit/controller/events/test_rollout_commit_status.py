"""The status of a commit for a FlagRollout, from its first step to its end, and for its flag set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.flagprovider import FlagProviderSpec, FlagProviderStatus
from controller.api.meta import COMPARED_WITH
from controller.events.flag_set_progress import state_name
from controller.events.git_servers import status_name
from controller.events.notice import ProviderTarget
from evaluator.flags.model import REVISION_KEY
from tests.worlds.delivery import (
    AT_STEP,
    FIRST,
    NEW,
    OLD,
    OWN_NEW,
    OWN_OLD,
    SINCE,
    candidate,
    conditions,
    entry,
    flag_set,
    rollout,
    set_object,
)
from tests.worlds.events import CHAT, Desk, alert, message

if TYPE_CHECKING:
    from controller.api.meta import Resource

LATER: Final = f"main@sha1:{'c' * 40}"
ROLLED_OUT: Final = alert("rollouts", kind="FlagRollout")
AT_FIRST_STEP: Final = (
    set_object(rollouts=[entry("Exposed", FIRST, "banner", step="1/2", share="10")]),
    rollout(candidate("Progressing", FIRST, "banner", **AT_STEP)),
)
PROMOTED: Final = (set_object(rollouts=[entry("Idle", "")]), rollout(promotedRevisions=[NEW, OLD]))
STOPPED: Final = (
    set_object(rollouts=[entry("Held", FIRST, "banner")]),
    rollout(candidate("Failed", FIRST, "banner", reason="Aborted", message="by hand")),
)


SERVED: Final = ("True", "Served", "3 of 3 evaluators serve it")
UNDER_WAY: Final = ("False", "Progressing", "1 of 3 evaluators serve it")


class Repository(Desk):
    """A desk whose provider keeps statuses of commits."""

    def __init__(self, *alerts: Resource) -> None:
        super().__init__(*alerts)
        self.provider = replace(self.provider, spec={"type": "github"}, resource_version="5")
        self.objects.learn(self.provider)
        self.box = self.outbox.open(CHAT, FlagProviderStatus())
        self.versions = 10

    def learn_all(self, *resources: Resource) -> None:
        """The controller sees these objects, one after the other."""
        for resource in resources:
            self.versions += 1
            self.objects.learn(replace(resource, resource_version=str(self.versions)))

    def told(self, kind: str = "FlagRollout") -> list[tuple[str, str]]:
        """(the commit's letter, its state) of each status that was written about a kind, in order."""
        about = [each for each in self.box.pending.values() if each.kind == kind]
        return [(each.metadata[REVISION_KEY].rpartition(":")[2][0], state_name(each)) for each in about]

    def words(self, kind: str = "FlagRollout") -> str:
        """What the last status about a kind says."""
        return [each.message for each in self.box.pending.values() if each.kind == kind][-1]


@pytest.fixture
def desk() -> Repository:
    """The flag set with OLD, which is served and promoted."""
    made = Repository(ROLLED_OUT, alert("sets"))
    made.learn_all(
        flag_set(OLD, OLD, OWN_OLD, conditions=conditions(Propagated=SERVED)),
        rollout(promotedRevisions=[OLD]),
        set_object(OLD, OWN_OLD, rollouts=[entry("Idle", "")]),
    )
    made.box.pending.clear()
    return made


def test_no_commit_is_green_before_everybody_gets_it(desk: Repository) -> None:
    """Neither while the FlagRollout is ready as it has not seen the commit yet, nor at its steps."""
    applied = flag_set(conditions=conditions(Propagated=SERVED))
    desk.learn_all(applied)
    desk.learn_all(replace(set_object(), generation=2), set_object(rollouts=[entry("Held", "", "banner")]))
    desk.learn_all(rollout(candidate("Pending", FIRST, "banner")), *AT_FIRST_STEP)
    words = "FlagRollout checkout: step 1/2, 10% of users get the new definition of banner"
    assert desk.words() == words
    promoting = rollout(candidate("Promoting", FIRST, "banner", share=100.0, shareText="100%"))
    desk.learn_all(promoting, set_object(rollouts=[entry("Everyone", FIRST, "banner", share="100")]))
    assert set(desk.told()) == {("b", "pending")}
    desk.learn_all(*PROMOTED)
    assert desk.told()[-1] == ("b", "success")
    assert [pair for pair in desk.told() if pair[1] == "success"] == [("b", "success")]


def test_a_flag_set_is_pending_at_a_step_and_fails_once_its_change_is_rolled_back(desk: Repository) -> None:
    step = "FlagRollout checkout: step 1/2"
    exposed = conditions(Propagated=SERVED, RolloutActive=("True", "FlagsRolledOut", step))
    desk.learn_all(*AT_FIRST_STEP, flag_set(conditions=exposed))
    assert desk.told("FlagSet")[-1] == ("b", "pending")
    held = conditions(Propagated=SERVED, RolloutActive=("True", "FlagsRolledOut", "nobody gets it"))
    desk.learn_all(*STOPPED, flag_set(conditions=held))
    assert desk.told("FlagSet")[-1] == ("b", "failure")
    desk.learn_all(*PROMOTED, flag_set(conditions=conditions(Propagated=SERVED)))
    assert desk.told("FlagSet")[-1] == ("b", "success")


def test_a_rollback_and_an_abort_fail_the_commit_until_somebody_retries(desk: Repository) -> None:
    desk.learn_all(flag_set(), *AT_FIRST_STEP, *STOPPED)
    assert desk.told()[-1] == ("b", "failure")
    assert desk.words().endswith("nobody gets the new definition of banner; somebody aborted it: by hand")
    desk.learn_all(*AT_FIRST_STEP)
    assert desk.told()[-1] == ("b", "pending")
    desk.learn_all(*PROMOTED)
    assert desk.told()[-1] == ("b", "success")


def test_a_pause_is_told_and_leaves_the_commit_pending(desk: Repository) -> None:
    paused = rollout(candidate("Paused", FIRST, "banner", reason="Paused", **AT_STEP))
    desk.learn_all(flag_set(), AT_FIRST_STEP[0], paused)
    assert desk.told()[-1] == ("b", "pending")
    assert desk.words().endswith("banner; somebody paused it")


def test_a_commit_that_changes_no_flag_of_the_set_succeeds_with_what_the_set_has(desk: Repository) -> None:
    desk.learn_all(flag_set(NEW, NEW, OWN_OLD))
    assert desk.told() == [("b", "success")]


def test_commits_with_the_same_content_end_together(desk: Repository) -> None:
    desk.learn_all(flag_set(), *AT_FIRST_STEP)
    twice = [{"revision": one, "digest": OWN_NEW, "appliedAt": SINCE} for one in (LATER, NEW)]
    desk.learn_all(flag_set(LATER, LATER, history=twice))
    assert desk.told()[-1] == ("c", "pending")
    desk.learn_all(*PROMOTED)
    assert desk.told()[-2:] == [("c", "success"), ("b", "success")]


def test_a_commit_that_another_replaces_fails_and_says_by_which(desk: Repository) -> None:
    desk.learn_all(flag_set(), *AT_FIRST_STEP)
    history = [
        {"revision": LATER, "digest": "sha256:9", "appliedAt": SINCE},
        {"revision": NEW, "digest": OWN_NEW, "appliedAt": SINCE},
    ]
    desk.learn_all(
        flag_set(LATER, LATER, "sha256:9", history=history),
        set_object(LATER, "sha256:9", rollouts=[entry("Held", "", "banner")]),
    )
    assert desk.told()[-2:] == [("c", "pending"), ("b", "failure")]
    assert desk.words() == f"{NEW.rpartition(':')[2]} was applied, and {LATER} has replaced it"
    count = len(desk.told())
    desk.learn_all(rollout(candidate("Pending", FIRST, "banner", revision=LATER)))
    assert [commit for commit, _ in desk.told()[count:]] in ([], ["c"])


def test_a_commit_that_was_applied_without_a_flag_is_not_green(desk: Repository) -> None:
    partly = flag_set(lacking=1, conditions=conditions("PartiallyApplied", f"{NEW}: 1 flag is held"))
    desk.learn_all(partly, *PROMOTED)
    assert {state for _, state in desk.told()} == {"failure"}


def test_a_refused_commit_fails_for_the_rollout_too(desk: Repository) -> None:
    desk.learn_all(flag_set(OLD, NEW, OWN_OLD, conditions=conditions("BuildFailed", "banner is bad")))
    assert desk.told() == [("b", "failure")]


def test_a_rollout_that_is_deleted_fails_the_commit_that_it_was_about(desk: Repository) -> None:
    desk.learn_all(flag_set(), *AT_FIRST_STEP)
    desk.objects.forget(AT_FIRST_STEP[1].key)
    assert desk.told()[-1] == ("b", "failure")
    assert desk.words() == "FlagRollout checkout was deleted before everybody got this commit"


def test_the_next_leader_repeats_nothing_and_misses_nothing(desk: Repository) -> None:
    desk.learn_all(flag_set(), *AT_FIRST_STEP)
    for key in tuple(desk.box.pending):
        desk.box.record_delivery(key, SINCE)
    again = Repository(ROLLED_OUT)
    again.learn_all(*(each for each in desk.objects if each.key.kind in {"FlagSet", "FlagRollout"}))
    again.learn_all(AT_FIRST_STEP[0])
    again.box = again.outbox.open(CHAT, desk.box.status())
    again.box.pending.clear()
    assert again.compare() == []
    again.learn_all(*PROMOTED)
    assert again.told()[-1] == ("b", "success")


def followed_by(revision: str, own: str, propagated: tuple[str, str, str]) -> Resource:
    """The flag set with a revision that it has got after NEW."""
    known = ((revision, own), (NEW, OWN_NEW))
    history = [{"revision": one, "digest": digest, "appliedAt": SINCE} for one, digest in known]
    return flag_set(revision, revision, own, history=history, conditions=conditions(Propagated=propagated))


def test_a_flag_sets_commit_that_another_replaces_fails_and_says_by_which(desk: Repository) -> None:
    desk.learn_all(flag_set(conditions=conditions(Propagated=UNDER_WAY)))
    assert desk.told("FlagSet") == [("b", "pending")]
    desk.learn_all(followed_by(LATER, "sha256:9", UNDER_WAY))
    assert desk.told("FlagSet")[1:] == [("c", "pending"), ("b", "failure")]
    assert desk.words("FlagSet") == f"{LATER} has replaced it before everybody was known to have it"
    desk.learn_all(followed_by(LATER, "sha256:9", SERVED))
    assert desk.told("FlagSet")[3:] == [("c", "success")]


def test_a_flag_sets_commit_succeeds_with_a_later_one_of_the_same_content(desk: Repository) -> None:
    desk.learn_all(flag_set(conditions=conditions(Propagated=UNDER_WAY)))
    desk.learn_all(followed_by(LATER, OWN_NEW, UNDER_WAY))
    assert desk.told("FlagSet") == [("b", "pending"), ("c", "pending")]
    desk.learn_all(followed_by(LATER, OWN_NEW, SERVED))
    assert desk.told("FlagSet")[2:] == [("c", "success"), ("b", "success")]


def test_a_flag_sets_commit_succeeds_while_a_later_one_is_refused(desk: Repository) -> None:
    desk.learn_all(flag_set(conditions=conditions(Propagated=UNDER_WAY)))
    refused = conditions("BuildFailed", "banner is bad", Propagated=SERVED)
    desk.learn_all(flag_set(NEW, LATER, OWN_NEW, conditions=refused))
    assert desk.told("FlagSet")[1:] == [("c", "failure"), ("b", "success")]


def test_a_flag_sets_commit_that_waited_and_was_never_applied_fails(desk: Repository) -> None:
    waiting = conditions("Progressing", "waits for FlagRollout staging", Propagated=SERVED)
    desk.learn_all(flag_set(OLD, NEW, OWN_OLD, conditions=waiting))
    desk.learn_all(flag_set(LATER, LATER, "sha256:9", conditions=conditions(Propagated=UNDER_WAY)))
    assert desk.told("FlagSet") == [("b", "pending"), ("c", "pending"), ("b", "failure")]


def test_a_commit_stays_pending_where_no_proxy_says_who_serves_it(desk: Repository) -> None:
    desk.learn_all(flag_set())
    desk.learn_all(flag_set(LATER, LATER, "sha256:9"))
    assert desk.told("FlagSet") == [("b", "pending"), ("c", "pending")]
    desk.learn_all(followed_by(LATER, "sha256:9", UNDER_WAY))
    assert desk.told("FlagSet")[2:] == [("b", "failure")]


def test_a_flag_set_that_is_deleted_fails_the_commit_that_was_under_way(desk: Repository) -> None:
    desk.learn_all(flag_set(conditions=conditions(Propagated=UNDER_WAY)))
    desk.objects.forget(flag_set().key)
    assert desk.told("FlagSet") == [("b", "pending"), ("b", "failure")]
    assert desk.words("FlagSet") == "FlagSet checkout was deleted before everybody got this commit"


def test_a_comment_on_a_pull_request_is_not_about_a_rollout() -> None:
    desk = Repository(ROLLED_OUT)
    desk.provider = replace(desk.provider, spec={"type": "githubpullrequestcomment"}, resource_version="6")
    desk.objects.learn(desk.provider)
    desk.box = desk.outbox.open(CHAT, FlagProviderStatus())
    compared = flag_set()
    annotations = {COMPARED_WITH: "other", "event.toolkit.fluxcd.io/change_request": "7"}
    desk.learn_all(replace(compared, annotations=annotations), *AT_FIRST_STEP)
    assert desk.told() == []


def name_of(cluster: str = "", **fields: Any) -> str:
    spec = FlagProviderSpec(type="github")
    target = ProviderTarget(spec, "https://github.com/shop/flags", namespace="shop", cluster=cluster)
    return status_name(target, message(**fields))


def test_a_status_is_named_by_cluster_namespace_kind_and_name() -> None:
    assert name_of("eu", kind="FlagRollout", name="checkout") == "flagstaff/eu/shop/FlagRollout/checkout"
    assert name_of(kind="FlagSet", name="checkout") == "flagstaff/shop/FlagSet/checkout"


def test_a_name_is_the_same_after_the_object_was_made_again() -> None:
    assert name_of("eu", uid="one") == name_of("eu", uid="another")


def test_names_that_are_too_long_stay_apart() -> None:
    long = [name_of("e" * 63, name="n" * 252 + end) for end in "ab"]
    assert {len(name) for name in long} == {255}
    assert long[0] != long[1]
