"""EventStream: tells each subscriber which flags changed since it was last told.

A subscriber is compared with what is served now, not fed a queue: while it cannot be written to nothing piles up, and once it can, it gets
one change from what it saw to what is newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from evaluator.flags.diff import diff
from evaluator.flags.model import FlagSet
from evaluator.http.routes import Code, RpcError
from evaluator.server.messages import encode_event
from evaluator.server.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from evaluator.http.routes import Call, MessageStream
    from evaluator.server.selection import Selection
    from evaluator.store import Snapshot, Store

KEEP_ALIVE_SECONDS: Final = 20.0
"""flagd's: after so long without another message."""

NOTHING: Final = FlagSet()

EncodeEvent: TypeAlias = "Callable[[str, Mapping[str, Any]], bytes]"


class TimerHandle(Protocol):
    """What a clock gives back for a call to come."""

    def cancel(self) -> None:
        """Do not make the call."""


class Timers(Protocol):
    """The part of an event loop that is needed here."""

    def time(self) -> float:
        """Monotonic seconds."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, `delay` seconds from now."""


T = TypeVar("T", bound="Hashable")


class Countdown(Generic[T]):
    """Calls `on_due(item)` a fixed time after each item's latest `restart`, with one timer for all."""

    def __init__(self, timers: Timers, seconds: float, on_due: Callable[[T], None]) -> None:
        self._timers = timers
        self._seconds = seconds
        self._on_due = on_due
        self._due: dict[T, float] = {}
        self._timer: TimerHandle | None = None

    def restart(self, item: T) -> None:
        """Count from now. Every item waits equally long, so the order of restarts is the order of being due."""
        self._due.pop(item, None)
        self._due[item] = self._timers.time() + self._seconds
        if self._timer is None:
            self._timer = self._timers.call_later(self._seconds, self._sweep)

    def forget(self, item: T) -> None:
        """Stop counting for `item`."""
        self._due.pop(item, None)
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        # While the timer that fired is still in place, restarts from `on_due` arm no other.
        fired, now = self._timer, self._timers.time()
        for item in [item for item, due in self._due.items() if due <= now]:
            if self._due.pop(item, None) is not None:
                self._on_due(item)
        if self._timer is fired:
            self._timer = None
            if self._due:
                first = next(iter(self._due.values()))
                self._timer = self._timers.call_later(max(0.0, first - now), self._sweep)


class EventStreams:
    """All open event streams of one process in one message format."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        *,
        deadline_seconds: float = 0.0,
        encode: EncodeEvent = encode_event,
    ) -> None:
        """A stream ends with DEADLINE_EXCEEDED after `deadline_seconds`; 0: never. encode: an event's type and content to bytes."""
        self.store = store
        self.ready = encode("provider_ready", {})
        self.alive = encode("keep_alive", {})
        self.goodbye = encode("provider_shutdown", {})
        self._encode = encode
        self._streams: set[EventStream] = set()
        self._closing = False
        self._changes: dict[int, tuple[FlagSet, bytes | None]] = {}
        self._changes_to = NOTHING
        self.silence: Countdown[EventStream] = Countdown(
            timers, KEEP_ALIVE_SECONDS, EventStream.keep_alive
        )
        self._deadlines: Countdown[EventStream] | None = (
            Countdown(timers, deadline_seconds, EventStream.expire) if deadline_seconds else None
        )
        self._unsubscribe = store.subscribe(self._on_change)

    def open(self, call: Call, _: bytes, stream: MessageStream) -> None:
        """The stream handler of both versions; raises RpcError for a bad selector, or while shutting down."""
        if self._closing:
            raise RpcError(Code.UNAVAILABLE, "shutting down")
        subscriber = EventStream(self, stream, select(call.headers))
        self._streams.add(subscriber)
        if self._deadlines is not None:
            self._deadlines.restart(subscriber)
        subscriber.advance()

    def close(self) -> None:
        """Tell everyone who can be told, and end all streams."""
        self._closing = True
        self._unsubscribe()
        for subscriber in tuple(self._streams):
            subscriber.shut_down()

    def forget(self, subscriber: EventStream) -> None:
        """Called by a stream that has ended."""
        self._streams.discard(subscriber)
        self.silence.forget(subscriber)
        if self._deadlines is not None:
            self._deadlines.forget(subscriber)

    def change(self, seen: FlagSet, current: FlagSet) -> bytes | None:
        """The message that leads from `seen` to `current`, or None; made once for all who saw the same."""
        if self._changes_to is not current:
            self._changes_to = current
            self._changes.clear()
        known = self._changes.get(id(seen))
        if known is None:
            # The set is kept beside its message, so that its id stays its own.
            known = self._changes[id(seen)] = (seen, self._change(seen, current))
        return known[1]

    def _change(self, seen: FlagSet, current: FlagSet) -> bytes | None:
        flags = changed_flags(seen, current)
        return self._encode("configuration_change", {"flags": flags}) if flags else None

    def _on_change(self, _: Snapshot) -> None:
        for subscriber in tuple(self._streams):
            subscriber.advance()


class EventStream:
    """One subscriber: what it was last told, and whether it can be told more."""

    def __init__(self, streams: EventStreams, stream: MessageStream, selected: Selection) -> None:
        self._streams = streams
        self._stream = stream
        self._selection = selected
        self._greeted = False
        self._seen = self._current()
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def advance(self) -> None:
        """Send what is due, as far as the stream takes it."""
        if not self._greeted:
            if not self._stream.writable:
                return
            self._greeted = True
            self._send(self._streams.ready)
        current = self._current()
        if current is self._seen or not self._stream.writable:
            return
        message = self._streams.change(self._seen, current)
        self._seen = current
        if message is not None:
            self._send(message)

    def keep_alive(self) -> None:
        """Show a silent peer that we are there; one that does not read has messages waiting already."""
        if self._stream.writable:
            self._send(self._streams.alive)
        else:
            self._streams.silence.restart(self)

    def expire(self) -> None:
        """End it by its deadline; the client opens another."""
        self._end(Code.DEADLINE_EXCEEDED, "stream deadline exceeded")

    def shut_down(self) -> None:
        """Say goodbye if it is heard, and end."""
        if self._stream.writable:
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


def changed_flags(seen: FlagSet, current: FlagSet) -> dict[str, Any]:
    """flagd's words for what happened to each flag, as a `configuration_change` holds them; empty where nothing did."""
    change = diff(seen, current)
    return {
        **{key: {"type": "write"} for key in change.added},
        **{key: {"type": "update"} for key in change.changed},
        **{key: {"type": "delete"} for key in change.removed},
    }
