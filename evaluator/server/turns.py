"""Open streams that are told of changes a few at a time: ten thousand of them do not hold up the loop."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from evaluator.wire.countdown import TimerHandle, Timers

SLICE: Final = 64
"""Subscribers that are told in one turn of the loop."""


class Subscriber(Protocol):
    """Who has a stream open; told apart by identity."""

    def advance(self) -> None:
        """Send what is due, as far as the stream takes it."""

    def shut_down(self) -> None:
        """End the stream, and leave."""


S = TypeVar("S", bound=Subscriber)


class Turns(Generic[S]):
    """All open streams of one kind, and who of them is to be told next. Its length is how many are open."""

    def __init__(self, timers: Timers, told: Callable[[], None] | None = None) -> None:
        """`told` is called each time that nobody is left to be told."""
        self._timers = timers
        self._told = told
        self._open: set[S] = set()
        self._due: dict[S, None] = {}
        self._turn: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[S]:
        return iter(self._open)

    def join(self, subscriber: S) -> None:
        """It is told of changes from now on."""
        self._open.add(subscriber)

    def leave(self, subscriber: S) -> None:
        """It is told of nothing more; harmless if it has left."""
        self._open.discard(subscriber)
        self._due.pop(subscriber, None)

    def tell(self, subscribers: Iterable[S]) -> None:
        """Let them advance, the first of them now."""
        # Who waits already keeps the place: otherwise quick changes would tell the same few again and again.
        self._due.update(dict.fromkeys(subscribers))
        if self._turn is None:
            self._advance_some()

    def close(self) -> None:
        """No more turns; shut everyone down."""
        if self._turn is not None:
            self._turn.cancel()
        for subscriber in tuple(self._open):
            subscriber.shut_down()

    def _advance_some(self) -> None:
        self._turn = None
        for subscriber in tuple(islice(self._due, SLICE)):
            self._due.pop(subscriber, None)
            subscriber.advance()
        if self._due:
            self._turn = self._timers.call_later(0.0, self._advance_some)
        elif self._told is not None:
            self._told()
