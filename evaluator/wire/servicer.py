"""flagd.sync.v1 and sync.v1: streams of whole flag sets, for in-process providers and other evaluators.

A stream gets the newest flag set at once, or as soon as there is one; then each that differs. It never gets
an empty set in place of a missing one. The messages of a topic are made once for all its streams, and only
while there are any; likewise their gzip form, for the streams whose clients take it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable  # noqa: TC003 - the compiled `_Key` loads it
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from evaluator.http.grpc_framing import zipped
from evaluator.http.messages import Call, Code, MessageStream, RpcError, Zipped, header
from evaluator.http.routes import Routes, StreamHandler
from evaluator.wire.hub import Countdown, Hub, Subscription, Timers
from evaluator.wire.sync_messages import (
    GET_METADATA,
    METHODS,
    SELECTOR_HEADER,
    Payload,
    SyncMethod,
    encode_metadata,
    read_selector,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


log = logging.getLogger(__name__)

NORMAL: Final = "normal_close"
DEADLINE: Final = "deadline_exceeded"
ERROR: Final = "error"
"""Reason of a stream's end, as in flagd's metric `feature_flag.flagd.sync.stream.duration`."""


SMALL: Final = 1_400
"""A message of up to so many bytes is in one packet, with gzip or without."""
LARGE: Final = 65_536
"""A message of more bytes is compressed in a thread: up to here it takes about a millisecond."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A topic has no flag set (yet, or any more)."""

    code: Code
    message: str
    """Message of FetchAllFlags' error."""
    ends_streams: bool = False
    """Whether streams that were sent a flag set end; if not, they keep that set and wait for the next one.
    Streams that were sent nothing stay in any case.
    """


Make: TypeAlias = "Callable[[bytes, Mapping[str, Any]], Payload]"
"""(flag set's JSON document, context) → payload, in any thread. Equal arguments give equal payloads."""
Deliver: TypeAlias = "Callable[[Payload | Missing], None]"


class Backend(Protocol):
    """Source of flag sets: the store of an evaluator, or the watched objects of a proxy."""

    def topic(self, selector: str, call: Call) -> Hashable:
        """Return the topic of `selector`, "" for none. Raises RpcError for an invalid or forbidden one."""

    def context(self) -> Mapping[str, Any]:
        """Return the synchronised context: JSON values by context key."""

    def watch(self, topic: Hashable, make: Make, deliver: Deliver) -> Callable[[], None]:
        """Deliver the topic's flag set, now or soon and at each change, until the returned function is
        called: on the loop, the latest one. A set may be skipped for a newer one, and never follows it.
        """


class StreamObserver(Protocol):
    """Receives each begin and end of a stream."""

    def begin(self, call: Call, topic: Hashable, *, lasting: bool) -> object:
        """Report a starting stream; `end` receives the returned value. Raises RpcError to refuse it."""

    def end(self, visit: object) -> None:
        """Report its end. Must not raise."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A topic of the hub: one backend's topic in one method's messages."""

    method: SyncMethod
    topic: Hashable
    gzip: bool = False
    """Whether its values may be Zipped."""


@dataclass(slots=True, eq=False)
class _Watch:
    """What the backend delivers of a topic with streams."""

    plain: _Key
    gzip: _Key
    made: Payload | Missing | None = None
    """The newest value; None: there is none yet."""
    published: Payload | Missing | None = None
    """The value of the gzip form, unless it is still compressed."""
    compressing: bool = False
    cancel: Callable[[], None] = lambda: None
    """Ends the watch."""
    loud: bool = False
    """Whether any value since then was not quiet."""

    def take(self, made: Payload | Missing) -> None:
        """Take in a newer value."""
        self.made = made
        self.loud = self.loud or isinstance(made, Missing) or not made.quiet


