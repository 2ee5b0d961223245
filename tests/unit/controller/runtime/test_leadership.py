"""What a replica does while it leads, and the label that shows it to others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from controller.runtime.process import Leadership, Role
from controller.runtime.setbacks import Failed
from tests.waiting import run_beside, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass
class Labels:
    """The label of a pod, behind an API server that may fail."""

    errors: list[Exception] = field(default_factory=list)
    """Raised first, one a call."""
    calls: list[bool] = field(default_factory=list)

    async def set(self, leading: bool) -> None:
        self.calls.append(leading)
        if self.errors:
            raise self.errors.pop(0)


@dataclass
class Votes:
    """An election that is won when the test says so."""

    won: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    released: int = 0
    expired: bool = False

    def holds(self) -> bool:
        return not self.expired

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.won.wait()
            self.won.clear()
            async with run_beside(work()):
                await self.lost.wait()
                self.lost.clear()

    async def release(self) -> None:
        self.released += 1


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_replica_works_while_it_is_elected_and_bears_the_label() -> None:
    role, votes, labels = Role(), Votes(), Labels()
    async with run_beside(Leadership(role, votes, labels.set, again=0.001).run(for_ever)):
        # A process before us may have left the label on our pod.
        await until(lambda: labels.calls == [False])
        votes.won.set()
        await until(lambda: labels.calls == [False, True])
        await until(lambda: role.leading)
        votes.lost.set()
        await until(lambda: not role.leading and labels.calls == [False, True, False])
    assert votes.released == 1


async def test_a_single_replica_leads_without_an_election() -> None:
    role = Role()
    async with run_beside(Leadership(role, None, None, again=0.001).run(for_ever)):
        await until(lambda: role.leading)
    assert not role.leading


@pytest.mark.parametrize("error", [Failed("ApiServerUnavailable", "no"), KeyError("odd")], ids=repr)
async def test_a_label_that_could_not_be_set_is_set_later(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    role, labels = Role(), Labels([error, error])
    async with run_beside(Leadership(role, Votes(), labels.set, again=0.001).run(for_ever)):
        await until(lambda: len(labels.calls) >= 3)
        await asyncio.sleep(0.05)
    assert labels.calls == [False] * 3
    assert caplog.text


async def test_work_that_fails_is_done_again() -> None:
    done = 0

    async def work() -> None:
        nonlocal done
        done += 1
        if done < 3:
            raise RuntimeError("nobody foresaw this")
        await for_ever()

    async with run_beside(Leadership(Role(), None, None, again=0.001).run(work)):
        await until(lambda: done == 3)


async def test_a_leader_whose_leadership_expired_may_not_write_though_it_was_not_told_yet() -> None:
    role, votes, labels = Role(), Votes(), Labels()
    with pytest.raises(Failed, match="leads no longer"):
        role.require_leading()
    async with run_beside(Leadership(role, votes, labels.set, again=0.001).run(for_ever)):
        votes.won.set()
        await until(lambda: role.leading)
        role.require_leading()
        votes.expired = True
        with pytest.raises(Failed, match="leads no longer") as refused:
            role.require_leading()
        assert (role.leading, refused.value.reason) == (True, "NotLeading")
