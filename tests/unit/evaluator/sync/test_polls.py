from __future__ import annotations

import asyncio

import pytest

from evaluator.sync.config import Provider, SourceConfig
from evaluator.sync.schedule import Schedule
from evaluator.sync.source import UNCHANGED
from evaluator.sync.sources.polls import Polls
from tests.unit.evaluator.sync.fakes import Clock, delivery, document


def polls() -> Polls:
    config = SourceConfig("http://h/f", Provider.HTTP, interval=10.0)
    return Polls(Schedule(config, lambda: 0.5), Clock())


async def test_the_first_answer_is_delivered_and_its_etag_kept() -> None:
    made, first = polls(), delivery(document("a"))
    assert (made.delivered, made.etag) == (False, None)
    assert await made.answered(first, '"1"') is first
    assert (made.delivered, made.etag) == (True, '"1"')


async def test_the_same_content_is_unchanged_though_its_etag_is_another() -> None:
    made = polls()
    await made.answered(delivery(document("a")), '"1"')
    assert await made.answered(delivery(document("a")), '"2"') is UNCHANGED
    assert made.etag == '"2"'


async def test_another_content_is_delivered_though_its_etag_is_the_same() -> None:
    made, second = polls(), delivery(document("b"))
    await made.answered(delivery(document("a")), '"1"')
    assert await made.answered(second, '"1"') is second


@pytest.mark.parametrize(("at_least", "expected"), [(0.0, 10.0), (5.0, 10.0), (60.0, 60.0)], ids=str)
async def test_it_waits_for_its_schedule_or_for_as_long_as_the_peer_wants(
    at_least: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await polls().pause(at_least)
    assert slept == [pytest.approx(expected)]