class SyncService:
    """All sync streams of one process."""

    def __init__(  # noqa: PLR0913 - the parts of a process that it joins, each named at the call
        self,
        backend: Backend,
        hub: Hub,
        timers: Timers,
        *,
        deadline_seconds: float = 0.0,
        metadata: bool = True,
        ended: Callable[[str, float], None] = lambda _reason, _seconds: None,
        observer: StreamObserver | None = None,
    ) -> None:
        """deadline_seconds: streams end with DEADLINE_EXCEEDED then; 0: never. metadata: whether GetMetadata
        is answered. ended: called at the end of a SyncFlags stream with the reason, in flagd's words, and the
        seconds that it was open. observer: sees every stream open and close.
        """
        self.hub = hub
        self.timers = timers
        self.streams = 0
        """Open SyncFlags streams."""
        self._observer = observer
        self._backend = backend
        self._metadata = metadata
        self._ended = ended
        self._watches: dict[_Key, _Watch] = {}
        """The watch of each topic with streams, by its plain form."""
        self._closing = False
        self._deadlines: Countdown[_Stream] | None = (
            Countdown(timers, deadline_seconds, _Stream.expire) if deadline_seconds else None
        )

    def routes(self) -> Routes:
        """Return both services' routes. FetchAllFlags is a stream, so that no call makes a large set."""
        return Routes(
            unary={GET_METADATA: self.get_metadata},
            streams={method.path: self.handler(method) for method in METHODS},
        )

    def handler(self, method: SyncMethod) -> StreamHandler:
        """Return the handler of one method; it raises RpcError if refused, or while shutting down."""
        return partial(self._open, method)

    def get_metadata(self, call: Call, message: bytes) -> bytes:
        """Return the synchronised context, for providers that do not read it from the stream."""
        del call, message
        if not self._metadata:
            raise RpcError(Code.UNIMPLEMENTED, "metadata endpoint disabled")
        return encode_metadata(self._backend.context())

    def close(self) -> None:
        """End all streams with UNAVAILABLE, so that their clients connect elsewhere."""
        self.shed(self.hub.streams)

    def shed(self, most: int) -> int:
        """Refuse new streams, and end up to `most` open ones with UNAVAILABLE; return the number left."""
        self._closing = True
        for subscription in islice(self.hub.subscriptions(), most):
            if isinstance(subscription.subscriber, _Stream):
                subscription.subscriber.end(Code.UNAVAILABLE, "shutting down", NORMAL)
        return self.hub.streams

    def end_those(self, wanted: Callable[[object], bool], code: Code, message: str) -> None:
        """End the streams that the predicate selects by their observer's value."""
        for subscription in self.hub.subscriptions():
            subscriber = subscription.subscriber
            if isinstance(subscriber, _Stream) and wanted(subscriber.visit):
                subscriber.end(code, message, ERROR)

    def _open(self, method: SyncMethod, call: Call, message: bytes, stream: MessageStream) -> None:
        if self._closing:
            raise RpcError(Code.UNAVAILABLE, "shutting down")
        selector = read_selector(message)
        asked = header(call.headers, SELECTOR_HEADER)
        topic = self._backend.topic(selector if asked is None else asked, call)
        key = _Key(method, topic)
        visit = self._observer and self._observer.begin(call, topic, lasting=method.lasting)
        if key not in self._watches:
            watch = _Watch(key, _Key(method, topic, gzip=True))
            watch.cancel = self._backend.watch(topic, method.payload, partial(self._deliver, watch))
            self._watches[key] = watch
        watch = self._watches[key]
        subscriber = _Stream(self, watch.gzip if stream.gzip else watch.plain, stream, visit)
        self._publish(watch, subscriber.key)
        if method.lasting:
            self.streams += 1
            if self._deadlines is not None:
                self._deadlines.restart(subscriber)
        subscriber.subscribe()

    def _deliver(self, watch: _Watch, made: Payload | Missing) -> None:
        watch.take(made)
        for key in (watch.plain, watch.gzip):
            if self.hub.listeners(key):
                self._publish(watch, key)

    def _publish(self, watch: _Watch, key: _Key) -> None:
        """Give one form of the topic its newest value; a large one is compressed first, one at a time."""
        made = watch.made
        if isinstance(made, Missing):
            watch.published = made
            self.hub.retract(key, made)
        elif made is None or (key.gzip and (watch.compressing or watch.published is made)):
            return
        elif not key.gzip:
            self.hub.publish(key, made.message, made.digest, quiet=made.quiet)
        else:
            watch.published, quiet, watch.loud = made, not watch.loud, False
            if len(made.message) <= LARGE:
                message = made.message if len(made.message) <= SMALL else zipped(made.message)
                self.hub.publish(key, message, made.digest, quiet=quiet)
            else:
                watch.compressing = True
                compressing = asyncio.get_running_loop().run_in_executor(None, zipped, made.message)
                compressing.add_done_callback(partial(self._publish_compressed, watch, made, quiet))

    def _publish_compressed(
        self, watch: _Watch, made: Payload, quiet: bool, compressing: asyncio.Future[Zipped]
    ) -> None:
        watch.compressing = False
        if self._watches.get(watch.plain) is not watch or not self.hub.listeners(watch.gzip):
            return
        # After a retraction it would be an older value.
        if watch.published is made:
            self.hub.publish(watch.gzip, compressing.result(), made.digest, quiet=quiet)
        self._publish(watch, watch.gzip)

    def forget(self, subscriber: _Stream, reason: str) -> None:
        """Remove a stream that has ended."""
        key = subscriber.key
        if self._observer is not None:
            self._observer.end(subscriber.visit)
        if key.method.lasting:
            self.streams -= 1
            if self._deadlines is not None:
                self._deadlines.forget(subscriber)
            self._ended(reason, self.timers.time() - subscriber.since)
        watch = self._watches.get(_Key(key.method, key.topic))
        if watch is None or self.hub.listeners(key):
            return
        self.hub.drop(key)
        if key.gzip:
            watch.published = None
        if not self.hub.listeners(watch.plain) and not self.hub.listeners(watch.gzip):
            del self._watches[watch.plain]
            watch.cancel()


