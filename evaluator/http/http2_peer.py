"""HTTP/2 on one connection: passes events of the state machine to handlers, and their responses back.

All responses of a turn go out in one write. While the transport or flow control holds back too much, requests
wait unanswered, so that for a peer that reads nothing small requests are kept in memory, and not large
responses.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from evaluator.http.h2_frames import (
    BodyTooLarge,
    ConnectionClosed,
    Event,
    HeadersReceived,
    Http2ErrorCode,
    RequestReceived,
    StreamClosed,
    Writable,
)
from evaluator.http.h2_responses import ResponseOwner, Responses
from evaluator.http.messages import Code
from evaluator.http.peer import BATCH_BYTES, MOST_DEFERRED, QUIET_SECONDS, Port

if TYPE_CHECKING:
    from collections.abc import Callable


_PIECE: Final = 32
"""Frames that are parsed between two checks of the time budget."""


class Http2Peer(ResponseOwner):
    """One HTTP/2 connection."""

    __slots__ = (
        "_batching", "_block_since", "_bodies", "_last_read", "_left_at", "_named_last",
        "_responses", "_waiting",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self._waiting: deque[tuple[RequestReceived, float]] = deque()
        """Requests to answer with the times of their arrival: a caller's timeout includes the wait."""
        self._responses = Responses(self)
        self._bodies: dict[int, float] = {}
        """Time since which a stream's body is awaited."""
        self._batching = False
        """While set, its setter writes what is sent."""
        self._last_read = self.active
        self._block_since = inf
        """Time since which the end of a header block is awaited."""
        self._left_at: float | None = None
        """Time at which the peer was asked to open no more streams."""
        self._named_last = False
        """Whether our GOAWAY named the last stream."""

    @property
    def waiting_requests(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    @property
    def deferred_streams(self) -> list[int]:
        """Return the streams whose responses are being made."""
        return list(self._responses.making)

    # -- bytes in --------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and answer the requests that they complete (asyncio calls this)."""
        at_once = self.start_turn(len(data))
        if self.ended is None:
            self._last_read = self.clock()
            self._read(data, _PIECE if at_once else 0)

    def _read(self, data: bytes, most: int = _PIECE) -> None:
        """Parse and answer at most so many frames at a time, until all is read or the turn is over."""
        connection = self.connection
        self._batching = True
        while True:
            events = connection.receive(data, self._last_read, most)
            for event in events:
                if type(event) is RequestReceived:
                    self._waiting.append((event, self._last_read))
                    if self._bodies:
                        self._bodies.pop(event.stream_id, None)
                else:
                    self._notice(event)
            if not connection.header_block_open:
                self._block_since = inf
            elif events or self._block_since == inf:
                self._block_since = self._last_read
            if self._waiting:
                self._answer()
            if not connection.unread or self.out_of_time():
                break
            data = b""
        self._batching = False
        self._write_all()
        if connection.unread:
            self.answer_later()

    def _notice(self, event: Event) -> None:
        match event:
            case HeadersReceived(stream_id):
                if not self._responses.refuse_unknown(stream_id):
                    self._bodies[stream_id] = self._last_read
            case BodyTooLarge(stream_id, block):
                self._bodies.pop(stream_id, None)
                self._responses.refuse_body(stream_id, block)
            case StreamClosed(stream_id):
                self._bodies.pop(stream_id, None)
                self._responses.end_stream(stream_id)
            case Writable(stream_id):
                if stream_id in self._responses.streams:
                    self._responses.streams[stream_id].notify_writable()
            case ConnectionClosed():
                # Its GOAWAY is in the output, and has to be written before the connection ends.
                self._answer()
                self.write(self.connection.take_output())
                self._lose()
                self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the connection and its streams (asyncio calls this)."""
        super().connection_lost(exc)
        self._lose()
        # These objects refer to each other, and would stay until a full collection, which may be long after.
        self.connection.drop()

    def _lose(self) -> None:
        self._waiting.clear()
        self._responses.lose()

    # -- answers ---------------------------------------------------------------------------------------------

    def _answer(self, now: float | None = None) -> None:
        """Answer requests that have waited until `now`, while the peer reads and the turn lasts."""
        waiting, connection, making = self._waiting, self.connection, self._responses.making
        most, size, stopwatch = self.port.limits.write_buffer_bytes, 0, self.port.queue.stopwatch
        if waiting:
            self.active = self._last_read
        now = self._last_read if now is None else now
        while (
            waiting and not self.paused and connection.waiting_bytes <= most and len(making) < MOST_DEFERRED
        ):
            if stopwatch() >= self.until:
                self.answer_later()
                break
            event, since = waiting.popleft()
            if connection.is_open(event.stream_id):
                size += self._responses.serve(event, now - since)
                if size >= BATCH_BYTES:
                    self.write(connection.take_output())
                    size = 0

    # -- what server streams ask -----------------------------------------------------------------------------

    def write_sent(self) -> None:
        """Write what was sent, unless it is part of a batch."""
        if not self._batching:
            self._write_all()

    def write_message(self) -> None:
        """Write a message of a stream that stays open, unless it is part of a batch."""
        if not self._batching:
            self.write(self.connection.take_output())

    def _write_all(self) -> None:
        self.calm_until = 0.0
        self.write(self.connection.take_output())
        self._end_drained()
        self.update_held()

    def forget(self, stream_id: int) -> None:
        """Remove a server stream that has ended."""
        self.active = self.clock()
        self._responses.streams.pop(stream_id, None)

    # -- time and back-pressure ------------------------------------------------------------------------------

    def answer_waiting(self) -> None:
        """Answer waiting requests, then parse waiting bytes."""
        self._batching = True
        self._answer(self.clock())
        self._batching = False
        if self.connection.unread and not self._late:
            self._read(b"")
        else:
            self._write_all()

    def resume(self) -> None:
        """Answer waiting requests, then offer the transport to the streams in turn while it accepts more."""
        self.answer_waiting()
        for stream_id, stream in tuple(self._responses.streams.items()):
            if self.paused:
                break
            if stream_id in self._responses.streams:
                self._responses.streams[stream_id] = self._responses.streams.pop(stream_id)
                stream.notify_writable()

    def check(self, now: float) -> None:
        """End slow requests and late calls, ping a silent peer, and close an idle connection."""
        connection, limits = self.connection, self.port.limits
        connection.tick()
        self.active = now if connection.open_streams else self.active
        quiet = min(self.active, self._last_read) + limits.idle_seconds / 2
        if now <= quiet and self._is_calm():
            self.calm_until = quiet
            return
        self._batching = True
        for stream in tuple(self._responses.streams.values()):
            if stream.deadline is not None and now >= stream.deadline:
                stream.end(Code.DEADLINE_EXCEEDED, "deadline exceeded")
        for stream_id, since in tuple(self._bodies.items()):
            if now - since > limits.body_seconds:
                del self._bodies[stream_id]
                connection.reset(stream_id, Http2ErrorCode.CANCEL)
        self._batching = False
        silent = now - self._last_read
        if now - self._block_since > limits.header_seconds:
            self._leave(Http2ErrorCode.ENHANCE_YOUR_CALM)
        elif now - self.active > limits.idle_seconds:
            self._leave(Http2ErrorCode.NO_ERROR)
        elif connection.open_streams and silent > limits.idle_seconds:
            self.transport.abort()
        elif silent > limits.idle_seconds / 2 and not connection.unanswered_pings:
            connection.ping()
        self.write(connection.take_output())
        self._end_drained(now)
        self.update_held()

    def _is_calm(self) -> bool:
        """Return whether no time limit but those of a silent or idle connection can pass: so it is for nearly
        all of many subscribers.
        """
        if self._bodies or self._waiting or self._responses.making:
            return False
        if not self.connection.calm or self.connection.header_block_open:
            return False
        return all(stream.deadline is None for stream in self._responses.streams.values())

    def measure(self) -> int:
        """See Peer. Messages of streams do not count: most are the same bytes for many peers."""
        unread = self.transport.get_write_buffer_size() if self.paused and not self._responses.streams else 0
        return self.connection.held_bytes + unread

    def refuse(self) -> None:
        """Send the reason, unless the peer reads nothing, and drop all of its data."""
        self._lose()
        self.connection.abandon(
            Http2ErrorCode.ENHANCE_YOUR_CALM, "too many bytes are held for this connection"
        )
        if self.paused:
            self.transport.abort()
        else:
            self.write(self.connection.take_output())
            self.finish()

    # -- the end ---------------------------------------------------------------------------------------------

    def _leave(self, error: Http2ErrorCode) -> None:
        self.connection.goaway(error)
        self.write(self.connection.take_output())
        self._lose()
        self.finish()

    def drain(self) -> None:
        """Ask the peer to open no more streams; the answer to a PING shows when it has read that."""
        self._left_at = self.clock()
        self.calm_until = 0.0
        self.connection.goaway(last=False)
        self.connection.ping()
        self.write(self.connection.take_output())

    def _end_drained(self, now: float | None = None) -> None:
        """Once the peer knows that we disconnect, name the last stream; once none is open, half-close."""
        connection = self.connection
        if self.ended is not None or not connection.draining:
            return
        if self._left_at is not None and not self._named_last:
            patient = now is None or now - self._left_at < QUIET_SECONDS
            if connection.unanswered_pings and patient:
                return
            self._named_last = True
            connection.goaway()
            self.write(connection.take_output())
        if not connection.open_streams:
            self.finish()

    def cut(self) -> None:
        """End the streams that are still open, and the connection."""
        self._batching = True
        for stream in tuple(self._responses.streams.values()):
            stream.end(Code.UNAVAILABLE, "shutting down")
        self._batching = False
        self.connection.goaway()
        self.write(self.connection.take_output())
        self.transport.close()
