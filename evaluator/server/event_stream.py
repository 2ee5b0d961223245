"""EventStream: reports to each subscriber which flags changed since the last report.

A subscriber has no queue: while it is not writable nothing is buffered for it; once it is, it gets one change
from the set that it last received to the newest. Sets are compared in a thread, and many subscribers are
notified a few at a time: neither blocks the event loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from evaluator.flags.diff import diff
from evaluator.flags.model import FlagSet
from evaluator.http.messages import Call, Code, MessageStream, RpcError
from evaluator.server.notifier import FairNotifier
from evaluator.server.protobuf import encode_event
from evaluator.server.service import Selection, selection
from evaluator.store.store import Store, free_one_by_one, run_in_thread
from evaluator.wire.hub import Countdown, Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.http.scheduler import FairQueue
    from evaluator.store.snapshot import Snapshot

KEEP_ALIVE_SECONDS: Final = 20.0
"""Seconds without a message after which a keep-alive is sent; flagd's."""

NOTHING: Final = FlagSet()

EncodeEvent: TypeAlias = "Callable[[str, Mapping[str, Any]], bytes]"
Run: TypeAlias = "Callable[[Callable[[], bytes | None], Callable[[bytes | None], None]], None]"
"""Calls the first function, in a thread or at once, then the second with its result on the loop."""


class EventStreams:
    """The open event streams of one process in one message format."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        queue: FairQueue,
        *,
        deadline_seconds: float = 0.0,
        encode: EncodeEvent = encode_event,
        run: Run = run_in_thread,
    ) -> None:
        """A stream ends with DEADLINE_EXCEEDED after `deadline_seconds`; 0: never. encode: an event's type
        and content to bytes. run: compares sets.
        """
        self.store = store
        self._run = run
        self.ready = encode("provider_ready", {})
        self.alive = encode("keep_alive", {})
        self.goodbye = encode("provider_shutdown", {})
        self._encode = encode
        self._notifier: FairNotifier[EventStream] = FairNotifier(queue, self._forget_changes)
        self._closing = False
        self._changes: dict[tuple[int, int], _Change] = {}
        self.silence: Countdown[EventStream] = Countdown(timers, KEEP_ALIVE_SECONDS, EventStream.keep_alive)
        self._deadlines: Countdown[EventStream] | None = (
            Countdown(timers, deadline_seconds, EventStream.expire) if deadline_seconds else None
        )
        self._unsubscribe = store.subscribe(self._on_change, self._on_change)

    def open(self, call: Call, _: bytes, stream: MessageStream) -> None:
        """The stream handler of both versions; raises RpcError for a bad selector, or while shutting down."""
        if self._closing:
            raise RpcError(Code.UNAVAILABLE, "shutting down")
        subscriber = EventStream(self, stream, selection(call.headers))
        self._notifier.join(subscriber)
        if self._deadlines is not None:
            self._deadlines.restart(subscriber)
        subscriber.advance()

    @property
    def streams(self) -> int:
        """Return how many are open."""
        return len(self._notifier)

    def close(self) -> None:
        """Notify every subscriber that can be written to, and end all streams."""
        self._closing = True
        self._unsubscribe()
        self._notifier.close()

    def forget(self, subscriber: EventStream) -> None:
        """Remove a stream that has ended."""
        self._notifier.leave(subscriber)
        self.silence.forget(subscriber)
        if self._deadlines is not None:
            self._deadlines.forget(subscriber)

    def change(self, seen: FlagSet, current: FlagSet) -> _Change:
        """Return the change from `seen` to `current`, computed once for all subscribers that received `seen`;
        a subscriber whose change is not ready is notified again.
        """
        key = id(seen), id(current)
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = _Change(seen, current)
            self._run(partial(self._encode_changes, seen, current), partial(self._deliver, change))
        return change

    def _encode_changes(self, seen: FlagSet, current: FlagSet) -> bytes | None:
        flags = changed_flags(seen, current)
        return self._encode("configuration_change", {"flags": flags}) if flags else None

    def _deliver(self, change: _Change, message: bytes | None) -> None:
        change.message, change.ready = message, True
        waiting = [subscriber for subscriber in self._notifier if subscriber.awaited is change]
        if waiting:
            self._notifier.notify(waiting)

    def _on_change(self, _: Snapshot) -> None:
        self._notifier.notify(self._notifier)

    def _forget_changes(self) -> None:
        """Drop changes that no subscriber needs any more: their sets may be large."""
        held = {id(subscriber.seen) for subscriber in self._notifier}
        for key, change in tuple(self._changes.items()):
            if change.ready and key[0] not in held:
                del self._changes[key]
                self._run(partial(free_one_by_one, [*change.seen.flags.values()]), _nothing_more)


class _Change:
    """The change from one set to another. Holds both sets, so that their `id()`s are not reused."""

    __slots__ = ("current", "message", "ready", "seen")

    def __init__(self, seen: FlagSet, current: FlagSet) -> None:
        self.seen = seen
        self.current = current
        self.message: bytes | None = None
        """The encoded event; None if no flag differs."""
        self.ready = False


class EventStream:
    """One subscriber: the set that it last received, and whether it is writable."""

    def __init__(self, streams: EventStreams, stream: MessageStream, selected: Selection) -> None:
        self._streams = streams
        self._stream = stream
        self._selection = selected
        self._greeted = False
        self.seen = self._current()
        """The set of the last message to it."""
        self.awaited: _Change | None = None
        """The change to send next, even if there is a newer one by then."""
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def advance(self) -> None:
        """Send pending messages while the stream is writable."""
        if not self._greeted:
            if not self._stream.writable or not self._streams.store.known:
                # Providers count as ready at the first message.
                return
            self._greeted = True
            self._send(self._streams.ready)
        while self._stream.writable and self.seen is not (current := self._current()):
            if self.awaited is None:
                self.awaited = self._streams.change(self.seen, current)
            if not self.awaited.ready:
                return
            change, self.awaited = self.awaited, None
            self.seen = change.current
            if change.message is not None:
                self._send(change.message)

    def keep_alive(self) -> None:
        """Send a keep-alive; a peer that does not read has messages waiting already."""
        if self._stream.writable:
            self._send(self._streams.alive)
        else:
            self._streams.silence.restart(self)

    def expire(self) -> None:
        """End the stream at its deadline; the client opens another."""
        self._end(Code.DEADLINE_EXCEEDED, "stream deadline exceeded")

    def shut_down(self) -> None:
        """Send a provider that received flags and reads a last event, and end the stream."""
        if self._greeted and self._stream.writable:
            self._send(self._streams.goodbye)
        self._end(Code.OK, "")

    def _current(self) -> FlagSet:
        snapshot = self._selection.of(self._streams.store)
        return NOTHING if snapshot is None else snapshot.flag_set

    def _send(self, message: bytes) -> None:
        self._stream.send(message)
        self._streams.silence.restart(self)

    def _end(self, code: Code, message: str) -> None:
        self._on_closed()
        self._stream.close(code, message)

    def _on_closed(self) -> None:
        self._streams.forget(self)


def _nothing_more(_: bytes | None) -> None:
    """Do nothing after sets are freed."""


def changed_flags(seen: FlagSet, current: FlagSet) -> dict[str, Any]:
    """Return flagd's word for each flag's change, as in `configuration_change`; empty if none changed."""
    change = diff(seen, current)
    return {
        **{key: {"type": "write"} for key in change.added},
        **{key: {"type": "update"} for key in change.changed},
        **{key: {"type": "delete"} for key in change.removed},
    }