class _Stream:
    """One subscriber of the hub, on one message stream."""

    __slots__ = ("_over", "_sent", "_service", "_stream", "_subscription", "key", "since", "visit")

    def __init__(self, service: SyncService, key: _Key, stream: MessageStream, visit: object) -> None:
        self.key = key
        self.visit = visit
        self.since = service.timers.time()
        self._service = service
        self._stream = stream
        self._subscription: Subscription | None = None
        self._sent = False
        self._over = ""
        """The reason of its end."""

    def subscribe(self) -> None:
        """Subscribe; may send, and even end the stream, at once."""
        self._stream.on_writable = self._on_writable
        self._stream.on_closed = self._on_closed
        self._subscription = self._service.hub.subscribe(self.key, self)
        if self._over:
            self._leave(self._over)

    @property
    def writable(self) -> bool:
        """Whether the peer has read enough."""
        return self._stream.writable

    def send(self, payload: bytes | Zipped) -> bool:
        """Send a whole flag set, if the peer has read enough; return whether it was sent."""
        if not self._stream.send(payload):
            return False
        self._sent = True
        if not self.key.method.lasting:
            self.end(Code.OK, "", NORMAL)
        return True

    def retract(self, reason: object) -> None:
        """Report a missing flag set: ends a stream of one value, and one whose flags were removed."""
        if isinstance(reason, Missing) and (
            (reason.ends_streams and self._sent) or not self.key.method.lasting
        ):
            self.end(reason.code, reason.message, ERROR)

    def on_failure(self, error: Exception) -> None:
        """End the stream after an error of `send`."""
        log.error("a sync stream failed", exc_info=error)
        self.end(Code.INTERNAL, "internal error", ERROR)

    def expire(self) -> None:
        """End the stream at its deadline; the client opens another."""
        self.end(Code.DEADLINE_EXCEEDED, "stream closed due to server-side timeout", DEADLINE)

    def end(self, code: Code, message: str, reason: str) -> None:
        """End the stream from this side."""
        if not self._over:
            self._leave(reason)
            self._stream.close(code, message)

    def _on_writable(self) -> None:
        if self._subscription is not None:
            self._service.hub.offer(self._subscription)

    def _on_closed(self) -> None:
        if not self._over:
            self._leave(NORMAL)

    def _leave(self, reason: str) -> None:
        self._over = reason
        # A stream that ends during `subscribe` has no subscription yet: `subscribe` calls this again.
        if self._subscription is not None:
            self._service.hub.unsubscribe(self._subscription)
            self._service.forget(self, reason)
