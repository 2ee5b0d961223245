"""What remotes point at, listed once where many sources follow the same remote with the same identity."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled
from controller.sources.freshness import SHARED
from controller.sources.git_cli.git_program import BrokenMirrorError
from controller.sources.git_cli.git_references import parse

if TYPE_CHECKING:
    from datetime import datetime

    from controller.runtime.tenancy.places import Places
    from controller.sources.freshness import Freshness
    from controller.sources.git_cli.git_program import GitProgram
    from controller.sources.git_cli.git_references import References

_Question: TypeAlias = "tuple[GitProgram, tuple[str, ...]]"


@dataclass(frozen=True, slots=True)
class _Listing:
    began: datetime
    answer: asyncio.Task[References | Setback]
    """Returns setbacks: kopf takes a task that raises while it stops for a failure of the process."""
    namespace: str
    """The one in whose turn it runs."""
    running: asyncio.Event

    def serves(self, freshness: Freshness, namespace: str) -> bool:
        # Another namespace may have to wait much longer for its turn.
        if namespace != self.namespace and not self.running.is_set():
            return False
        # A remote that does not answer is asked by one of its sources at a time, and not by all.
        return self.began >= freshness.since or (freshness.scheduled and not self.answer.done())


@dataclass(slots=True)
class LsRemoteCache:
    """The latest listing of each remote, for as long as it may be shared. Belongs to one event loop."""

    places: Places
    _latest: dict[_Question, _Listing] = field(default_factory=dict)

    async def references(
        self, program: GitProgram, options: tuple[str, ...], freshness: Freshness, namespace: str
    ) -> References:
        """The remote's references, asked for now or shared with another source. Raises `Setback`."""
        self._clear(freshness.now)
        question = (program, options)
        known = self._latest.get(question)
        if known is None or not known.serves(freshness, namespace):
            running = asyncio.Event()
            task = asyncio.create_task(self._ask(question, namespace, running))
            known = self._latest[question] = _Listing(freshness.now, task, namespace, running)
        # A caller that is cancelled while it waits must not cancel the others' answer.
        answer = await asyncio.shield(known.answer)
        if isinstance(answer, Setback):
            # Each who waited gets an exception of its own, with its own traceback and cause.
            raise (Stalled if isinstance(answer, Stalled) else Failed)(answer.reason, answer.message)
        return answer

    async def _ask(self, question: _Question, namespace: str, running: asyncio.Event) -> References | Setback:
        program, options = question
        try:
            async with self.places.place(namespace):
                running.set()
                listing = await program.list_references(*options)
            return await parse(listing, program.location.shown)
        except BrokenMirrorError as error:
            # There is no mirror in a listing: what reads like damage here is the remote's.
            message = f"{program.location.shown}: its references cannot be read: {error}"
            return Failed("GitOperationFailed", message)
        except Setback as setback:
            return setback

    def __len__(self) -> int:
        """The number of listings that are kept or asked for."""
        return len(self._latest)

    def forget(self) -> None:
        """Drop all answers but those that callers wait for: a question holds credentials."""
        for question, listing in tuple(self._latest.items()):
            if listing.answer.done():
                del self._latest[question]

    async def close(self) -> None:
        """Cancel what is asked, with the programs that ask."""
        tasks = [listing.answer for listing in self._latest.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _clear(self, now: datetime) -> None:
        for question, listing in tuple(self._latest.items()):
            # One that began later than now began before the clock was set back.
            if listing.answer.done() and abs(now - listing.began) > SHARED:
                del self._latest[question]
