"""Notifies open streams of changes a few at a time, so that ten thousand do not block the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from evaluator.http.scheduler import FairQueue


class StreamOwner(Protocol):
    """The owner of an open stream; compared by identity."""

    def advance(self) -> None:
        """Send pending messages while the stream is writable."""

    def shut_down(self) -> None:
        """End the stream, and leave."""


S = TypeVar("S", bound=StreamOwner)


class FairNotifier(Generic[S]):
    """Open streams of one kind, and those to notify next. Its length is the number of open streams."""

    def __init__(self, queue: FairQueue, drained: Callable[[], None] | None = None) -> None:
        """drained: called each time that no stream is left to notify."""
        self._queue = queue
        self._drained = drained
        self._open: set[S] = set()
        self._due: dict[S, None] = {}
        self._queued = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[S]:
        return iter(self._open)

    def join(self, subscriber: S) -> None:
        """Add a stream, to be notified of changes."""
        self._open.add(subscriber)

    def leave(self, subscriber: S) -> None:
        """Remove a stream; may be called twice."""
        self._open.discard(subscriber)
        self._due.pop(subscriber, None)

    def notify(self, subscribers: Iterable[S]) -> None:
        """Call `advance` of the streams, of the first ones now."""
        # A waiting stream keeps its place: otherwise quick changes would notify the same few again and again.
        self._due.update(dict.fromkeys(subscribers))
        if not self._queued and self._advance_some(self._queue.deadline()):
            self._queue.put(self._advance_some)

    def close(self) -> None:
        """Stop notifying, and shut all streams down."""
        self._due.clear()
        for subscriber in tuple(self._open):
            subscriber.shut_down()

    def _advance_some(self, until: float) -> bool:
        self._queued = True
        try:
            while self._due:
                subscriber = next(iter(self._due))
                del self._due[subscriber]
                subscriber.advance()
                if self._queue.stopwatch() >= until:
                    break
        finally:
            self._queued = False
        self._queued = bool(self._due)
        if not self._due and self._drained is not None:
            self._drained()
        return self._queued
