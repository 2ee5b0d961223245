"""Whether a revision is served, as `flagstaff wait` decides it."""

from __future__ import annotations

from typing import Any

import pytest

from controller.api.objects.meta import Resource
from controller.delivery.waiting import WaitState, WaitTarget, is_revision, names, wait_state

OLD, NEW, PLAIN = (f"main@sha1:{letter * 40}" for letter in "abc")


def configuration(served: str = "3/3", revision: str = NEW, **status: Any) -> dict[str, Any]:
    total = int(served.partition("/")[2])
    known = {"observedGeneration": 2, "digest": "sha256:new", "revision": revision}
    return {"metadata": {"generation": 2}, "status": {**known, "served": served, "total": total, **status}}


def flag_set(*history: tuple[str, str] | tuple[str, str, int], **status: Any) -> dict[str, Any]:
    entries = [dict(zip(("revision", "digest", "held"), each, strict=False)) for each in history]
    known = {"history": entries, "digest": "sha256:new", "observedGeneration": 1}
    return {"metadata": {"generation": 1}, "status": {**known, **status}}


def stalled_conditions(message: str) -> list[dict[str, str]]:
    return [
        {"type": "Ready", "status": "False", "message": message},
        {"type": "Stalled", "status": "True", "message": message},
    ]


def look(found: Any, writer: Any = None, revision: str = NEW, **wanted: Any) -> WaitState:
    return wait_state(resource(found), resource(writer), WaitTarget(revision, **wanted))


def resource(body: dict[str, Any] | None) -> Resource | None:
    if body is None:
        return None
    return Resource.of({"kind": "Any", **body, "metadata": {"name": "flags", **body["metadata"]}})


OBJECT = "the FeatureFlagConfiguration"
BEFORE = configuration(revision=OLD)
HOLDING = flag_set((NEW, "sha256:new", 1), lastAttemptedRevision=NEW)
UNREADY = {"type": "Ready", "status": "False", "message": "bad flag"}


def test_it_is_served_when_all_serve_it() -> None:
    assert look(configuration()) == WaitState(True, f"3 of 3 evaluators serve {NEW}")


def test_suspended_flag_set_ends_the_wait_and_says_so() -> None:
    writer = {**flag_set((OLD, "sha256:new")), "spec": {"suspend": True}}
    state = look(BEFORE, writer)
    assert (state.done, state.over) == (False, True)
    assert state.message == f"FlagSet flags is suspended, with {OLD} applied; set spec.suspend to false"
    assert look(configuration(), {**flag_set((NEW, "sha256:new")), "spec": {"suspend": True}}).done


@pytest.mark.parametrize(
    ("found", "writer", "expected"),
    [
        (None, None, f"{OBJECT} does not exist yet"),
        (configuration(observedGeneration=1), None, f"the controller has not processed {OBJECT} yet"),
        ({"metadata": {"generation": 1}}, None, f"the controller has not processed {OBJECT} yet"),
        (BEFORE, None, f"{OBJECT} has {OLD}, not {NEW}"),
        (BEFORE, flag_set((OLD, "sha256:new"), lastAttemptedRevision=NEW, conditions=[UNREADY]),
         f"{NEW} is not applied: bad flag"),
        (BEFORE, flag_set((OLD, "sha256:new"), (NEW, "sha256:x")),
         f"{NEW} was applied, and {OLD} has replaced it"),
        (BEFORE, HOLDING, f"{NEW} is not applied whole"),
        (configuration(), HOLDING, f"{NEW} is not applied whole"),
        (BEFORE, flag_set((PLAIN, "sha256:new"), (NEW, "sha256:new", 1), lastAttemptedRevision=PLAIN),
         f"{NEW} was applied only in part, and {PLAIN} has replaced it"),
        (configuration(), flag_set((OLD, "sha256:old"), digest="sha256:old"),
         f"{OBJECT} does not have the content that the FlagSet built from {NEW}"),
        (configuration("0/0"), None, f"no evaluator that sends receipts is subscribed to {NEW}"),
        (configuration("2/3"), None, f"2 of 3 evaluators serve {NEW}"),
    ],
    ids=[
        "no object", "an older verdict", "no status", "another revision", "refused", "overtaken",
        "a flag is held, and the set is as before", "a flag is held, and others changed",
        "corrected by a later commit", "the FlagSet does not report yet what is held", "nobody", "not all",
    ],
)  # fmt: skip
def test_it_is_not_served_and_why(found: Any, writer: Any, expected: str) -> None:
    assert look(found, writer) == WaitState(False, expected)


