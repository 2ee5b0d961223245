"""What remotes point at, asked for once where many sources follow the same remote as the same identity."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.runtime.setbacks import Failed, Setback
from controller.sources.program import BrokenMirrorError
from controller.sources.repository import parse_listing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from controller.sources.program import GitProgram
    from controller.sources.threads import GitThreads

SHARED: Final = timedelta(seconds=1)
"""How old a listing may be for a source that looks in its turn, and not because somebody asked it to."""

References: TypeAlias = "tuple[Mapping[str, str], str | None]"
"""As `choose` takes them."""
_Asked: TypeAlias = "tuple[GitProgram, tuple[str, ...]]"


@dataclass(frozen=True, slots=True)
class Look:
    """When a source is looked at, and how new what it is told must be. Both aware."""

    now: datetime
    since: datetime
    """Of what was so before this, nothing may be told."""
    in_turn: bool = False
    """Nobody asked for the look: it may also wait for an answer that another has been waiting for longer."""


@dataclass(frozen=True, slots=True)
class _Listing:
    began: datetime
    answer: asyncio.Task[References | Setback]
    """A setback is returned: what a task raises while kopf stops, kopf takes for a failure of the process."""
    namespace: str
    """Whose turn it waits for."""
    running: threading.Event
    """Set once it waits no more."""

    def serves(self, look: Look, namespace: str) -> bool:
        # Another namespace may have to wait much longer for its turn.
        if namespace != self.namespace and not self.running.is_set():
            return False
        # A remote that does not answer is asked by one of its sources at a time, and not by all.
        return self.began >= look.since or (look.in_turn and not self.answer.done())


@dataclass(slots=True)
class Listings:
    """The latest listing of each remote, for as long as it is worth something; belongs to one loop."""

    threads: GitThreads
    _latest: dict[_Asked, _Listing] = field(default_factory=dict)

    async def references(
        self, program: GitProgram, patterns: tuple[str, ...], look: Look, namespace: str
    ) -> References:
        """`program.list_references(*patterns)` for a source of `namespace`, or what another was told by it since. Raises `Setback`."""
        self._clear(look.now)
        asked = (program, patterns)
        known = self._latest.get(asked)
        if known is None or not known.serves(look, namespace):
            running = threading.Event()
            task = asyncio.create_task(self._ask(asked, namespace, running))
            known = self._latest[asked] = _Listing(look.now, task, namespace, running)
        # Who gives up waiting takes the answer from nobody else.
        answer = await asyncio.shield(known.answer)
        if isinstance(answer, Setback):
            # Each who waited gets one of its own: what is true of one object is added to it.
            raise type(answer)(answer.reason, answer.message)
        return answer

    async def _ask(
        self, asked: _Asked, namespace: str, running: threading.Event
    ) -> References | Setback:
        program, patterns = asked

        def ask() -> str:
            running.set()
            return program.list_references(*patterns)

        try:
            return parse_listing(await self.threads.run(namespace, ask))
        except BrokenMirrorError as error:
            # There is no mirror in a listing: what reads like damage here is the remote's.
            message = f"{program.location.shown}: its references cannot be read: {error}"
            return Failed("GitOperationFailed", message)
        except Setback as setback:
            return setback

    def forget(self) -> None:
        """Keep no answers but those that somebody waits for: with each its question is kept, and credentials are a part of that."""
        for asked, listing in tuple(self._latest.items()):
            if listing.answer.done():
                del self._latest[asked]

    def _clear(self, now: datetime) -> None:
        for asked, listing in tuple(self._latest.items()):
            if listing.answer.done() and now - listing.began > SHARED:
                del self._latest[asked]
