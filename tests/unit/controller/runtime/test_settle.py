"""What a reconcile's result says of an object, held to the rules that Flux's own controllers are checked by.

The rules are those of github.com/fluxcd/pkg, runtime/conditions/check, by their names there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.artifact_status import ArtifactStatus
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset_status import FlagSetStatus
from controller.api.flagsource import FlagSourceStatus
from controller.api.meta import REQUESTED_AT, ObjectKey, Resource
from controller.api.status import MESSAGE_CHARACTERS, Condition, Status
from controller.runtime.event import Occurrence
from controller.runtime.result import Done, Result, Settled, progressing_status, settle
from controller.runtime.setbacks import Failed, Passing, Stalled, Waiting
from tests.statuses import find

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
DETAIL = Condition("ArtifactInStorage", "True", "Succeeded", "stored")


def resource(generation: int = 1, **status: Any) -> Resource:
    key = ObjectKey("FlagSource", "shop", "flags")
    return Resource(key, "u", generation, "1", status=status or {"observedGeneration": -1})


def after(*results: Result, start: Resource | None = None) -> Resource:
    found = start or resource()
    for result in results:
        found = replace(found, status=settle(found, result, NOW).status)
    return found


class Own(Status):
    artifact: str | None = None
    size: int | None = None
    attempted: str | None = None


def summary(status: Any) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def events_of(settled: Settled) -> tuple[tuple[str, str, str], ...]:
    """(reason, message, severity) of each Event."""
    return tuple((each.reason, each.message, each.severity) for each in settled.events)


GOOD = Result(Done("stored main@sha1:1"))
BROKEN = Result.of(Failed("GitOperationFailed", "no route to host"))
ENDLESS = Result.of(Failed("GitOperationFailed", "x" * 5000))
INVALID = Result.of(Stalled("URLInvalid", "?"))
EMPTY = Result.of(Waiting("Empty", "-"))


@pytest.mark.parametrize(
    ("result", "conditions", "retry", "said"),
    [
        pytest.param(GOOD, {"Ready": ("True", "Succeeded")}, False, (), id="good"),
        pytest.param(
            BROKEN,
            {"Ready": ("False", "GitOperationFailed"), "Reconciling": ("True", "ProgressingWithRetry")},
            True, (("GitOperationFailed", "no route to host", "Warning"),), id="failed",
        ),
        pytest.param(Result.of(Stalled("URLInvalid", "what?")),
                     {"Ready": ("False", "URLInvalid"), "Stalled": ("True", "URLInvalid")}, False,
                     (("URLInvalid", "what?", "Warning"),), id="stalled"),
        pytest.param(Result.of(Waiting("EmptyRepository", "no commit yet")),
                     {"Ready": ("False", "EmptyRepository"), "Reconciling": ("True", "Progressing")}, False,
                     (), id="waiting"),
    ],
)  # fmt: skip
def test_a_first_result_is_summed_up(
    result: Result, conditions: Any, retry: bool, said: tuple[tuple[str, str, str], ...]
) -> None:
    settled = settle(resource(), result, NOW)
    assert summary(settled.status) == conditions
    assert settled.status["observedGeneration"] == 1
    assert (settled.retry, events_of(settled)) == (retry, said)


@pytest.mark.parametrize(
    "result", [GOOD, BROKEN, INVALID, EMPTY, ENDLESS], ids=["good", "failed", "stalled", "waiting", "endless"]
)
def test_the_same_again_writes_nothing_and_says_nothing(result: Result) -> None:
    before = after(result)
    settled = settle(before, result, LATER)
    assert settled.status == before.status
    assert settled.events == ()


def test_a_transition_has_its_time_and_another_message_for_the_same_has_none() -> None:
    failing = after(GOOD)
    again = settle(failing, Result(Done("stored main@sha1:2")), LATER).status
    failed = settle(failing, BROKEN, LATER).status
    times = [find(each, "Ready") for each in (again, failed)]
    assert [each and each["lastTransitionTime"] for each in times] == [
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00Z",
    ]


def test_a_setback_keeps_what_was_found_before_and_adds_what_it_found() -> None:
    stored = Result(Done("stored"), status=Own(artifact="1", size=1), details=(DETAIL,))
    gone = Condition("ArtifactInStorage", "False", "ArtifactGone", "lost")
    down = Failed("GitOperationFailed", "no")
    failed = Result.of(down, status=Own(size=None, attempted="2"), details=(gone,))
    status = after(stored, failed).status
    assert {name: status.get(name) for name in ("artifact", "size", "attempted")} == {
        "artifact": "1", "size": None, "attempted": "2",
    }  # fmt: skip
    assert "size" not in status
    assert summary(status)["ArtifactInStorage"] == ("False", "ArtifactGone")
    assert summary(after(stored, BROKEN).status)["ArtifactInStorage"] == ("True", "Succeeded")


def test_a_setback_ends_what_it_says_holds_no_longer() -> None:
    ended = replace(BROKEN, ended=("ArtifactInStorage",))
    found = after(replace(GOOD, details=(DETAIL,)), ended)
    assert summary(found.status).keys() == {"Ready", "Reconciling"}


def test_a_good_outcome_removes_what_it_does_not_say() -> None:
    stored = Result(Done("stored"), status=Own(artifact="", size=None), details=(DETAIL,))
    assert after(stored).status.keys() == {"artifact", "observedGeneration", "conditions"}
    assert after(stored, GOOD).status.keys() == {"observedGeneration", "conditions"}


def test_a_recovery_is_reported_once() -> None:
    failing = after(GOOD, BROKEN)
    assert events_of(settle(failing, GOOD, LATER)) == (("Recovered", GOOD.outcome.message, "Normal"),)
    assert settle(after(GOOD, BROKEN, GOOD), GOOD, LATER).events == ()
    assert settle(after(INVALID), GOOD, LATER).events[0].reason == "Recovered"


def test_what_was_waited_for_is_no_recovery() -> None:
    assert settle(after(EMPTY), GOOD, LATER).events == ()


@pytest.mark.parametrize("setback", [BROKEN, INVALID])
def test_a_slow_recovery_is_reported_too(setback: Result) -> None:
    failing = after(GOOD, setback)
    slow = replace(failing, status=progressing_status(failing, "working", NOW))
    assert [each.reason for each in settle(slow, GOOD, LATER).events] == ["Recovered"]
    assert settle(slow, setback, LATER).events == ()


def test_another_failure_makes_an_event_and_the_events_of_the_reconcile_follow() -> None:
    other = Result.of(Failed("AuthenticationFailed", "denied"), events=(Occurrence("Held", "banner"),))
    said = settle(after(BROKEN), other, NOW).events
    assert [each.reason for each in said] == ["AuthenticationFailed", "Held"]
    events = settle(after(BROKEN), Result(Done("ok"), events=(Occurrence("NewArtifact", "x"),)), NOW).events
    assert [each.reason for each in events] == ["Recovered", "NewArtifact"]


SET = FlagSetStatus(
    last_attempted_revision="main@sha1:2", last_applied_revision="main@sha1:2", digest="sha256:s"
)
ARTIFACT = ArtifactStatus(url="http://x", revision="main@sha1:1", digest="sha256:a")


@pytest.mark.parametrize(
    ("kind", "status", "revision", "digest"),
    [
        ("FlagSource", FlagSourceStatus(artifact=ARTIFACT), "main@sha1:1", "sha256:a"),
        ("FlagSet", SET, "main@sha1:2", "sha256:s"),
        ("FlagSet", SET | FlagSetStatus(last_applied_revision="main@sha1:1"), "main@sha1:2", ""),
        ("FeatureFlagConfiguration", ConfigurationStatus(revision="main@sha1:3", digest="sha256:c"),
         "main@sha1:3", "sha256:c"),
        ("FlagSet", FlagSetStatus(), "", ""),
    ],
    ids=["source", "flag set", "flag set that was not applied", "configuration", "nothing known"],
)  # fmt: skip
def test_an_event_has_the_object_and_what_the_new_status_knows_of_its_content(
    kind: str, status: Status, revision: str, digest: str
) -> None:
    found = replace(resource(), key=ObjectKey(kind, "shop", "flags"))
    done = Result(Done("ok"), status=status, events=(Occurrence("Changed", "a flag"),))
    (event,) = settle(found, done, NOW).events
    assert (event.object, event.uid, event.time) == (found.key, "u", NOW)
    assert (event.revision, event.digest) == (revision, digest)


def test_an_event_has_one_key_for_one_version_of_the_object() -> None:
    def key(version: str = "1", uid: str = "u", of: str = "", at: datetime = NOW) -> str:
        found = replace(resource(), resource_version=version, uid=uid)
        done = Result(Done("ok"), events=(Occurrence("Changed", "a flag", version=of),))
        return settle(found, done, at).events[0].key

    assert key() == key(at=LATER)
    assert len({key(), key(version="2"), key(uid="another"), key(of="7")}) == 4


def test_a_request_is_acknowledged_by_its_value_and_never_forgotten() -> None:
    asked = replace(resource(), annotations={REQUESTED_AT: "t1"})
    done = after(BROKEN, start=asked)
    assert done.status["lastHandledReconcileAt"] == "t1"
    assert after(GOOD, start=replace(done, annotations={})).status["lastHandledReconcileAt"] == "t1"


def test_what_is_under_way_acknowledges_nothing() -> None:
    asked = replace(after(GOOD), generation=2, annotations={REQUESTED_AT: "t1"})
    status = progressing_status(asked, "working", NOW)
    assert status["observedGeneration"] == 1
    assert "lastHandledReconcileAt" not in status
    assert summary(status) == {
        "Ready": ("Unknown", "Progressing"), "Reconciling": ("True", "Progressing"),
    }  # fmt: skip


def test_what_was_ready_stays_so_while_the_same_generation_is_worked_on() -> None:
    ready = after(GOOD)
    assert summary(progressing_status(ready, "working", NOW))["Ready"] == ("True", "Succeeded")


def test_a_failure_that_passes_within_moments_shows_only_that_work_goes_on() -> None:
    wide = Condition("Wide", "True", "Wider", "-")
    passing = Result.of(
        Passing("ArtifactFailed", "gone"), status=Own(size=2), details=(wide,), requeue_after=2.0
    )
    for before, ready, going in (
        (GOOD, ("True", "Succeeded"), "Progressing"),
        (INVALID, ("False", "URLInvalid"), "ProgressingWithRetry"),
    ):
        asked = replace(after(before), annotations={REQUESTED_AT: "t1"})
        settled = settle(asked, passing, NOW)
        assert (events_of(settled), settled.requeue_after, settled.retry) == ((), 2.0, False)
        assert summary(settled.status) == {
            "Ready": ready, "Reconciling": ("True", going), "Wide": ("True", "Wider"),
        }  # fmt: skip
        assert settled.status["size"] == 2
        assert "lastHandledReconcileAt" not in settled.status
        assert events_of(settle(replace(asked, status=settled.status), before, NOW)) == ()
    assert settle(resource(), passing, NOW).status == resource().status


def test_a_long_message_is_cut() -> None:
    status = after(ENDLESS).status
    ready = find(status, "Ready")
    assert ready is not None
    assert len(ready["message"]) == MESSAGE_CHARACTERS


# -- any sequence --------------------------------------------------------------------------------------------

texts = st.text("ab", min_size=1, max_size=3)
details = st.sampled_from([(), (DETAIL,), (Condition("Complete", "False", "Held", "one"),)])
given_fields = st.dictionaries(st.sampled_from(["artifact", "attempted"]), texts | st.none(), max_size=2)
fields = given_fields.map(Own.model_validate)
outcomes = st.one_of(
    st.builds(Done, texts),
    st.builds(Failed, texts, texts),
    st.builds(Stalled, texts, texts),
    st.builds(Waiting, texts, texts),
)
results = st.builds(Result, outcomes, status=fields, details=details)


@dataclass(frozen=True)
class Step:
    """What happens to an object: the user writes, asks, or both; then it is reconciled, slowly or not."""

    edited: bool
    asked: str | None
    slow: bool
    result: Result


steps = st.lists(st.builds(Step, st.booleans(), st.none() | texts, st.booleans(), results), max_size=8)


def check_under_way(found: Resource) -> None:
    conditions = {each["type"]: each for each in found.status["conditions"]}
    assert "Ready" in conditions, "FAIL2"
    assert conditions["Reconciling"]["status"] == "True", "FAIL11"
    assert "Stalled" not in conditions, "FAIL5"
    assert all(each["observedGeneration"] <= found.generation for each in conditions.values())
    if conditions["Ready"]["status"] == "True":
        assert found.status["observedGeneration"] == found.generation, "FAIL7"


def check_final(found: Resource, settled: Settled) -> None:
    status = settled.status
    conditions = {each["type"]: each for each in status["conditions"]}
    assert len(conditions) == len(status["conditions"])
    ready, abnormal = conditions["Ready"], {"Reconciling", "Stalled"} & conditions.keys()
    assert len(abnormal) <= 1, "FAIL5"
    assert all(conditions[each]["status"] == "True" for each in abnormal), "WARN3, WARN4"
    assert (ready["status"] == "True") is not bool(abnormal), "FAIL1, FAIL3, FAIL4"
    assert ready["status"] != "Unknown", "FAIL11"
    assert status["observedGeneration"] == found.generation, "FAIL6, FAIL7"
    generations = {each["observedGeneration"] for each in conditions.values()}
    assert generations == {found.generation}, "FAIL8, FAIL9, WARN5"
    assert not abnormal or conditions[abnormal.pop()]["message"] == ready["message"], "WARN2"
    assert None not in status.values()


@settings(max_examples=200)
@given(steps)
def test_after_any_history_the_conditions_keep_fluxs_rules(steps: list[Step]) -> None:
    found, now = resource(), NOW
    for step in steps:
        now += timedelta(minutes=1)
        asked = {REQUESTED_AT: step.asked} if step.asked is not None else {}
        found = replace(found, generation=found.generation + step.edited, annotations=asked)
        if step.slow:
            found = replace(found, status=progressing_status(found, "working", now))
            check_under_way(found)
        settled = settle(found, step.result, now)
        check_final(found, settled)
        found = replace(found, status=settled.status)
        again = settle(found, step.result, now + timedelta(minutes=1))
        assert again.status == settled.status
        if step.asked is not None:
            assert settled.status["lastHandledReconcileAt"] == step.asked
