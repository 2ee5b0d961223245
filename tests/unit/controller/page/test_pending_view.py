"""The view of what waits for a person, and the commands that it shows."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from controller.page.delivery.pending_work import pending_work
from tests.unit.controller.page.page_world import FakeSource, ask, text
from tests.unit.controller.page.test_delivery_view import NEW, OLD, resource

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.page.delivery.pending_work import PendingItem

DIGEST = "2" * 40


def condition(reason: str, message: str, type_: str = "Ready") -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": "False", "reason": reason, "message": message}]}


def items_under(title: str, *objects: Resource) -> list[PendingItem]:
    return [item for section in pending_work(objects) if section.title == title for item in section.items]


def guard(message: str, **more: Any) -> Resource:
    return resource("FlagSet", status={**condition("PruneGuard", message), **more})


def test_a_guard_shows_what_would_go_and_the_command_that_accepts_it() -> None:
    message = (
        f"{NEW} by Ada is held: … annotate flagset flags --overwrite flagstaff.dev/accept-revision={NEW}"
    )
    [item] = items_under("Waiting for acceptance", guard(message, pendingRemovals=["banner"]))
    assert item.lines == ("banner would be removed",)
    assert item.command == (
        f"kubectl -n shop annotate flagset flags --overwrite flagstaff.dev/accept-revision=sha1:{DIGEST}"
    )


@pytest.mark.parametrize(
    ("kind", "type_", "reason", "word"),
    [
        ("FlagSource", "Ready", "HistoryRewritten", "flagsource"),
        ("FeatureFlagConfiguration", "RemoteFlagsFetched", "OlderVersion", "ffc"),
    ],
)
def test_sources_and_remote_providers_wait_for_acceptance_too(
    kind: str, type_: str, reason: str, word: str
) -> None:
    status = condition(reason, f"to accept it: flagstaff.dev/accept-revision={DIGEST}", type_)
    [item] = items_under("Waiting for acceptance", resource(kind, status=status))
    assert item.command.startswith(f"kubectl -n shop annotate {word} flags ")


@pytest.mark.parametrize(
    "author", [f"flagstaff.dev/accept-revision={'3' * 40}", "$(rm -rf ~)", "x; kubectl delete ns shop"]
)
def test_a_command_has_nothing_that_a_commits_author_wrote(author: str) -> None:
    [item] = items_under(
        "Waiting for acceptance",
        guard(f"{NEW} by {author} is held: accept it: flagstaff.dev/accept-revision=main;ls@sha1:{DIGEST}"),
    )
    assert shlex.split(item.command)[-1] == f"flagstaff.dev/accept-revision=sha1:{DIGEST}"


def test_a_message_about_something_else_makes_no_command() -> None:
    spoof = condition("ValidationFailed", f"flag 'flagstaff.dev/accept-revision={DIGEST}' is bad")
    assert items_under("Waiting for acceptance", resource("FlagSet", status=spoof)) == []


def test_held_flags_say_which_revision_is_served() -> None:
    status = {**condition("PartiallyApplied", "one is bad"), "held": [{"name": "banner", "revision": OLD}]}
    [item] = items_under("Held flags", resource("FlagSet", status=status))
    assert item.lines == (f"banner: as in {OLD}",)


def test_an_override_in_force_says_until_when_and_how_to_end_it() -> None:
    status = {
        "state": "Active", "hides": 'default variant "on"',
        "conditions": [{"type": "Ready", "status": "True", "reason": "Active", "message": "payments fail"}],
    }  # fmt: skip
    override = resource("FlagOverride", "kill", spec={"expiresAt": "2026-12-01T00:00:00Z"}, status=status)
    [item] = items_under("Overrides", override)
    assert item.lines == ("until 2026-12-01T00:00:00Z", 'it hides: default variant "on"')
    assert item.command == "flagstaff override end kill -n shop"


def test_a_rollout_that_waits_for_approval_says_how_to_approve() -> None:
    status = {
        **condition("WaitingForApproval", "step 2/4 waits for approval"),
        "phase": "Paused", "reason": "WaitingForApproval", "stepText": "2/4", "shareText": "10%",
        "candidate": {"digest": "sha256:aa", "flags": ["banner"]},
    }  # fmt: skip
    [item] = items_under("Rollouts", resource("FlagRollout", "banner", status=status))
    assert item.lines == ("banner: new definition for 10%", "step 2/4")
    assert item.command == "flagstaff rollout approve banner -n shop"


def test_a_suspended_set_says_how_to_resume() -> None:
    [item] = items_under("Suspended", resource("FlagSet", spec={"suspend": True}))
    assert item.command == "flagstaff resume set flags -n shop"


def test_the_problems_of_a_set_are_not_repeated_of_what_it_writes() -> None:
    problem = {"severity": "error", "file": "flags.json", "line": 3, "message": "bad"}
    labels = {"labels": {"flagstaff.dev/flagset": "flags"}}
    written = resource("FeatureFlagConfiguration", metadata=labels, status={"problems": [problem]})
    made = resource("FlagSet", status={"problems": [problem], "lastAppliedRevision": OLD})
    [item] = items_under("Problems", made, written)
    assert item.message == f"{OLD} is served meanwhile"


def test_a_problem_leads_to_its_line_at_the_git_server() -> None:
    problem = {"severity": "error", "file": "flags.json", "line": 3, "message": "bad"}
    source = resource("FlagSource", spec={"git": {"url": "https://github.com/shop/flags"}})
    spec = {"sourceRef": {"kind": "FlagSource", "name": "flags"}}
    made = resource("FlagSet", spec=spec, status={"problems": [problem], "lastAttemptedRevision": NEW})
    for view in ("pending", "delivery?set=flags"):
        page = text(ask(FakeSource(resources=[source, made]), f"/ui/{view}"))
        assert f'href="https://github.com/shop/flags/blob/{NEW[-40:]}/flags.json#L3"' in page


def test_nothing_pending_is_said_and_what_is_pending_is_escaped() -> None:
    assert "Nothing is pending." in text(ask(FakeSource(), "/ui/pending"))
    hostile = "<img src=x onerror=alert(1)>"
    objects = [guard(hostile, pendingRemovals=[hostile])]
    assert b"<img src=x" not in ask(FakeSource(resources=objects), "/ui/pending").body
