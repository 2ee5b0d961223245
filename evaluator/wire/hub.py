"""Latest value wins: topics with one newest value and any number of subscribers; and many waits with one
timer. Pure.

A subscriber has no queue: its last value is compared with the newest. While it is not writable nothing is
buffered for it; once it is, it gets the newest value and none of those in between. So no update is lost, no
subscriber receives an older value after a newer one, and none waits for another.

Changes are sent round robin, some subscribers of each topic at a time: a broadcast to ten thousand streams
does not block other work, and a large topic does not delay a small one for long.
"""

from __future__ import annotations

import hashlib
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from evaluator.http.messages import Zipped
    from evaluator.http.scheduler import FairQueue


class TimerHandle(Protocol):
    """The handle of a scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Timers(Protocol):
    """The part of an event loop that a Countdown needs."""

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
        """Restart the item's wait. All waits are equally long, so they end in the order of restarts."""
        self._due.pop(item, None)
        self._due[item] = self._timers.time() + self._seconds
        if self._timer is None:
            self._timer = self._timers.call_later(self._seconds, self._sweep)

    def forget(self, item: T) -> None:
        """Stop the timer of `item`."""
        self._due.pop(item, None)
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        # While the fired timer is still set, restarts from `on_due` start no other.
        fired, now = self._timer, self._timers.time()
        for item in [item for item, due in self._due.items() if due <= now]:
            if self._due.pop(item, None) is not None:
                self._on_due(item)
        if self._timer is fired:
            self._timer = None
            if self._due:
                first = next(iter(self._due.values()))
                self._timer = self._timers.call_later(max(0.0, first - now), self._sweep)


SHARE: Final = 16
"""Most subscribers of a topic that are visited before the next topic."""


def digest(payload: bytes) -> bytes:
    """Return a digest that differs between different payloads."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class Subscriber(Protocol):
    """Receives a topic's values. Its methods may call the hub."""

    @property
    def writable(self) -> bool:
        """Return whether it accepts a value now. When that becomes true, its owner calls `Hub.offer`."""

    def send(self, payload: bytes | Zipped) -> bool:
        """Send the newest value; return False, and send nothing, while it is not writable. Any exception
        drops this subscriber alone.
        """

    def retract(self, reason: object) -> None:
        """Report that the topic has no value, for `reason`; errors as in `send`."""

    def on_failure(self, error: Exception) -> None:
        """Handle the exception for which it was dropped; must not raise."""


class _Retraction(NamedTuple):
    """The value of a topic that no longer has one."""

    reason: Any


class _Mark:
    """A value's identity without its payload, which would stay in memory for the slowest subscriber."""

    __slots__ = ("content", "number", "retraction")

    def __init__(self, number: int, content: bytes | _Retraction) -> None:
        self.number = number
        self.content = content
        """Equal for equal values: the digest of a payload, or a retraction."""
        self.retraction = content if isinstance(content, _Retraction) else None


class _Topic:
    __slots__ = ("changed", "due", "key", "mark", "number", "payload", "queued", "subscriptions")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.number = 0
        self.mark: _Mark | None = None
        """The mark of its value; None if that is unknown."""
        self.payload: bytes | Zipped = b""
        self.subscriptions: dict[Subscription, None] = {}
        self.due: deque[Subscription] = deque()
        """Subscribers to be visited, in order."""
        self.changed = False
        """Whether to visit all: they join `due` at the next turn, so that many changes cost one pass."""
        self.queued = False

    def line_up(self, subscription: Subscription) -> None:
        """Append it to the queue; a subscriber that waits keeps its place, so that none is starved."""
        if not subscription._due:
            subscription._due = True
            self.due.append(subscription)