def test_a_commit_that_changed_no_flag_is_served_with_the_flags_that_it_has() -> None:
    history = flag_set((PLAIN, "sha256:new"), (NEW, "sha256:new"))
    assert look(configuration(), history, PLAIN).done


def test_a_revision_that_was_held_first_and_applied_whole_then_is_served() -> None:
    history = flag_set((NEW, "sha256:new"), (OLD, "sha256:old"), (NEW, "sha256:x", 1))
    assert look(configuration(), history).done


@pytest.mark.parametrize(
    ("history", "generation", "over"),
    [([(NEW, "sha256:new", 1)], 1, True), ([], 1, True), ([(NEW, "sha256:new", 1)], 2, False)],
    ids=["held", "refused", "the FlagSet was changed meanwhile"],
)
def test_there_is_nothing_to_wait_for_once_a_person_must_change_something(
    history: Any, generation: int, over: bool
) -> None:
    found = flag_set(*history, lastAttemptedRevision=NEW, conditions=stalled_conditions("bad flag"))
    found["metadata"]["generation"] = generation
    seen = look(configuration(revision=OLD), found, allow_none=True)
    assert (seen.done, seen.over) == (False, over)
    assert seen.message.endswith(": bad flag")


def test_one_that_changed_flags_is_not_served_by_others() -> None:
    assert not look(configuration(), flag_set((OLD, "sha256:old")), OLD).done


@pytest.mark.parametrize(
    ("served", "percent", "done"),
    [("1/3", 34.0, False), ("1/3", 33.0, True), ("2/3", 66.0, True), ("199/200", 100.0, False)],
)
def test_a_share_may_be_enough(served: str, percent: float, done: bool) -> None:
    assert look(configuration(served), percent=percent).done is done


def test_no_evaluators_are_enough_where_none_are_required() -> None:
    assert look(configuration("0/0"), allow_none=True).done


def test_an_evaluator_that_does_not_serve_it_is_named() -> None:
    silent = {"name": "shop/a", "node": "n1", "serves": OLD, "since": "12:00", "silent": True}
    behind = {"name": "shop/b", "since": "12:01"}
    kept = {"name": "shop/c", "serves": OLD, "since": "12:02", "reason": "OrderNotGranted"}
    assert look(configuration("1/9", laggards=[silent, behind, kept])).waits_for == (
        f"shop/a on n1: silent since 12:00, served {OLD}",
        "shop/b: serves nothing (behind since 12:01)",
        f"shop/c: keeps {OLD} since 12:02: OrderNotGranted",
        "and 5 more",
    )


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [(NEW, True), ("b" * 40, True), ("b" * 7, True), ("b" * 6, False), (OLD, False), ("main", False),
     ("main@sha1:" + "b" * 7, False)],
)  # fmt: skip
def test_a_revision_is_named_by_all_of_it_or_by_its_commit_s_beginning(wanted: str, meant: bool) -> None:
    assert names(wanted, NEW) is meant


@pytest.mark.parametrize(
    ("text", "ok"), [(NEW, True), ("b" * 7, True), ("b" * 6, False), ("main", False), ("BBBBBBB", False)]
)  # fmt: skip
def test_what_may_be_waited_for(text: str, ok: bool) -> None:
    assert is_revision(text) is ok


def test_a_set_with_remote_flags_is_served_once_all_serve_what_it_is_merged_to() -> None:
    merged = configuration(digest="sha256:merged", localDigest="sha256:new")
    assert look(merged, flag_set((NEW, "sha256:new"))).done
    assert not look(configuration(digest="sha256:merged", localDigest="sha256:old"), flag_set()).done
