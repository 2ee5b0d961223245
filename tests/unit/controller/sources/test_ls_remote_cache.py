from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from controller.api.addresses import parse_location
from controller.runtime.limits import Places
from controller.runtime.setbacks import Failed
from controller.sources.freshness import SHARED, Freshness
from controller.sources.git_credentials import Credentials
from controller.sources.git_listing import LsRemoteCache
from controller.sources.git_program import BrokenMirrorError, GitProgram

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TURN = Freshness(NOW, NOW - SHARED)


@dataclass(frozen=True)
class Program:
    """Lists one reference, or fails as set, and counts."""

    url: str = "https://h/r"
    credentials: Credentials | None = None
    asked: list[int] = field(default_factory=list, compare=False)
    failing: list[Exception] = field(default_factory=list, compare=False)
    gate: asyncio.Event = field(default_factory=asyncio.Event, compare=False)

    @property
    def location(self) -> Any:
        return parse_location(self.url)

    async def list_references(self, *_: str) -> str:
        self.asked.append(1)
        number = len(self.asked)
        await self.gate.wait()
        if self.failing:
            raise self.failing[0]
        return f"{number:040d}\trefs/heads/main\n"


@pytest.fixture
def listings() -> LsRemoteCache:
    return LsRemoteCache(Places(4))


@pytest.fixture
def program() -> Program:
    open_gate = Program()
    open_gate.gate.set()
    return open_gate


async def ask(
    listings: LsRemoteCache, program: Program, look: Freshness = TURN, *patterns: str, by: str = "apps"
) -> int:
    """The number of the listing that answered."""
    found = await listings.references(cast("GitProgram", program), patterns, look, by)
    assert found.head is None
    return int(found.commits["refs/heads/main"])


async def test_a_clock_that_is_set_back_keeps_no_listing(listings: LsRemoteCache, program: Program) -> None:
    ahead = NOW + timedelta(days=100)
    assert await ask(listings, program, Freshness(ahead, ahead)) == 1
    assert [await ask(listings, program, Freshness(NOW, NOW)) for _ in range(2)] == [2, 2]


async def test_scheduled_looks_share_one_listing(listings: LsRemoteCache, program: Program) -> None:
    assert [await ask(listings, program) for _ in range(5)] == [1] * 5
    later = NOW + SHARED
    assert await ask(listings, program, Freshness(later, later - SHARED)) == 1


@pytest.mark.parametrize("older", [timedelta(microseconds=1), timedelta(hours=1)])
async def test_a_listing_that_is_too_old_is_made_anew(
    listings: LsRemoteCache, program: Program, older: timedelta
) -> None:
    await ask(listings, program)
    later = NOW + SHARED + older
    assert await ask(listings, program, Freshness(later, later - SHARED)) == 2


async def test_a_request_for_the_newest_gets_a_listing_that_began_after_it(
    listings: LsRemoteCache, program: Program
) -> None:
    await ask(listings, program)
    later = NOW + timedelta(milliseconds=1)
    assert await ask(listings, program, Freshness(later, later)) == 2
    assert await ask(listings, program, Freshness(later, later - SHARED)) == 2


async def test_other_askers_and_other_questions_are_answered_apart(
    listings: LsRemoteCache, program: Program
) -> None:
    other = Program(credentials=Credentials("me", "x"), gate=program.gate)
    elsewhere = Program("https://h/other", gate=program.gate)
    for each in (program, other, elsewhere):
        assert await ask(listings, each) == 1
    assert await ask(listings, program, TURN, "--heads") == 2


async def test_requests_during_a_listing_wait_for_its_answer(
    listings: LsRemoteCache, program: Program
) -> None:
    program.gate.clear()
    waiting = [asyncio.ensure_future(ask(listings, program)) for _ in range(5)]
    await asyncio.sleep(0)
    program.gate.set()
    assert await asyncio.gather(*waiting) == [1] * 5


@pytest.mark.parametrize(("scheduled", "which"), [(True, 1), (False, 2)])
async def test_a_remote_that_does_not_answer_is_asked_once_by_scheduled_looks(
    listings: LsRemoteCache, program: Program, scheduled: bool, which: int
) -> None:
    program.gate.clear()
    first = asyncio.ensure_future(ask(listings, program))
    await asyncio.sleep(0)
    later = NOW + timedelta(seconds=30)
    look = Freshness(later, later - SHARED, scheduled)
    second = asyncio.ensure_future(ask(listings, program, look))
    await asyncio.sleep(0)
    program.gate.set()
    await first
    assert await second == which


async def test_another_namespace_waits_for_a_listing_only_once_that_is_under_way(
    listings: LsRemoteCache, program: Program
) -> None:
    slow = [Program(f"https://h/{number}") for number in range(2)]
    hung = [asyncio.ensure_future(ask(listings, each)) for each in slow]
    waits = asyncio.ensure_future(ask(listings, program))
    await asyncio.sleep(0)
    assert await ask(listings, program, by="other") == 1
    assert not waits.done()
    assert await ask(listings, program, by="third") == 1
    for each in slow:
        each.gate.set()
    assert await asyncio.gather(*hung, waits) == [1, 1, 2]


async def test_a_cancelled_caller_leaves_the_answer_to_the_others(
    listings: LsRemoteCache, program: Program
) -> None:
    program.gate.clear()
    first = asyncio.ensure_future(ask(listings, program))
    second = asyncio.ensure_future(ask(listings, program))
    await asyncio.sleep(0)
    first.cancel()
    program.gate.set()
    assert await second == 1


async def test_a_failure_is_everybodys_but_each_has_its_own(
    listings: LsRemoteCache, program: Program
) -> None:
    program.failing.append(Failed("AuthenticationFailed", "no"))
    errors = await asyncio.gather(*(ask(listings, program) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in errors] == ["no"] * 3
    assert len({id(each) for each in errors}) == 3
    assert len(program.asked) == 1


async def test_a_failure_without_a_waiting_caller_logs_nothing(
    listings: LsRemoteCache, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.gate.clear()
    program.failing.append(Failed("Timeout", "no"))
    given_up = asyncio.ensure_future(ask(listings, program))
    await asyncio.sleep(0)
    given_up.cancel()
    program.gate.set()
    with pytest.raises(Failed):
        await ask(listings, program)
    listings.forget()
    assert not caplog.records


async def test_what_reads_like_damage_is_the_remotes(listings: LsRemoteCache, program: Program) -> None:
    program.failing.append(BrokenMirrorError("bad object"))
    with pytest.raises(Failed, match="https://h/r: its references cannot be read: bad object"):
        await ask(listings, program)


async def test_what_is_of_no_use_any_more_is_let_go(listings: LsRemoteCache, program: Program) -> None:
    for number in range(20):
        now = NOW + number * 2 * SHARED
        each = Program(f"https://h/{number}", gate=program.gate)
        await ask(listings, each, Freshness(now, now - SHARED))
    assert len(listings) == 1
