"""The view of deliveries: stages, laggards, problems, Events and the way of a commit."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.delivery.reach import ReachTarget, reach
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import StageHealth, Where
from controller.page.delivery_facts import timeline
from controller.page.page_source import FleetMember, ShownEvent, read_event, read_fleets, time_served_by
from tests.worlds import delivery as worlds
from tests.worlds.delivery import WORLDS
from tests.worlds.objects import thing
from tests.worlds.page import NOW, FakeSource, ask, flag, shown_set, text

if TYPE_CHECKING:
    from controller.api.meta import Resource
    from controller.delivery.set_state import SetState
    from controller.page.delivery_facts import Milestone
    from controller.page.page_source import ShownSet

NEW: Final = "main@sha1:" + "2" * 40
OLD: Final = "main@sha1:" + "1" * 40
READY: Final = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "as it should be"}


def source() -> Resource:
    metadata = {
        "flagstaff.dev/committed-at": "2026-11-28T11:59:00Z",
        "flagstaff.dev/observed-at": "2026-11-28T11:59:01.500Z",
    }
    artifact = {
        "url": "http://artifacts/a", "revision": NEW, "digest": "sha256:aa",
        "lastUpdateTime": "2026-11-28T11:59:02Z", "metadata": metadata,
    }  # fmt: skip
    status = {"conditions": [READY], "artifact": artifact, "observedGeneration": 1}
    return thing("FlagSource", "flags", spec={"git": {"url": "https://git.test/a/b"}}, status=status)


def flag_set(applied: str = NEW, **status: Any) -> Resource:
    entry = {"revision": applied, "digest": "sha256:bb", "appliedAt": "2026-11-28T11:59:03Z"}
    known = {
        "conditions": [READY], "observedGeneration": 1, "lastAppliedRevision": applied,
        "lastAttemptedRevision": NEW, "digest": "sha256:bb", "history": [entry], **status,
    }  # fmt: skip
    return thing(
        "FlagSet", "flags", spec={"sourceRef": {"kind": "FlagSource", "name": "flags"}}, status=known
    )


def configuration(served: str = "1/2", **status: Any) -> Resource:
    known = {
        "conditions": [READY], "observedGeneration": 1, "revision": NEW, "digest": "sha256:bb",
        "served": served, "total": 2, **status,
    }  # fmt: skip
    metadata: dict[str, Any] = {
        "labels": {"flagstaff.dev/flagset": "flags"},
        "managedFields": [{"manager": "flagstaff-flagset/shop/flags"}],
        "annotations": {"flagstaff.dev/observed-at": "2026-11-28T11:59:01.500Z"},
    }
    return thing("FeatureFlagConfiguration", "flags", status=known, **metadata)


def at(seconds: int) -> datetime:
    return datetime(2026, 11, 28, 11, 59, seconds, tzinfo=UTC)


def members(*lagging: bool) -> dict[str, list[FleetMember]]:
    return {
        "shop/flags": [
            FleetMember(f"shop/pod-{number}", NEW, since=at(4 + number), lagging=late)
            for number, late in enumerate(lagging)
        ]
    }


def state_of(*objects: Resource, where: Where = Where.CLUSTER) -> SetState:
    [state] = read_sets(objects, NOW, where)
    return state


def way(state: SetState, *lagging: bool) -> tuple[Milestone, ...]:
    """The way of the newest commit of a set."""
    fleet = members(*lagging)["shop/flags"] if lagging else ()
    return timeline(state, reach(state, ReachTarget(state.newest.revision, everybody=True)), fleet)


def test_a_revision_is_followed_from_its_source_to_the_evaluators() -> None:
    receipt = thing(
        "FlagReceipt", "r",
        spec={"configuration": "flags", "proxy": "proxy-1"},
        status={"digest": "sha256:bb", "groups": [{"digest": "sha256:bb", "revision": NEW, "count": 1}]},
    )  # fmt: skip
    state = state_of(source(), flag_set(), configuration(), receipt)
    assert [(stage.title, stage.health) for stage in state.stages] == [
        ("Source", StageHealth.READY), ("Flag set", StageHealth.READY), ("Object", StageHealth.READY),
        ("Proxy", StageHealth.READY), ("Evaluators", StageHealth.WAITING),
    ]  # fmt: skip
    assert reach(state, ReachTarget(NEW)).message == f"1 of 2 evaluators serve {NEW}"
    [proxy] = (stage for stage in state.stages if stage.title == "Proxy")
    assert (proxy.name, proxy.revision, proxy.message) == (
        "proxy-1", NEW, "1 of 1 evaluators serve what it delivers"
    )  # fmt: skip


def test_a_proxy_that_delivers_something_else_is_in_progress() -> None:
    receipt = thing(
        "FlagReceipt",
        "r",
        spec={"configuration": "flags", "proxy": "proxy-1"},
        status={"digest": "sha256:cc"},
    )
    other = thing(
        "FlagReceipt", "s", spec={"configuration": "cart", "proxy": "proxy-1"}, status={"digest": "sha256:cc"}
    )
    stages = state_of(source(), flag_set(), configuration(), receipt, other).stages
    assert [stage.health for stage in stages if stage.title == "Proxy"] == [StageHealth.WAITING]


def test_local_mode_speaks_of_no_object_and_no_proxy() -> None:
    state = state_of(source(), flag_set(), configuration(), where=Where.LOCAL)
    assert [stage.title for stage in state.stages] == ["Source", "Flag set", "Evaluators"]
    page = text(ask(FakeSource(resources=[source(), flag_set()], where=Where.LOCAL), "/ui/delivery"))
    assert "The flag set does not exist yet" in page
    assert "FeatureFlagConfiguration" not in page


def test_the_way_of_a_commit_has_the_time_of_each_step() -> None:
    steps = way(state_of(source(), flag_set(), configuration()), False, True)
    assert [(step.title, step.done, step.seconds) for step in steps] == [
        ("Committed", True, None), ("Seen", True, 1.5), ("Built", True, 0.5), ("Applied", True, 1.0),
        ("On half of the evaluators", True, 1.0), ("On all evaluators", False, None),
        ("For all users", False, None),
    ]  # fmt: skip


def test_the_way_ends_once_every_user_has_the_commit_and_no_sooner() -> None:
    done = {title: way(world.state)[-1].done for title, world in WORLDS.items()}
    assert [*filter(done.get, done)] == [
        title for title, world in WORLDS.items() if reach(
            world.state, ReachTarget(world.state.newest.revision, everybody=True)
        ).done
    ]  # fmt: skip
    assert (done["everybody has it"], done["a rollout is at its first step"]) == (True, False)
    titles = [step.title for step in way(WORLDS["a flag is held"].state)]
    assert "Applied in part" in titles


def test_each_candidate_and_override_is_listed_and_a_candidate_has_a_place_to_link_to() -> None:
    objects = WORLDS["two candidates run beside each other"].objects
    page = text(ask(FakeSource(resources=objects), "/ui/delivery"))
    for digest, key in ((worlds.FIRST, "banner"), (worlds.SECOND, "pay")):
        assert f'id="candidate-{digest[7:19]}"' in page
        assert f"the new definition of {key} <" in page
    page = text(ask(FakeSource(resources=WORLDS["an override is over a step"].objects), "/ui/delivery"))
    assert 'FlagOverride checkout.banner: flag "banner" is "off" until' in page


@pytest.mark.parametrize("title", WORLDS)
def test_a_set_is_shown_as_ready_only_once_every_user_has_its_newest_commit(title: str) -> None:
    page = text(ask(FakeSource(resources=WORLDS[title].objects), "/ui/delivery"))
    reached = reach(WORLDS[title].state, ReachTarget(WORLDS[title].state.newest.revision, everybody=True))
    assert ('<p class="lead"><span class="health ready">' in page) is reached.done


def test_what_is_served_of_an_older_revision_is_no_step_of_the_newest() -> None:
    behind = configuration(served="2/2", revision=OLD, digest="sha256:cc")
    state = state_of(source(), flag_set(OLD, digest="sha256:cc"), behind)
    done = {step.title: step.done for step in way(state, False, False)}
    assert not done["Applied"]
    assert not done["On half of the evaluators"]


def test_everybody_served_without_a_proxy_to_ask_has_the_time_of_the_slowest() -> None:
    state = state_of(source(), flag_set(), configuration(served="2/2", servedWithin="3.5s"))
    assert way(state)[-1].at == at(5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 59)), max_size=20), st.sampled_from([50, 100]))
def test_so_many_percent_serve_it_since_the_last_of_them_does(
    fleet: list[tuple[bool, int]], percent: int
) -> None:
    known = [FleetMember(str(n), lagging=late, since=at(second)) for n, (late, second) in enumerate(fleet)]
    since = time_served_by(known, percent)
    serving = [
        one for one in known if not one.lagging and since is not None and (one.since or since) <= since
    ]
    enough = sum(not one.lagging for one in known) * 100 >= percent * len(known)
    assert (since is not None) == (enough and bool(known))
    assert since is None or len(serving) * 100 >= percent * len(known)


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["flagSets", "members", "name", "namespace", "since", "x"]), inner
)))  # fmt: skip
def test_no_answer_of_a_proxy_breaks_the_view(answer: object) -> None:
    for listed in read_fleets([answer]).values():
        assert all(isinstance(member.name, str) for member in listed)


def test_problems_say_file_and_line_and_what_is_served_meanwhile() -> None:
    problem = {"severity": "error", "file": "flags.json", "line": 3, "message": "no such variant"}
    refused = worlds.conditions("BuildFailed", "it is refused")
    objects = [
        source(), flag_set(OLD, problems=[problem], conditions=refused), configuration(revision=OLD)
    ]  # fmt: skip
    shown = text(ask(FakeSource(resources=objects), "/ui/delivery"))
    assert "flags.json:3: error: no such variant" in shown
    assert "Problems of main@sha1:222222222222" in shown
    assert "Main@sha1:111111111111 is served meanwhile" in shown.replace(">main@", ">Main@")


def test_the_names_of_laggards_are_those_of_fleet() -> None:
    laggard = {"name": "shop/checkout-1", "node": "node-3", "serves": OLD, "since": "2026-11-28T11:59:30Z"}
    shown = text(ask(FakeSource(resources=[flag_set(), configuration(laggards=[laggard])]), "/ui/delivery"))
    assert (
        "shop/checkout-1 on node-3: serves main@sha1:111111111111 (behind since 2026-11-28T11:59:30Z)"
        in shown
    )


def test_texts_of_strangers_are_escaped() -> None:
    hostile = "<script>alert(1)</script>"
    about = {"kind": "FlagSet", "namespace": "shop", "name": "flags"}
    event = read_event(
        {
            "metadata": {"annotations": {"flagstaff.dev/changes": f"+ {hostile}: on"}},
            "involvedObject": about, "message": hostile, "reason": hostile, "type": "Warning",
        }
    )  # fmt: skip
    late = [FleetMember(hostile, hostile, hostile, hostile, lagging=True)]
    source_ = FakeSource(
        resources=[flag_set(), configuration()], known_events=[event], fleet={"shop/flags": late},
        known_faults=[hostile],
    )  # fmt: skip
    body = ask(source_, "/ui/delivery").body
    assert b"<script>alert" not in body
    assert body.count(b"&lt;script&gt;") >= 5


def test_many_flag_sets_are_listed_on_pages_and_each_has_its_own_address() -> None:
    many = [thing("FlagSet", f"set-{number:03}", spec={}) for number in range(250)]
    source_ = FakeSource(resources=many)
    assert "set-100" in text(ask(source_, "/ui/delivery?page=2"))
    assert "set-250" not in text(ask(source_, "/ui/delivery?page=9999999999"))
    assert "shop/set-007" in text(ask(source_, "/ui/delivery?set=shop/set-007"))
    assert ask(source_, "/ui/delivery?set=shop/none").status == 404


def test_the_last_twenty_events_are_shown() -> None:
    events = [ShownEvent("FlagSet", "shop", "flags", "NewRevision", f"event {n}") for n in range(25)]
    page = text(ask(FakeSource(known_events=events), "/ui/delivery"))
    assert ("event 19<" in page, "event 20<" in page) == (True, False)


SCHEDULE: Final = {"between": ["2026-12-24T18:00", "2026-12-27T06:00", "Europe/Berlin"]}


def calendar_of(seen: FakeSource, target: str = "/ui/delivery") -> list[str]:
    """The lines below the heading; none where there is no heading."""
    found = re.search(r"<h3>Calendar</h3>(.*?)</ul>", text(ask(seen, target)), re.DOTALL)
    return re.findall(r"<li>(.*?)</li>", found[1]) if found else []


def scheduled(count: int = 1, **more: Any) -> ShownSet:
    rule = {"targeting": {"if": [SCHEDULE, "on"]}, **more}
    past = {"between": ["2025-12-24", "2025-12-27", "UTC"]}
    flags = {f"banner{number:02}": flag(**rule) for number in range(count)}
    return shown_set({**flags, "old": flag(targeting={"if": [past, "on"]}), "plain": flag()}, "shop/flags")


def test_calendar_has_the_schedules_of_all_flags_that_are_to_come() -> None:
    seen = FakeSource([scheduled()], resources=(source(), flag_set(), configuration()))
    line = "From 2026-12-24 18:00 to 2026-12-27 06:00 Europe/Berlin: banner00: on"
    assert calendar_of(seen, "/ui/delivery?set=shop/flags") == [line]
    assert calendar_of(seen, "/ui/delivery?set=flags") == [line]


def test_calendar_is_bounded_and_absent_where_nothing_is_to_come() -> None:
    objects = (source(), flag_set(), configuration())
    lines = calendar_of(FakeSource([scheduled(23)], resources=objects))
    assert len(lines) == 21
    assert lines[-1] == "… and 3 more"
    for nothing in ([shown_set({"plain": flag()}, "shop/flags")], []):
        assert not calendar_of(FakeSource(nothing, resources=objects))


@pytest.mark.parametrize("phase", ["Failed", "Promoting"])
def test_calendar_has_no_dates_of_a_candidate_that_takes_no_more_steps(phase: str) -> None:
    world = WORLDS["a rollout waits for a date"]
    entry = worlds.entry("Held", worlds.FIRST, "banner")
    target = worlds.set_object(digest=worlds.MIXED, localDigest=worlds.OWN_NEW, rollouts=[entry])
    steps = [{"share": 10, "at": "2026-12-05T08:00:00+01:00"}]
    rolled = worlds.rollout(worlds.candidate(phase, worlds.FIRST, "banner"), spec={"steps": steps})
    assert calendar_of(FakeSource(resources=world.objects))
    kept = (one for one in world.objects if one.key not in {target.key, rolled.key})
    objects = (*kept, target, rolled)
    assert not calendar_of(FakeSource(resources=objects))
