"""Paths, and how much a receiver takes."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.meta import ObjectKey
from controller.events.webhook_server import (
    BURST,
    PER_SECOND,
    REMEMBERED,
    WINDOW,
    Endpoint,
    Endpoints,
    ReplayGuard,
    webhook_path,
)
from tests.worlds.events import OLD, TOKEN

KEY = ObjectKey("FlagReceiver", "shop", "push")


def endpoint(*tokens: bytes, key: ObjectKey = KEY) -> Endpoint:
    return Endpoint(key, "github", tokens)


def test_a_path_depends_on_token_namespace_and_name() -> None:
    keys = [KEY, ObjectKey("FlagReceiver", "shop", "other"), ObjectKey("FlagReceiver", "sho", "p/push")]
    paths = {webhook_path(token, key) for token in (TOKEN, OLD) for key in keys}
    assert len(paths) == 6
    assert all(re.fullmatch(r"/hook/[0-9a-f]{64}", path) for path in paths)


def test_both_tokens_paths_are_answered_and_those_of_older_ones_are_not() -> None:
    endpoints = Endpoints()
    endpoints.open(endpoint(b"oldest"))
    endpoints.open(endpoint(TOKEN, OLD))
    found = [endpoints.find(webhook_path(token, KEY)) for token in (TOKEN, OLD, b"oldest")]
    assert [each is not None for each in found] == [True, True, False]


def test_closing_forgets_only_its_own_tokens() -> None:
    endpoints, other = Endpoints(), ObjectKey("FlagReceiver", "shop", "other")
    endpoints.open(endpoint(TOKEN))
    endpoints.open(endpoint(TOKEN, key=other))
    endpoints.close(KEY)
    endpoints.close(KEY)
    assert endpoints.find(webhook_path(TOKEN, KEY)) is None
    assert endpoints.find(webhook_path(TOKEN, other)) is not None


def test_a_token_is_not_printed() -> None:
    assert TOKEN.decode() not in repr(endpoint(TOKEN))


def test_deliveries_are_remembered_when_the_receiver_reopens() -> None:
    endpoints = Endpoints()
    endpoints.open(endpoint(TOKEN))
    endpoints.guard(KEY).take("a", 0.0)
    endpoints.open(endpoint(TOKEN, OLD))
    assert endpoints.guard(KEY).is_replay("a", 1.0)


def test_a_delivery_is_a_replay_within_the_window_only() -> None:
    guard = ReplayGuard()
    guard.take("a", 100.0)
    assert guard.is_replay("a", 100.0 + WINDOW - 1)
    assert not guard.is_replay("a", 100.0 + WINDOW)
    assert not guard.is_replay("b", 100.0)


def test_more_than_a_burst_waits_and_what_waited_is_no_replay() -> None:
    guard = ReplayGuard()
    taken = [guard.take(str(number), 0.0) for number in range(int(BURST) + 1)]
    assert taken[:-1] == [0.0] * int(BURST)
    assert taken[-1] == 1 / PER_SECOND
    assert not guard.is_replay(str(int(BURST)), 0.0)
    assert guard.take(str(int(BURST)), taken[-1]) == 0.0


@settings(max_examples=30)
@given(st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_deliveries_beyond_the_rate_wait(pauses: list[float]) -> None:
    guard, now, taken = ReplayGuard(), 0.0, 0
    for number, pause in enumerate(pauses):
        now += pause
        taken += guard.take(str(number), now) == 0.0
    assert taken <= BURST + sum(pauses) * PER_SECOND + 1


def test_remembered_deliveries_are_bounded() -> None:
    guard = ReplayGuard()
    for number in range(REMEMBERED + 10):
        guard.take(str(number), number / PER_SECOND / 10 + number)
    assert not guard.is_replay("0", 0.0)
    assert guard.is_replay(str(REMEMBERED + 9), 0.0)
