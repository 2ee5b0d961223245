"""Latest value wins: many topics, each with one newest value and any number of subscribers. Pure: no I/O, no
clock.

A subscriber is not fed a queue but compared with what is newest. While it cannot be written to nothing piles
up for it; once it can, it gets the newest value, and those in between were never made for it. So no update is
lost, no subscriber receives an older value after a newer one, and none waits for another.

A change goes out in turns of a fair queue, in which topics stand behind each other: a broadcast to ten
thousand streams lets other work in between, and a large topic does not keep a small one waiting for long.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from evaluator.http.server.scheduler import FairQueue

SHARE: Final = 16
"""Subscribers of a topic that are visited before another topic takes its turn."""


def digest(payload: bytes) -> bytes:
    """What distinguishes one payload from another."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class Subscriber(Protocol):
    """Receives a topic's values. Its methods may call the hub."""

    @property
    def writable(self) -> bool:
        """Whether it takes a value now. When that comes true, its owner calls `Hub.offer`."""

    def send(self, payload: bytes) -> None:
        """Take the newest value. Whatever it raises drops this subscriber, and it alone."""

    def retract(self, reason: object) -> None:
        """The topic has no value, for `reason`; as `send` otherwise."""

    def failed(self, error: Exception) -> None:
        """It was dropped for what it raised; must not raise."""


@dataclass(frozen=True, slots=True, eq=False)
class _Mark:
    """A value without its payload, which would stay in memory for the slowest subscriber."""

    number: int
    content: object
    """Equal for equal values: the digest of a payload, or a retraction."""


@dataclass(frozen=True, slots=True)
class _Retraction:
    """The value of a topic that has none any more."""

    reason: object


class _Topic:
    __slots__ = ("changed", "due", "key", "mark", "number", "payload", "queued", "subscriptions")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.number = 0
        self.mark: _Mark | None = None
        """None while nothing is known of its value."""
        self.payload = b""
        self.subscriptions: dict[Subscription, None] = {}
        self.due: deque[Subscription] = deque()
        """Those still to be visited, in turn."""
        self.changed = False
        """Everyone is to be visited: put into `due` at the next turn, so that many changes cost one pass."""
        self.queued = False

    def line_up(self, subscription: Subscription) -> None:
        """Visit it after those who wait; who waits keeps its place, so that none is starved."""
        if not subscription._due:
            subscription._due = True
            self.due.append(subscription)


class Subscription:
    """One subscriber's place in a topic."""

    __slots__ = ("_busy", "_due", "_seen", "_topic", "subscriber")

    def __init__(self, topic: _Topic, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._topic: _Topic | None = topic
        """None once it is over."""
        self._seen: _Mark | None = None
        self._busy = False
        self._due = False

    @property
    def live(self) -> bool:
        """False once unsubscribed or dropped."""
        return self._topic is not None


class Hub:
    """All topics of one process. A topic is there while it has a value or a subscriber."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self._topics: dict[Hashable, _Topic] = {}
        self.streams = 0
        """Subscribers now."""
        self.sent = 0
        """Values delivered."""
        self.skipped = 0
        """Values that a subscriber was spared, because a newer one came before it could take them."""

    @property
    def topics(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def listeners(self, key: Hashable) -> int:
        """How many subscribers the topic `key` has."""
        topic = self._topics.get(key)
        return 0 if topic is None else len(topic.subscriptions)

    def subscriptions(self) -> Iterator[Subscription]:
        """Everyone, of all topics, as of now."""
        for topic in tuple(self._topics.values()):
            yield from tuple(topic.subscriptions)

    def publish(
        self, key: Hashable, payload: bytes, content: bytes | None = None, *, quiet: bool = False
    ) -> None:
        """`payload`, encoded, is the topic's newest value; an equal one changes nothing. `content` is its
        `digest`, made by the caller off the loop, as that of a megabyte takes a millisecond. A `quiet` value
        causes no delivery: it reaches those who receive something anyway, such as new subscribers.
        """
        self._change(key, digest(payload) if content is None else content, payload, quiet=quiet)

    def retract(self, key: Hashable, reason: object = None) -> None:
        """The topic has no value, for `reason`. Subscribers are notified, late ones too, and stay."""
        self._change(key, _Retraction(reason), b"")

    def drop(self, key: Hashable) -> None:
        """Forget the topic's value; one that has subscribers keeps them, and they hear nothing of it."""
        topic = self._topics.get(key)
        if topic is not None:
            topic.mark, topic.payload = None, b""
            self._tidy(topic)

    def subscribe(self, key: Hashable, subscriber: Subscriber) -> Subscription:
        """Offer the topic's values to `subscriber`, the current one at once if there is one."""
        topic = self._topics.get(key)
        if topic is None:
            topic = self._topics[key] = _Topic(key)
        subscription = Subscription(topic, subscriber)
        topic.subscriptions[subscription] = None
        self.streams += 1
        self._visit(topic, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Offer it nothing more; harmless if it is over."""
        topic = subscription._topic
        if topic is not None:
            subscription._topic = None
            del topic.subscriptions[subscription]
            self.streams -= 1
            self._tidy(topic)

    def offer(self, subscription: Subscription) -> None:
        """It is writable (again): give it what is newest, unless it has that."""
        topic = subscription._topic
        if topic is not None:
            self._visit(topic, subscription)

    def _change(self, key: Hashable, content: object, payload: bytes, *, quiet: bool = False) -> None:
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
        """Visit up to SHARE subscribers of a topic, as far as there is time; put it behind the others."""
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
        """Give one subscriber the newest value if it lacks it and can take it."""
        mark, seen = topic.mark, subscription._seen
        if mark is None or mark is seen or not subscription.live:
            return
        if subscription._busy:
            # Called back while it receives something older: what is newest comes at another turn.
            topic.line_up(subscription)
            self._enqueue(topic)
            return
        if seen is not None and seen.content == mark.content:
            self._sees(subscription, mark)
            return
        try:
            if subscription.subscriber.writable:
                self._sees(subscription, mark)
                self._deliver(subscription, mark, topic.payload)
        except Exception as error:  # noqa: BLE001 - its owner is notified; one subscriber's failure is its own
            self.unsubscribe(subscription)
            subscription.subscriber.failed(error)

    def _sees(self, subscription: Subscription, mark: _Mark) -> None:
        if subscription._seen is not None:
            self.skipped += mark.number - subscription._seen.number - 1
        subscription._seen = mark

    def _deliver(self, subscription: Subscription, mark: _Mark, payload: bytes) -> None:
        subscription._busy = True
        self.sent += 1
        try:
            if isinstance(mark.content, _Retraction):
                subscription.subscriber.retract(mark.content.reason)
            else:
                subscription.subscriber.send(payload)
        finally:
            subscription._busy = False
