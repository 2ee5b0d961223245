from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.http.messages import Headers, Request, Response
from evaluator.server.context import ContextSources
from evaluator.server.rollout_metrics import MOST_EVENTS
from evaluator.server.track import LONGEST_NAME, MOST_BYTES, Tracking
from tests.rollout_sets import NEW, PLAIN, flags, rolled_out
from tests.stores import swap
from tests.unit.evaluator.server.test_management import samples
from tests.unit.evaluator.server.test_ofrep import post as evaluate
from tests.worlds.evaluator import NOW, World, answer_of, world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evaluator.flags.model import FlagSet

USERS = [f"user-{number}" for number in range(200)]


def serve_flags(flag_set: FlagSet, sources: ContextSources | None = None) -> World:
    served = world(sources=sources)
    swap(served.store, flag_set, now=NOW)
    return served


def track(
    served: World, body: Any, *, events: Sequence[str] = (), headers: Headers = ()
) -> tuple[int, dict[str, Any]]:
    tracking = Tracking(served.service, served.metrics.rollouts, events)
    encoded = body if isinstance(body, bytes) else orjson.dumps(body)
    request = Request("POST", "/track", "", headers, encoded, "127.0.0.1:1")
    answer = tracking.routes().http["POST", "/track"](request)
    response = answer_of(answer)
    assert isinstance(response, Response)
    return response.status, orjson.loads(response.body)


def event(user: str | None = "user-1", name: str = "pay-failed", **more: Any) -> dict[str, Any]:
    context = {} if user is None else {"targetingKey": user}
    return {"trackingEventName": name, "context": context, **more}


@pytest.fixture(scope="module")
def half() -> World:
    return serve_flags(rolled_out(50))


