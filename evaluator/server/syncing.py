"""What the sync port serves: the store's flag sets, by selector.

There is no first message until a first flag set is served. A selector that finds nothing then gets an empty
set, as from flagd, unless what it asks for may be on its way: while a source has delivered nothing yet, a new
stream waits, for else a client that reconnects to a restarted evaluator would lose its flags for a moment. A
stream that was sent flags receives a status when its selector finds them no more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from evaluator.flags.model import FlagSet
from evaluator.http.messages import Call, Code
from evaluator.server.service import Selection, parse
from evaluator.store.store import Store, free_one_by_one
from evaluator.wire.servicer import Deliver, Make, Missing
from evaluator.wire.sync_messages import Payload, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from evaluator.store.snapshot import Snapshot

log = logging.getLogger(__name__)

START_SECONDS: Final = 5.0
"""Seconds after the start for which a source that neither delivers nor fails is waited for, as flagd does."""
LARGE: Final = 50
"""Flags from which on a set is encoded in a thread: up to here it takes half a millisecond."""

NOTHING: Final = FlagSet()
NOT_YET: Final = Missing(Code.UNAVAILABLE, "no flag set is served yet")
UNENCODABLE: Final = Missing(Code.DATA_LOSS, "error marshalling flags")

_Made: TypeAlias = "dict[object, Payload] | Missing"


class _Watched:
    """A selection with listeners."""

    __slots__ = ("asked", "delivered", "quiet", "served", "watchers")

    def __init__(self) -> None:
        self.watchers: dict[object, tuple[Make, Deliver]] = {}
        self.asked = 0
        """The number of requests for its flag set."""
        self.delivered = 0
        """The latest asking whose answer was delivered: a thread that ends late delivers nothing older."""
        self.quiet = False
        """Whether the only change to deliver is that the same flags are stale: no reason to send them."""
        self.served = False
        """Whether a flag set was ever delivered."""

    def ask(self, *, quiet: bool) -> None:
        """Request its flag set once more."""
        self.quiet = quiet and (self.quiet or self.asked == self.delivered)
        self.asked += 1

    def deliver(self, asked: int, made: _Made) -> None:
        """Deliver to everyone who is still there, unless something newer was delivered."""
        if asked <= self.delivered:
            return
        self.delivered = asked
        self.served = self.served or not isinstance(made, Missing)
        for token, (_, deliver) in tuple(self.watchers.items()):
            if isinstance(made, Missing):
                deliver(made)
            elif token in made:
                deliver(made[token])


class StoreBackend:
    """The sync service's backend over a store. All of it is on the loop, but the encoding of large sets."""

    def __init__(self, store: Store, context: Mapping[str, Any]) -> None:
        """`context` is what providers lay over evaluation contexts; it may change in place."""
        self._store = store
        self._context = context
        self._watched: dict[Selection, _Watched] = {}
        self._waiting: dict[Selection, None] = {}
        """Selections whose flag sets are to be encoded in the thread, in this order."""
        self._encoding: asyncio.Task[None] | None = None
        self._waits_for_sources = not store.settled
        self._stale = store.catalog.stale_sources
        """The stale sources, as of the last delivery."""
        self._unsubscribe = store.subscribe(self._on_change, partial(self._on_change, restated=True))

    def topic(self, selector: str, call: Call) -> Hashable:
        """The selection; raises InvalidSelectorError."""
        del call
        return parse(selector)

    def context(self) -> Mapping[str, Any]:
        """What is laid over evaluation contexts."""
        return self._context

    def watch(self, topic: Hashable, make: Make, deliver: Deliver) -> Callable[[], None]:
        """See Backend: small sets are delivered before this returns."""
        selection, token = cast("Selection", topic), object()
        watched = self._watched.setdefault(selection, _Watched())
        watched.watchers[token] = (make, deliver)

        def cancel() -> None:
            watched.watchers.pop(token, None)
            if not watched.watchers and self._watched.get(selection) is watched:
                del self._watched[selection]
                self._waiting.pop(selection, None)

        self._refresh(selection, watched)
        return cancel

    def stop_waiting(self) -> None:
        """Send what is known, though a source may neither have delivered nor failed yet."""
        if self._waits_for_sources:
            self._waits_for_sources = False
            self._refresh_all(quiet=False)

    def close(self) -> None:
        """Deliver nothing more."""
        self._unsubscribe()
        self._watched.clear()
        self._waiting.clear()
        if self._encoding is not None:
            self._encoding.cancel()

    def _on_change(self, _: Snapshot, *, restated: bool = False) -> None:
        # Listeners that came while a source was stale received flags with that mark; others may not.
        fresh_again = self._stale - self._store.catalog.stale_sources
        self._stale = self._store.catalog.stale_sources
        settles = self._waits_for_sources and self._store.settled
        self._waits_for_sources = self._waits_for_sources and not settles
        self._refresh_all(quiet=restated and not fresh_again and not settles)

    def _refresh_all(self, *, quiet: bool) -> None:
        for selection, watched in tuple(self._watched.items()):
            self._refresh(selection, watched, quiet=quiet)

    def _refresh(self, selection: Selection, watched: _Watched, *, quiet: bool = False) -> None:
        watched.ask(quiet=quiet)
        snapshot = self._find(selection, watched)
        if isinstance(snapshot, Missing):
            watched.deliver(watched.asked, snapshot)
        elif len(snapshot.flags) <= LARGE:
            made = _make(snapshot, dict(self._context), watched.watchers, watched.quiet)
            watched.deliver(watched.asked, made)
        else:
            self._waiting[selection] = None
            if self._encoding is None:
                self._encoding = asyncio.get_running_loop().create_task(self._encode())

    def _find(self, selection: Selection, watched: _Watched) -> FlagSet | Missing:
        if not self._store.known or self._waits_for_sources:
            return NOT_YET
        snapshot = selection.of(self._store)
        if snapshot is not None:
            return snapshot.flag_set
        catalog = self._store.catalog
        expected = len(catalog.sets) < len(catalog.names)
        return NOT_YET if expected and not watched.served else NOTHING

    async def _encode(self) -> None:
        """Encode one set after another, each the newest at its turn, until none is requested."""
        try:
            while self._waiting:
                selection = next(iter(self._waiting))
                del self._waiting[selection]
                watched = self._watched[selection]
                asked, snapshot = watched.asked, self._find(selection, watched)
                if not isinstance(snapshot, Missing):
                    # Copies: both may change on the loop meanwhile.
                    context, watchers, flag_sets = (dict(self._context), dict(watched.watchers), [snapshot])
                    del snapshot
                    made = await asyncio.to_thread(_make_aside, flag_sets, context, watchers, watched.quiet)
                    watched.deliver(asked, made)
        finally:
            self._encoding = None


def _make_aside(
    flag_sets: list[FlagSet],
    context: Mapping[str, Any],
    watchers: Mapping[object, tuple[Make, Deliver]],
    quiet: bool,
) -> _Made:
    """`_make` for the one set in the list, which is freed here, not on the loop, if it was replaced."""
    flag_set = flag_sets.pop()
    made = _make(flag_set, context, watchers, quiet)
    objects: list[object] = [*flag_set.flags.values()]
    del flag_set
    free_one_by_one(objects)
    return made


def _make(
    flag_set: FlagSet,
    context: Mapping[str, Any],
    watchers: Mapping[object, tuple[Make, Deliver]],
    quiet: bool,
) -> _Made:
    """The set in each watcher's messages; see `Payload.quiet`."""
    try:
        document = encode(flag_set)
        return {token: replace(make(document, context), quiet=quiet) for token, (make, _) in watchers.items()}
    except Exception:
        log.exception("a flag set cannot be encoded for the sync port")
        return UNENCODABLE
