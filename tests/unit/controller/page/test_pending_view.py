"""The view of what waits for a person, and what it says to do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from controller.delivery.reach import waits_of_others
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Where
from controller.page.delivery_facts import pending_work
from tests.worlds.delivery import (
    FIRST,
    NEW,
    NOW,
    OLD,
    WORLDS,
    conditions,
    flag_set,
    override,
    set_object,
    source,
)
from tests.worlds.objects import thing
from tests.worlds.page import FakeSource, ask, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.meta import Resource
    from controller.page.delivery_facts import PendingItem

DIGEST = NEW.rpartition("@")[2]


def items_under(title: str, objects: Iterable[Resource], where: Where = Where.CLUSTER) -> list[PendingItem]:
    objects = [*objects]
    states = read_sets(objects, NOW, where)
    sections = pending_work(states, waits_of_others(objects, states))
    return [item for section in sections if section.title == title for item in section.items]


def page_of(objects: Iterable[Resource], where: Where = Where.CLUSTER, view: str = "pending") -> str:
    return text(ask(FakeSource(resources=[*objects], where=where), f"/ui/{view}"))


def guard(message: str, **more: Any) -> Resource:
    return flag_set(OLD, NEW, conditions=conditions("PruneGuard", message), **more)


def test_a_guard_shows_what_would_go_and_the_command_that_accepts_it() -> None:
    [item] = items_under("Waiting for acceptance", [guard("it is held.", pendingRemovals=["banner"])])
    assert item.message == "it is held. It would remove banner."
    assert item.actions == (
        (
            f"kubectl -n shop annotate flagset checkout --overwrite flagstaff.dev/accept-revision={DIGEST}",
            True,
        ),
    )


@pytest.mark.parametrize("author", [f"flagstaff.dev/accept-revision={'3' * 40}", "$(rm -rf ~)", "x; ls"])
def test_a_command_has_nothing_that_a_commits_author_wrote(author: str) -> None:
    [item] = items_under("Waiting for acceptance", [guard(f"{NEW} by {author} is held")])
    [(command, _)] = item.actions
    assert shlex.split(command)[-1] == f"flagstaff.dev/accept-revision={DIGEST}"


def test_a_command_in_a_message_keeps_its_whole_digest() -> None:
    page = page_of([guard(f"{NEW} is held: … flagstaff.dev/accept-revision={NEW}")])
    assert f"main@sha1:{'b' * 12} is held: … flagstaff.dev/accept-revision={NEW}" in page


def test_held_flags_say_which_revision_is_served() -> None:
    [item] = items_under("Held flags", WORLDS["a flag is held"].objects)
    why = '"defaultVarient" is unknown; did you mean "defaultVariant"?'
    assert item.message == f"banner: served as in {OLD}; its newest version is held: {why}"


def test_a_typo_is_counted_beside_the_view_s_name_also_where_nothing_else_changed() -> None:
    assert 'id="pending-count" class="badge" title="2 waiting">2<' in page_of(
        WORLDS["a flag is held"].objects
    )
    assert 'id="pending-count" class="badge"><' in page_of(WORLDS["everybody has it"].objects)


def test_a_problem_says_what_is_served_meanwhile_and_never_the_bad_commit() -> None:
    unchanged = [source(), WORLDS["a flag is held"].objects[1], set_object(OLD)]
    [item] = items_under("Problems", unchanged)
    assert item.meanwhile == f"{OLD} is served meanwhile"
    [item] = items_under("Problems", WORLDS["a flag is held"].objects)
    assert item.meanwhile == f"all other flags are served as in {NEW}"
    [item] = items_under("Problems", WORLDS["the commit is refused"].objects)
    assert item.meanwhile == f"{OLD} is served meanwhile"


def test_an_override_in_force_says_until_when_what_comes_back_and_how_to_end_it() -> None:
    [item] = items_under("Overrides", [source(), flag_set(), set_object(), override()])
    assert item.message == (
        'FlagOverride checkout.banner: flag "banner" is "off" until 2026-01-02T18:00:00Z: INC-4711; '
        "when it ends: default on"
    )
    assert item.actions == (("flagstaff override end checkout.banner -n shop", True),)


def test_an_override_over_a_step_says_that_the_step_comes_back() -> None:
    [item] = items_under("Overrides", WORLDS["an override is over a step"].objects)
    assert item.message.endswith("when it ends: FlagRollout checkout, step 1/2, 10% of users")


def test_each_candidate_says_why_it_is_held_and_how_to_approve_it() -> None:
    [item] = items_under("Rollouts", WORLDS["a step waits for an approval"].objects)
    assert item.message.endswith("10% of users get the new definition of banner; it waits for an approval")
    approve, abort, promote = (command for command, _ in item.actions)
    assert approve == f"flagstaff rollout approve checkout --candidate {FIRST[7:19]} -n shop"
    assert (abort.split()[2], promote.split()[2]) == ("abort", "promote")
    assert len(items_under("Rollouts", WORLDS["two candidates run beside each other"].objects)) == 2


def test_the_cause_of_a_held_step_and_the_end_of_a_freeze_are_shown() -> None:
    assert "its checks fail to run: http://prometheus:9090: connection refused" in page_of(
        WORLDS["a step is held by its checks"].objects
    )
    assert "a freeze is in force: year-end, until 2026-01-07T00:00:00Z" in page_of(
        WORLDS["a freeze is in force"].objects
    )


def test_local_mode_says_which_line_of_the_file_approves() -> None:
    page = page_of(WORLDS["a step waits for an approval"].objects, Where.LOCAL)
    line = f'flagstaff.dev/rollout-approve: "{FIRST[7:19]}/1"'
    assert f"Add to metadata.annotations of FlagRollout checkout: {line}" in page


@pytest.mark.parametrize("title", WORLDS)
@pytest.mark.parametrize("view", ["pending", "delivery"])
def test_local_mode_never_shows_a_command_for_a_cluster(title: str, view: str) -> None:
    page = page_of(WORLDS[title].objects, Where.LOCAL, view)
    assert not [word for word in ("kubectl", "-n shop", "flagstaff rollout") if word in page]


def test_a_suspended_set_says_how_to_resume() -> None:
    [item] = items_under("Suspended", [flag_set(spec={"suspend": True})])
    assert item.actions == (("flagstaff resume set checkout -n shop", True),)


def test_what_is_about_no_set_waits_too() -> None:
    broken = thing("FlagSource", "lonely", status={"conditions": conditions("GitOperationFailed", "no")})
    lost = thing("FlagOverride", "kill", spec={"flagSetRef": {"name": "gone"}}, status={
        "state": "UnknownFlagSet", "conditions": conditions("UnknownFlagSet", "no set has this name"),
    })  # fmt: skip
    items = items_under("Problems", [broken, lost, *WORLDS["everybody has it"].objects])
    assert [(item.about, item.message) for item in items] == [
        ("FlagOverride/shop/kill", "no set has this name"), ("FlagSource/shop/lonely", "no"),
    ]  # fmt: skip


def test_an_override_that_cannot_be_in_force_is_a_problem_of_its_set() -> None:
    unfit = override(state="UnknownVariant")
    unfit = thing("FlagOverride", "kill", spec=dict(unfit.spec), status={
        "state": "UnknownVariant", "conditions": conditions("UnknownVariant", "it has no such variant"),
    })  # fmt: skip
    [item] = items_under("Problems", [source(), flag_set(), set_object(), unfit])
    assert (item.about, item.message) == ("FlagOverride/shop/kill", "it has no such variant")


def test_a_problem_leads_to_its_line_at_the_git_server() -> None:
    _, held, target = WORLDS["a flag is held"].objects
    repository = source()
    repository.spec["git"]["url"] = "https://github.com/shop/flags"
    for view in ("pending", "delivery?set=checkout"):
        page = page_of([repository, held, target], view=view)
        assert f'href="https://github.com/shop/flags/blob/{NEW[-40:]}/flags/base.json#L4"' in page


def test_nothing_pending_is_said_and_what_is_pending_is_escaped() -> None:
    assert "Nothing is pending." in text(ask(FakeSource(), "/ui/pending"))
    hostile = "<img src=x onerror=alert(1)>"
    objects = [guard(hostile, pendingRemovals=[hostile])]
    assert b"<img src=x" not in ask(FakeSource(resources=objects), "/ui/pending").body