class Subscription:
    """One subscriber's place in a topic."""

    __slots__ = ("_busy", "_due", "_seen", "_topic", "subscriber")

    def __init__(self, topic: _Topic, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._topic: _Topic | None = topic
        """Its topic; None once it has ended."""
        self._seen: _Mark | None = None
        self._busy = False
        self._due = False

    @property
    def live(self) -> bool:
        """Return whether it is neither unsubscribed nor dropped."""
        return self._topic is not None


class Hub:
    """All topics of one process. A topic exists while it has a value or a subscriber."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self._topics: dict[Hashable, _Topic] = {}
        self.streams = 0
        """Number of subscribers."""
        self.sent = 0
        """Number of values delivered."""
        self.skipped = 0
        """Number of values skipped, because a newer one came before the subscriber was writable."""

    @property
    def topics(self) -> int:
        """Number of topics."""
        return len(self._topics)

    def listeners(self, key: Hashable) -> int:
        """Return the number of subscribers of the topic `key`."""
        topic = self._topics.get(key)
        return 0 if topic is None else len(topic.subscriptions)

    def subscriptions(self) -> Iterator[Subscription]:
        """Return all subscriptions of all topics."""
        for topic in tuple(self._topics.values()):
            yield from tuple(topic.subscriptions)

    def publish(self, key: Hashable, payload: bytes | Zipped, content: bytes, *, quiet: bool = False) -> None:
        """Set the topic's newest value, the encoded `payload`; an equal one changes nothing. `content` is its
        `digest`, computed by the caller off the loop, as that of a megabyte takes a millisecond. A `quiet`
        value is not delivered by itself, only to subscribers that receive something anyway, such as new ones.
        """
        self._change(key, content, payload, quiet=quiet)

    def retract(self, key: Hashable, reason: object = None) -> None:
        """Remove the topic's value, for `reason`. Subscribers are notified, later ones too, and stay."""
        self._change(key, _Retraction(reason), b"")

    def drop(self, key: Hashable) -> None:
        """Forget the topic's value; its subscribers stay and are not notified."""
        topic = self._topics.get(key)
        if topic is not None:
            topic.mark, topic.payload = None, b""
            self._tidy(topic)

    def subscribe(self, key: Hashable, subscriber: Subscriber) -> Subscription:
        """Send the topic's values to `subscriber`, the current one at once if there is one."""
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = _Topic(key)
        subscription = Subscription(topic, subscriber)
        topic.subscriptions[subscription] = None
        self.streams += 1
        self._visit(topic, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; may be called after its end."""
        topic = subscription._topic
        if topic is not None:
            subscription._topic = None
            del topic.subscriptions[subscription]
            self.streams -= 1
            self._tidy(topic)

    def offer(self, subscription: Subscription) -> None:
        """Send the newest value to a subscriber that is writable (again), unless it has that value."""
        topic = subscription._topic
        if topic is not None:
            self._visit(topic, subscription)

    def _change(
        self, key: Hashable, content: bytes | _Retraction, payload: bytes | Zipped, *, quiet: bool = False
    ) -> None:
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = _Topic(key)
        if topic.mark is not None and topic.mark.content == content:
            return
        topic.number += 1
        topic.mark, topic.payload = _Mark(topic.number, content), payload
        topic.changed = topic.changed or (bool(topic.subscriptions) and not quiet)
        self._enqueue(topic)

    def _tidy(self, topic: _Topic) -> None:
        if topic.mark is None and not topic.subscriptions and self._topics.get(topic.key) is topic:
            del self._topics[topic.key]

    def _enqueue(self, topic: _Topic) -> None:
        if not topic.queued and (topic.changed or topic.due):
            topic.queued = True
            self._queue.put(partial(self._turn, topic))

    def _turn(self, topic: _Topic, until: float) -> bool:
        """Visit up to SHARE subscribers of a topic, within the time budget; then append it to the queue."""
        topic.queued = False
        try:
            if topic.changed:
                topic.changed = False
                for subscription in topic.subscriptions:
                    topic.line_up(subscription)
            for _ in range(min(SHARE, len(topic.due))):
                subscription = topic.due.popleft()
                subscription._due = False
                self._visit(topic, subscription)
                if self._queue.stopwatch() >= until:
                    break
        finally:
            self._enqueue(topic)
        return False

    def _visit(self, topic: _Topic, subscription: Subscription) -> None:
        """Send one subscriber the newest value if it lacks it and is writable."""
        mark, seen = topic.mark, subscription._seen
        if mark is None or mark is seen or subscription._topic is None:
            return
        if subscription._busy:
            # Called while it receives an older value: the newest follows at another turn.
            topic.line_up(subscription)
            self._enqueue(topic)
            return
        if seen is not None and seen.content == mark.content:
            self._sees(subscription, mark)
            return
        subscriber = subscription.subscriber
        subscription._busy = True
        try:
            if mark.retraction is None:
                if not subscriber.send(topic.payload):
                    return
            elif subscriber.writable:
                subscriber.retract(mark.retraction.reason)
            else:
                return
            self._sees(subscription, mark)
            self.sent += 1
        except Exception as error:  # noqa: BLE001 - its owner is notified; one subscriber's failure is its own
            self.unsubscribe(subscription)
            subscriber.on_failure(error)
        finally:
            subscription._busy = False

    def _sees(self, subscription: Subscription, mark: _Mark) -> None:
        if subscription._seen is not None:
            self.skipped += mark.number - subscription._seen.number - 1
        subscription._seen = mark
