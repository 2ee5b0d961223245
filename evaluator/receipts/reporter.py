"""Reports to a server what is served of a source: after each change, and periodically once it is in force.

A server that does not offer the service is asked once a connection. Whatever becomes of a receipt, serving
and following go on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from evaluator.flags.model import DIGEST_KEY, FLAG_SET_KEY, FlagSet
from evaluator.wire.delivery import LEAVE, REPORT, Ask, AskFailed, MemberText, NotOffered
from evaluator.wire.delivery_pb2 import HiddenFlag, LeaveRequest, ReportRequest, ReportResponse, ServedSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.flags.catalog import Catalog
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store
    from evaluator.sync.lastgood import LastGoodWriter

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two receipts without a change, until the server sets another period."""
_LONGEST_PERIOD: Final = 90.0
_JITTER: Final = 0.2
AGAIN: Final = 1.0
_LEAST: Final = 0.02
"""Least seconds between two receipts."""
MOST_HIDDEN: Final = 20
"""Most hidden flags that a receipt names."""
GOODBYE: Final = 1.0
"""Most seconds that a goodbye may take."""


@dataclass(frozen=True, slots=True)
class SourceServed:
    """What is served of one source."""

    digest: str = ""
    revision: str = ""
    since: float = 0.0
    """Time of the change, by the loop's clock."""
    replaced: bool = False
    """Whether it replaced another set that was delivered since the start."""


class StoreReceipts:
    """What is served of each source, as the store reports it."""

    def __init__(self, member: MemberText, *, random: Callable[[], float], again: float = AGAIN) -> None:
        """random: numbers from 0 to 1. again: seconds until a failed receipt is sent again."""
        self.member = member
        self.random = random
        self.again = again
        self._reporters: dict[str, Reporter] = {}

    def of(self, source: str, selector: str) -> Reporter:
        """Return the reporter of this source."""
        return self._reporters.setdefault(source, Reporter(self, selector))

    def follow(self, store: Store, saving: Sequence[LastGoodWriter] = ()) -> Callable[[], None]:
        """Report what this store serves from now on, and what of it cannot be saved, until the returned
        function is called.
        """
        for keeper in saving:
            if keeper.source in self._reporters:
                self._reporters[keeper.source].saving = keeper

        def on_change(_snapshot: Snapshot) -> None:
            catalog = store.catalog
            for source, reporter in self._reporters.items():
                flag_set = catalog.of_source(source)
                from_disk = store.status(source).from_disk
                reporter.serve(flag_set, catalog.digest_of(source) or "", from_disk)
                hidden = sorted(catalog.hidden_overrides.get(source, {}).items())[:MOST_HIDDEN]
                reporter.hide(
                    [
                        HiddenFlag(
                            key=key,
                            by=_origin(catalog, winner, key) or self._selector(winner),
                            flag_set=_origin(catalog, source, key),
                        )
                        for key, winner in hidden
                    ]
                )

        if (snapshot := store.snapshot) is not None:
            on_change(snapshot)
        return store.subscribe(on_change)

    def _selector(self, source: str) -> str:
        """Return what a source asks for; empty where a server could not know it."""
        return self._reporters[source].selector if source in self._reporters else ""


