"""OFREP's event stream: asks clients that evaluated in bulk to do so again.

`GET /ofrep/v1/sse` and `/ofrep/v1/sse/{selector}`, flagd's paths; the messages are those of OFREP's ADR 0008
and its openapi.yaml 0.3.0 (https://github.com/open-feature/protocol), the framing is
https://html.spec.whatwg.org/multipage/server-sent-events.html.

An event's id is the digest of what it leads to: any replica, and any later process, knows from a client's
last one whether the client missed something. Nothing is queued: a client that cannot be written to receives
what is newest once it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from evaluator.http.messages import JSON, ByteStream, Headers, Request, Response, Streamed, header
from evaluator.server.notifier import FairNotifier
from evaluator.server.service import InvalidSelectorError, Selection, parse
from evaluator.wire.hub import Countdown, Timers
from evaluator.wire.sync_messages import SELECTOR_HEADER

if TYPE_CHECKING:
    from evaluator.http.scheduler import FairQueue
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store

PATH: Final = "/ofrep/v1/sse"
KEEP_ALIVE_SECONDS: Final = 20.0
"""Proxies close what is silent for longer; flagd's is 30."""
EVENT_STREAM: Final[Headers] = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
)

_KEEP_ALIVE: Final = b":\n\n"
_NOTHING: Final = ""
"""The id while nothing is served: a client forgets the one it had."""


class ChangeStreams:
    """The open event streams of OFREP."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        queue: FairQueue,
        *,
        public_url: str = "",
        inactivity_seconds: int = 120,
    ) -> None:
        """public_url: where clients reach this port. inactivity_seconds: when they may leave a stream."""
        self.store = store
        self.silence: Countdown[ChangeStream] = Countdown(timers, KEEP_ALIVE_SECONDS, ChangeStream.keep_alive)
        self._origin = public_url.rstrip("/")
        self._inactivity_seconds = inactivity_seconds
        self._notifier: FairNotifier[ChangeStream] = FairNotifier(queue)
        self._closing = False
        self._opened = 0
        self._unsubscribe = store.subscribe(self._on_change)

    @property
    def streams(self) -> int:
        """Return how many are open."""
        return len(self._notifier)

    def stream_links(self, selected: Selection) -> list[dict[str, Any]]:
        """Return `eventStreams` of a bulk answer: the stream on which its client receives changes."""
        path = PATH
        if selected.key:
            path += "/" + quote(f"{selected.key}={selected.value}", safe="")
        origin = {"origin": self._origin} if self._origin else {}
        return [
            {
                "type": "sse",
                "endpoint": {**origin, "requestUri": path},
                "inactivityDelaySec": self._inactivity_seconds,
            }
        ]

    def open(self, request: Request) -> Response | Streamed:
        """The handler of both paths. Without a selector in the path, the header's counts."""
        if self._closing:
            return _refusal(503, "shutting down")
        expression = request.path[len(PATH) + 1 :] or header(request.headers, SELECTOR_HEADER)
        try:
            selected = parse(expression)
        except InvalidSelectorError as error:
            return _refusal(400, f"invalid selector: {error}")
        last = header(request.headers, "last-event-id")

        def start(stream: ByteStream) -> None:
            subscriber = ChangeStream(self, stream, selected, last)
            self._notifier.join(subscriber)
            self._opened += 1
            # Reconnects are spread over two seconds, so that clients of one failure do not come back at once.
            subscriber.greet(1000 + 100 * (self._opened % 20))

        return Streamed(200, EVENT_STREAM, start)

    def close(self) -> None:
        """End all streams; their clients connect again, elsewhere or later."""
        self._closing = True
        self._unsubscribe()
        self._notifier.close()

    def forget(self, subscriber: ChangeStream) -> None:
        """Remove a stream that has ended."""
        self._notifier.leave(subscriber)
        self.silence.forget(subscriber)

    def _on_change(self, _: Snapshot) -> None:
        self._notifier.notify(self._notifier)


class ChangeStream:
    """One subscriber, and the id of the last event to it."""

    def __init__(
        self, streams: ChangeStreams, stream: ByteStream, selected: Selection, last: str | None
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._selection = selected
        self._seen = last
        self._greeting = b""
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def greet(self, retry_milliseconds: int) -> None:
        """Send the head with the reconnect time. A client without a last event id is asked to fetch at once,
        since its earlier answer may be outdated.
        """
        self._greeting = b"retry: %d\n\n" % retry_milliseconds
        self.advance()

    def advance(self) -> None:
        """Send what is due, if it can be sent."""
        snapshot = self._selection.of(self._streams.store)
        current: str | None = _NOTHING if snapshot is None else snapshot.digest
        if not self._streams.store.known:
            # Nothing is known yet: a client that fetched now would be refused.
            current = self._seen
        if not self._stream.writable or (current == self._seen and not self._greeting):
            return
        event = b"" if current == self._seen else encode_event(snapshot)
        greeting, self._greeting = self._greeting, b""
        self._seen = current
        self._stream.send(greeting + event)
        self._streams.silence.restart(self)

    def keep_alive(self) -> None:
        """Send a keep-alive; a peer that does not read has messages waiting already."""
        if self._stream.writable:
            self._stream.send(_KEEP_ALIVE)
        self._streams.silence.restart(self)

    def shut_down(self) -> None:
        """End it."""
        self._on_closed()
        self._stream.close()

    def _on_closed(self) -> None:
        self._streams.forget(self)


def encode_event(snapshot: Snapshot | None) -> bytes:
    """`refetchEvaluation` of `snapshot`; clients send `etag` and `lastModified` back when they fetch."""
    content: dict[str, Any] = {"type": "refetchEvaluation"}
    if snapshot is None:
        return b"id:\nevent: message\ndata: %b\n\n" % orjson.dumps(content)
    content |= {"etag": snapshot.digest, "lastModified": int(snapshot.served_since)}
    return b"id: %b\nevent: message\ndata: %b\n\n" % (snapshot.digest.encode(), orjson.dumps(content))


def _refusal(status: int, details: str) -> Response:
    return Response(status, orjson.dumps({"errorDetails": details}), JSON)
