"""Clients that ping: as often as gRPC's keepalive does, at the most that is allowed, in a flood, and without
reading what comes back.
"""

from __future__ import annotations

from typing import Any

import pytest

from evaluator.http import h2_frames
from evaluator.http.h2_frames import Http2ErrorCode, frame
from evaluator.http.h2_streams import EARNED
from evaluator.http.limits import Limits
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.test_http2 import Subscriber, Subscriptions, kinds

PING = frame(h2_frames.PING, 0, 0, b"keepaliv")
ACKED = frame(h2_frames.PING, h2_frames.ACK, 0, b"keepaliv")
LIMITS = Limits(idle_seconds=120)
MOST = LIMITS.resets_per_second
FLOOD = MOST + EARNED + 1
"""A stream's headers earn its client some."""


def subscribe(limits: Limits = LIMITS) -> tuple[Subscriptions, Subscriber]:
    """A subscriber that nothing changes for."""
    subscriptions = Subscriptions(limits)
    return subscriptions, subscriptions.subscribe(1)


def later(subscriptions: Subscriptions, seconds: float = 1.0) -> bytes:
    """What is said in a moment in which nothing comes."""
    line = subscriptions.line
    line.now += seconds
    line.peer.sweep(line.now)
    return line.pipe.take()


@pytest.mark.parametrize(
    ("pings", "seconds"),
    [(1, 30.0), (1, 10.0), (1, 1.0), (MOST, 1.0)],
    ids=["flagd and its providers", "the least that gRPC allows", "each second", "all that may"],
)
def test_pings_on_an_idle_stream_are_answered_and_disconnect_no_client(pings: int, seconds: float) -> None:
    subscriptions, subscriber = subscribe()
    received = b"".join(
        subscriptions.line.feed(PING * pings) + later(subscriptions, seconds) for _ in range(1000)
    )
    assert received == ACKED * pings * 1000
    assert subscriptions.publish(1) == [b"1"]
    assert subscriber.ends == 0


def test_a_client_that_only_pings_is_asked_for_no_sign_of_life() -> None:
    subscriptions, _ = subscribe()
    silent, _ = subscribe()
    assert h2_frames.PING in kinds(b"".join(later(silent, 30) for _ in range(4)))
    for _ in range(100):
        assert subscriptions.line.feed(PING) == ACKED
        assert later(subscriptions, 30) == b""


@pytest.mark.parametrize("pieces", [1, FLOOD], ids=["at once", "one by one"])
def test_a_flood_of_pings_is_answered_with_enhance_your_calm_and_ends_its_own_connection_only(
    pieces: int,
) -> None:
    subscriptions, subscriber = subscribe()
    other, bystander = subscribe()
    flood = [PING * (FLOOD // pieces)] * pieces
    answers = list(wire.parse_frames(subscriptions.line.feed(*flood)))
    assert [kind for kind, *_ in answers].count(h2_frames.PING) < FLOOD
    kind, _, _, payload = answers[-1]
    assert (kind, payload[4:8]) == (h2_frames.GOAWAY, Http2ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4))
    assert (subscriptions.line.over(), subscriber.ends) == (True, 1)
    assert (other.publish(1), bystander.ends) == ([b"1"], 0)


def test_a_client_that_pings_and_reads_no_answer_is_read_no_more_and_disconnected() -> None:
    subscriptions, _ = subscribe()
    line = subscriptions.line
    line.pipe.fills_after = 2 * MOST * len(ACKED)
    for _ in range(2):
        line.peer.data_received(PING * MOST)
        line.now += 1
        line.peer.sweep(line.now)
    line.pipe.waiting = len(line.pipe.written)
    assert (line.pipe.waiting, line.pipe.reading) == (2 * MOST * len(ACKED), False)
    for _ in range(5):
        later(subscriptions, 30)
    assert line.pipe.aborted


def last_answer_to_pings(pings: int, every: float, *, streams: bool = True, **limits: Any) -> bytes:
    """The last of what is said to a client that pings so often."""
    subscriptions = Subscriptions(Limits(**limits))
    if streams:
        subscriptions.subscribe(1)
    said = b""
    for _ in range(pings):
        said = subscriptions.line.feed(PING)
        subscriptions.line.now += every
    return said


LEAST: dict[str, Any] = {"ping_seconds": 30.0}
ALONE: dict[str, Any] = {"streams": False}
FORBIDDEN: dict[str, Any] = {**LEAST, "pings_without_stream": False}


@pytest.mark.parametrize(
    ("pings", "every", "how"),
    [
        pytest.param(3, 1.0, LEAST, id="two early ones"),
        pytest.param(99, 30.0, LEAST, id="in time"),
        pytest.param(99, 29.9, LEAST, id="all but in time"),
        pytest.param(99, 30.0, {**LEAST, **ALONE}, id="without a stream"),
        pytest.param(99, 7_200.0, {**FORBIDDEN, **ALONE}, id="rarely, without a stream"),
        pytest.param(99, 30.0, FORBIDDEN, id="with the stream that is asked for"),
        pytest.param(99, 1.0, {}, id="where nothing is set"),
    ],
)
def test_a_client_that_pings_as_it_may_is_answered(pings: int, every: float, how: dict[str, Any]) -> None:
    assert last_answer_to_pings(pings, every, **how) == ACKED


@pytest.mark.parametrize(
    ("every", "how"),
    [
        pytest.param(1.0, LEAST, id="too often"),
        pytest.param(26.0, LEAST, id="a little too often"),
        pytest.param(30.0, {**FORBIDDEN, **ALONE}, id="without the stream that is asked for"),
    ],
)
def test_the_third_early_ping_in_a_row_ends_the_connection_in_grpcs_words(
    every: float, how: dict[str, Any]
) -> None:
    *_, (kind, _, _, payload) = wire.parse_frames(last_answer_to_pings(4, every, **how))
    assert (kind, payload[4:8]) == (h2_frames.GOAWAY, Http2ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4))
    assert payload[8:] == b"too_many_pings"


def test_an_answer_between_pings_forgives_the_early_ones() -> None:
    subscriptions, _ = subscribe(Limits(ping_seconds=30.0))
    for state in range(1, 50):
        assert h2_frames.GOAWAY not in kinds(subscriptions.line.feed(PING))
        assert subscriptions.publish(state) == [b"%d" % state]


def test_each_connection_is_counted_for_itself() -> None:
    (calm, _), (eager, _) = (subscribe(Limits(ping_seconds=30.0)), subscribe(Limits(ping_seconds=30.0)))
    eager.line.feed(*[PING] * 4)
    assert (eager.line.over(), calm.line.feed(PING), calm.line.over()) == (True, ACKED, False)