class Reporter:
    """Reports one source to one server."""

    def __init__(self, receipts: StoreReceipts, selector: str) -> None:
        self.served = SourceServed()
        self.saving: LastGoodWriter | None = None
        """Says what is not saved; None without a state folder."""
        self._receipts = receipts
        self.selector = selector
        self._flag_set: FlagSet | None = None
        self._hidden: list[HiddenFlag] = []
        """The flags under an override that other sources hide."""
        self._delivered = False
        self._changed = asyncio.Event()
        self._said = False
        self._taken_at: float | None = None
        """Time by the loop's clock."""
        self._period = PERIOD

    def serve(self, flag_set: FlagSet | None, digest: str, from_disk: bool) -> None:
        """Report that this set is served from now on. `digest` is computed here, of the set as delivered."""
        if flag_set is self._flag_set:
            return
        first, self._flag_set = self._flag_set is None, flag_set
        before, now = self.served, asyncio.get_running_loop().time()
        if flag_set is None:
            self.served = SourceServed(since=now)
        else:
            reported = str(flag_set.metadata.get(DIGEST_KEY, digest))
            same = reported == before.digest
            self.served = SourceServed(
                reported,
                flag_set.revision or "",
                before.since if same else now,
                before.replaced if same else self._delivered,
            )
            self._delivered = self._delivered or not (first and from_disk)
        self._changed.set()

    def hide(self, hidden: list[HiddenFlag]) -> None:
        """Report that the flags of other sources are served in place of these, which are overridden."""
        if hidden != self._hidden:
            self._hidden = hidden
            self._changed.set()

    async def run(self, ask: Ask) -> None:
        """Send receipts on a new connection, until cancelled or refused by the server."""
        self._said = False
        self._period, failed, logged = PERIOD, "", ""
        while True:
            self._changed.clear()
            wait = self._receipts.again
            try:
                self._period = _period(await ask(REPORT, self._report()), self._period)
                wait, self._said, failed, logged = self._period, True, "", ""
                self._taken_at = asyncio.get_running_loop().time()
            except NotOffered:
                return
            except AskFailed as error:
                # One refusal is usual: a proxy that has not seen the token yet has it reviewed first.
                if str(error) == failed != logged:
                    logged = failed
                    log.warning("receipts are not accepted: %s", logged)
                failed = str(error)
            await asyncio.sleep(_LEAST)
            await self._wait(wait * (1 - _JITTER * self._receipts.random()))

    def was_taken_within(self, seconds: float) -> bool:
        """Return whether the server accepted a receipt, so was reachable, within the last `seconds`, or as
        long ago as it asked for: a question in between would cost it what a receipt costs.
        """
        taken = self._taken_at
        longest = max(seconds, self._period)
        return taken is not None and asyncio.get_running_loop().time() - taken <= longest

    async def leave(self, ask: Ask) -> None:
        """Send a goodbye to a server that accepted receipts. Never raises; takes at most a second."""
        if not self._said:
            return
        member = self._receipts.member.message()
        request = LeaveRequest(member=member, selector=self.selector)
        try:
            async with asyncio.timeout(GOODBYE):
                await ask(LEAVE, request.SerializeToString())
        except (AskFailed, TimeoutError):
            log.debug("the last receipt was not accepted")

    async def _wait(self, seconds: float) -> None:
        """Wait for a change, at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _report(self) -> bytes:
        served = self.served
        age = asyncio.get_running_loop().time() - served.since if served.digest else 0.0
        request = ReportRequest(
            member=self._receipts.member.message(),
            selector=self.selector,
            digest=served.digest,
            revision=served.revision,
            served_for_ms=max(0, round(age * 1000)),
            replaced=served.replaced,
            unsaved="" if self.saving is None else self.saving.fault,
            sets=self._sets(),
            hidden=self._hidden,
        )
        return request.SerializeToString()

    def _sets(self) -> list[ServedSet]:
        flag_set = self._flag_set
        if flag_set is None:
            return []
        # Without the sender's digest not all of what it sent is served.
        whole = DIGEST_KEY in flag_set.metadata
        return [
            ServedSet(
                order=part.order,
                flag_set=part.origin,
                digest=part.digest if whole else "",
                revision=part.revision if whole else "",
            )
            for part in flag_set.parts
            if part.origin
        ]


def _origin(catalog: Catalog, source: str, key: str) -> str:
    """Return the set that a flag was composed from; empty: it is its source's own."""
    return str(catalog.sets[source].flags[key].metadata.get(FLAG_SET_KEY, ""))


def _period(answer: bytes, before: float) -> float:
    """Return the seconds to wait that the server asked for; raises AskFailed for an invalid answer."""
    try:
        seconds = ReportResponse.FromString(answer).next_ms / 1000
    except DecodeError as error:
        raise AskFailed("its answer is malformed") from error
    return min(max(seconds, 1.0), _LONGEST_PERIOD) if seconds else before