def counts_of(served: World, metric: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by arm and event."""
    values = {}
    for (name, labels), value in samples(served).items():
        if name == metric and value:
            found = dict(labels)
            values[found["arm"], found.get("event", "")] = value
    return values  # type: ignore[return-value] # of tuples of two


def test_an_event_counts_for_the_arm_that_the_same_user_is_served() -> None:
    served = serve_flags(rolled_out(50))
    for user in USERS:
        _, answer = evaluate(served, NEW.key, {"context": {"targetingKey": user}})
        status, counts = track(served, event(user))
        arm = answer["metadata"]["flagstaff.dev/rollout-arm"]
        assert (status, counts) == (200, {"flags": [{"key": NEW.key, "arm": arm}]})
    events = counts_of(served, "feature_flag_events_total")
    evaluations = {
        (arm, "pay-failed"): value
        for (arm, _), value in counts_of(served, "feature_flag_evaluations_total").items()
    }
    assert events == evaluations
    assert sum(events.values()) == len(USERS)


def test_an_event_without_targeting_key_counts_as_excluded() -> None:
    served = serve_flags(rolled_out(50))
    track(served, event(None))
    assert counts_of(served, "feature_flag_events_total") == {("excluded", "pay-failed"): 1}


def test_an_event_counts_for_no_flag_outside_of_rollouts() -> None:
    served = serve_flags(flags(NEW, PLAIN))
    assert track(served, event()) == (200, {"flags": []})
    assert counts_of(served, "feature_flag_events_total") == {}


def test_a_value_is_added_to_its_arm() -> None:
    served = serve_flags(rolled_out(100))
    for value in (1, 2.5, -0.5):
        track(served, event(trackingEventDetails={"value": value, "currency": "EUR"}))
    track(served, event())
    assert counts_of(served, "feature_flag_event_value_sum") == {("candidate", "pay-failed"): 3.0}
    assert counts_of(served, "feature_flag_event_value_count") == {("candidate", "pay-failed"): 3}
    assert counts_of(served, "feature_flag_events_total") == {("candidate", "pay-failed"): 4}


def test_what_the_operator_adds_to_contexts_counts() -> None:
    served = serve_flags(
        rolled_out(0, audiences=({"==": [{"var": "country"}, "NL"]},)),
        ContextSources(headers={"x-country": "country"}),
    )
    track(served, event(), headers=(("x-country", "NL"),))
    track(served, event(), headers=(("x-country", "BE"),))
    assert counts_of(served, "feature_flag_events_total") == {
        ("candidate", "pay-failed"): 1,
        ("baseline", "pay-failed"): 1,
    }


def test_a_late_event_counts_for_the_arm_of_its_time() -> None:
    served = world()
    swap(served.store, rolled_out(0, step=""), now=NOW - 120)
    swap(served.store, rolled_out(100), now=NOW - 60)
    track(served, event(timestamp="2023-11-14T22:11:50Z"))
    track(served, event(timestamp="2023-11-14T22:12:50+00:00"))
    track(served, event())
    assert counts_of(served, "feature_flag_events_total") == {
        ("baseline", "pay-failed"): 1,
        ("candidate", "pay-failed"): 2,
    }


def test_an_event_after_a_rollback_still_counts_for_the_candidate() -> None:
    served = world()
    swap(served.store, rolled_out(100), now=NOW - 120)
    swap(served.store, flags(PLAIN, NEW), now=NOW - 60)
    assert track(served, event())[1] == {"flags": [{"key": NEW.key, "arm": "candidate"}]}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "context is not valid"),
        (b"[]", 400, "context is not valid"),
        ({}, 400, "trackingEventName must be a text of 1 to 100 printable characters"),
        ({"trackingEventName": ""}, 400, "trackingEventName must be"),
        ({"trackingEventName": 7}, 400, "trackingEventName must be"),
        ({"trackingEventName": "a\nb"}, 400, "trackingEventName must be"),
        ({"trackingEventName": "x" * (LONGEST_NAME + 1)}, 400, "trackingEventName must be"),
        ({"trackingEventName": "a", "context": 0}, 400, "context must be an object"),
        ({"trackingEventName": "a", "context": []}, 400, "context must be an object"),
        (
            {"trackingEventName": "a", "trackingEventDetails": 5},
            400,
            "trackingEventDetails must be an object",
        ),
        (event(trackingEventDetails={"value": "5"}), 400, "must be a number"),
        (event(trackingEventDetails={"value": True}), 400, "must be a number"),
        (event(timestamp="yesterday"), 400, "timestamp must be a time with its zone"),
        (event(timestamp="2026-01-02T03:04:05"), 400, "timestamp must be a time with its zone"),
        (event(timestamp=5), 400, "timestamp must be a time with its zone"),
        (event("x" * MOST_BYTES), 413, "at most 65,536 bytes"),
        ({"trackingEventName": "a", "context": {"n": [0] * 20_000}}, 400, "more than 10,000 values"),
    ],
)
def test_a_bad_event_is_refused_in_plain_words(body: Any, status: int, words: str) -> None:
    served = serve_flags(rolled_out(50))
    answered, answer = track(served, body)
    assert answered == status
    assert words in answer["errorDetails"]
    assert "user-1" not in answer["errorDetails"]
    assert counts_of(served, "feature_flag_events_total") == {}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.datetimes(timezones=st.timezones()).map(str),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
fields = {"trackingEventName": st.just("a"), "context": values}
late = {"trackingEventDetails": values | st.fixed_dictionaries({"value": values}), "timestamp": values}


@settings(max_examples=300)
@given(st.fixed_dictionaries(fields, optional=late).map(json.dumps).map(str.encode) | st.binary())
def test_whatever_is_sent_is_counted_or_refused(half: World, body: bytes) -> None:
    assert track(half, body)[0] in (200, 400)


def test_before_there_are_flags_an_event_is_refused() -> None:
    assert track(world(), event())[0] == 503


def test_the_number_of_different_events_is_bounded() -> None:
    served = serve_flags(rolled_out(50))
    answers = [track(served, event(name=f"event-{number}")) for number in range(MOST_EVENTS + 5)]
    assert [status for status, _ in answers] == [200] * MOST_EVENTS + [429] * 5
    assert "50 different events" in answers[-1][1]["errorDetails"]
    assert len(counts_of(served, "feature_flag_events_total")) == MOST_EVENTS
    assert track(served, event(name="event-0"))[0] == 200


def test_an_event_begins_at_zero_in_both_arms_once_its_flag_is_in_a_rollout() -> None:
    served = serve_flags(flags(NEW, PLAIN))
    track(served, event())
    assert not [name for name, _ in samples(served) if name == "feature_flag_events_total"]
    swap(served.store, rolled_out(50), now=NOW + 60)
    begun = {
        dict(labels)["arm"]: value
        for (name, labels), value in samples(served).items()
        if name == "feature_flag_events_total"
    }
    assert begun == {"candidate": 0, "baseline": 0}


def test_names_that_count_for_nothing_make_room_for_others() -> None:
    served = serve_flags(flags(NEW, PLAIN))
    assert {track(served, event(name=f"event-{number}"))[0] for number in range(2 * MOST_EVENTS)} == {200}


def test_only_the_events_that_are_named_count() -> None:
    served = serve_flags(rolled_out(50))
    status, answer = track(served, event(), events=("paid",))
    assert status == 400
    assert "`pay-failed` is not counted here" in answer["errorDetails"]
    assert track(served, event(name="paid"), events=("paid",))[0] == 200
    assert track(served, event(name="other"), events=("*",))[0] == 200


def test_metrics_hold_nothing_of_a_user() -> None:
    served = serve_flags(rolled_out(50))
    body = {"targetingKey": "jane@example.com", "email": "jane@example.com"}
    evaluate(served, NEW.key, {"context": body})
    track(served, {"trackingEventName": "paid", "context": body})
    assert b"jane" not in served.metrics.text()
