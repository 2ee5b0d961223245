"""HTTP/2 on one connection: what the state machine reports, to handlers, and what they answer, back.

Whatever one read brings is answered in one write. While the transport or flow control holds back too much, requests wait
unanswered, so that a peer that reads nothing makes us keep small requests and not large responses.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from evaluator.http.backlog import TURN_SECONDS
from evaluator.http.connection import Connection
from evaluator.http.events import (
    BodyTooLarge,
    ConnectionClosed,
    Event,
    HeadersReceived,
    HeadersTooLarge,
    RequestReceived,
    StreamClosed,
    Writable,
)
from evaluator.http.frames import ErrorCode
from evaluator.http.framing import START, TRAILERS, frame, only_message, trailers_only
from evaluator.http.hpack import encode_block
from evaluator.http.multiplexed import DataBody, ServerStream
from evaluator.http.peer import BATCH_BYTES, QUIET_SECONDS, Peer, Port
from evaluator.http.routes import (
    Code,
    Deferred,
    Headers,
    Request,
    Response,
    RpcError,
    Streamed,
    too_late,
)
from evaluator.http.rpc import Meaning, Plain, Streaming, Unary, choose
from evaluator.http.slices import MOST_DEFERRED
from evaluator.http.statuses import BODILESS, refusal
from evaluator.http.streaming import OpenStream, failed, response_of
from evaluator.http.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.slices import Job, Result

_KNOWN: Final = 64
_KNOWN_BYTES: Final = 4_096


@lru_cache(maxsize=256)
def _start(status: int, headers: Headers) -> bytes:
    return encode_block(((":status", str(status)), *headers))


class Http2Peer(Peer):
    """One HTTP/2 connection."""

    __slots__ = (
        "_batching", "_block_since", "_bodies", "_heard", "_jobs", "_known", "_left_at", "_parted", "_streams", "_waiting",
        "connection",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        super().__init__(port, clock)
        self.connection = Connection(port.limits)
        self._waiting = Waiting()
        self._streams: dict[int, OpenStream] = {}
        """Responses that last; whoever was offered the transport last stands last."""
        self._jobs: dict[int, Job[Any]] = {}
        """Responses that are being made."""
        self._bodies: dict[int, float] = {}
        """Since when we wait for a body."""
        self._known: dict[int, tuple[Headers, Meaning]] = {}
        """What earlier headers were for, by identity: the decoder gives the same tuple for the same bytes."""
        self._batching = False
        """What is sent now is written by whoever set this."""
        self._heard = self._block_since = self.active
        self._left_at: float | None = None
        """When we asked the peer to open no more streams."""
        self._parted = False
        """We have said which stream was the last."""

    # -- bytes in ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take in what `data` completes, and answer it (asyncio calls this)."""
        if self.ended is not None:
            return
        self._heard = self.clock()
        self._batching = True
        events = self.connection.receive(data, self._heard)
        for event in events:
            if type(event) is RequestReceived:
                self._waiting.append(event)
                if self._bodies:
                    self._bodies.pop(event.stream_id, None)
            else:
                self._notice(event)
        if events or not self.connection.header_block_open:
            self._block_since = self._heard
        self._answer()
        if self._waiting:
            self._waiting.stay(self._heard)
        self._batching = False
        self._part()

    def _notice(self, event: Event) -> None:
        match event:
            case HeadersReceived(stream_id):
                self._bodies[stream_id] = self._heard
            case HeadersTooLarge(stream_id):
                self._respond(stream_id, refusal(431))
            case BodyTooLarge(stream_id, headers):
                self._bodies.pop(stream_id, None)
                self._refuse_body(stream_id, headers)
            case StreamClosed(stream_id):
                self._bodies.pop(stream_id, None)
                if stream_id in self._streams:
                    self._streams[stream_id].lost()
                elif stream_id in self._jobs:
                    self._jobs.pop(stream_id).cancel()
            case Writable(stream_id):
                if stream_id in self._streams:
                    self._streams[stream_id].offer()
            case ConnectionClosed():
                # Its GOAWAY is in the output, and has to be written before the connection ends.
                self._answer()
                self._lose()
                self.finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and its streams with it (asyncio calls this)."""
        super().connection_lost(exc)
        self._lose()

    def _lose(self) -> None:
        self._waiting.clear()
        for job in self._jobs.values():
            job.cancel()
        self._jobs.clear()
        for stream in tuple(self._streams.values()):
            stream.lost()

    # -- answers -------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Answer what waits for as long as the peer takes it, then write what is left to write."""
        waiting, connection, jobs = self._waiting, self.connection, self._jobs
        most, stopwatch = self.port.limits.write_buffer_bytes, self.port.backlog.stopwatch
        until = stopwatch() + TURN_SECONDS
        if waiting:
            self.active = self._heard
        while (
            waiting
            and not self.paused
            and connection.waiting_bytes <= most
            and len(jobs) < MOST_DEFERRED
        ):
            if stopwatch() >= until:
                self.answer_later()
                break
            size = 0
            while (
                waiting and size < BATCH_BYTES and len(jobs) < MOST_DEFERRED and stopwatch() < until
            ):
                event = waiting.popleft()
                since = waiting.since.pop(event.stream_id, None) if waiting.since else None
                if connection.is_open(event.stream_id):
                    waited = 0.0 if since is None else self.clock() - since
                    size += self._serve(event, waited)
            self.write(connection.take_output())
        if waiting:
            for stream_id in waiting.excess():
                # Who was refused may safely try again.
                connection.reset(stream_id, ErrorCode.REFUSED_STREAM)
        self.write(connection.take_output())

    def _serve(self, event: RequestReceived, waited: float) -> int:
        """Answer one request that has waited for some seconds; about how many bytes that took."""
        known = self._known.get(id(event.headers))
        meaning = known[1] if known is not None else self._learn(event.headers)
        if type(meaning) is Unary:
            return self._unary(event, meaning, waited)
        if type(meaning) is Plain:
            return self._plain(event, meaning, waited)
        if type(meaning) is Streaming:
            self._open(event, meaning, waited)
        elif type(meaning) is bytes:
            self.connection.send_headers(event.stream_id, meaning, end_stream=True)
        elif type(meaning) is Response:
            return self._respond(event.stream_id, meaning)
        return 0

    def _learn(self, headers: Headers) -> Meaning:
        if len(self._known) >= _KNOWN:
            self._known.clear()
        meaning = choose(self.port.routes, headers, self.name)
        if sum(len(value) for _, value in headers) <= _KNOWN_BYTES:
            self._known[id(headers)] = headers, meaning
        return meaning

    def _unary(self, event: RequestReceived, rpc: Unary, waited: float) -> int:
        left = None if rpc.seconds is None else rpc.seconds - waited
        if left is not None and left <= 0:
            return self._fail(event.stream_id, rpc, too_late())
        try:
            request = only_message(event.body, rpc.encoding, self.port.limits.body_bytes)
            answer = rpc.handler(rpc.call, request)
        except Exception as error:  # noqa: BLE001 - _fail logs it
            return self._fail(event.stream_id, rpc, error)
        if isinstance(answer, Deferred):
            answer = Deferred(answer.steps, left)
            self._defer(event.stream_id, answer, partial(self._made, rpc))
            return 0
        return self._send(event.stream_id, answer)

    def _made(self, rpc: Unary, stream_id: int, result: Result[bytes]) -> int:
        try:
            answer = result()
        except Exception as error:  # noqa: BLE001 - _fail logs it
            return self._fail(stream_id, rpc, error)
        return self._send(stream_id, answer)

    def _send(self, stream_id: int, message: bytes) -> int:
        self.connection.send_response(stream_id, START, frame(message), TRAILERS)
        return len(message)

    def _fail(self, stream_id: int, rpc: Unary, error: Exception) -> int:
        self._end(stream_id, error if isinstance(error, RpcError) else failed(rpc.call.path))
        return 0

    def _defer(
        self, stream_id: int, answer: Deferred[Any], respond: Callable[[int, Result[Any]], int]
    ) -> None:
        """Have an answer made; `respond` to it then, and go on with what has waited for its place."""

        def made(result: Result[Any]) -> None:
            del self._jobs[stream_id]
            respond(stream_id, result)
            self.go_on()

        self._jobs[stream_id] = self.port.slices.start(answer.timed(self.clock), made)

    def _open(self, event: RequestReceived, rpc: Streaming, waited: float) -> None:
        stream_id, call = event.stream_id, rpc.call
        stream = ServerStream(self, stream_id)
        try:
            if rpc.seconds is not None:
                stream.deadline = self.clock() + rpc.seconds - waited
            request = only_message(event.body, rpc.encoding, self.port.limits.body_bytes)
            self._streams[stream_id] = stream
            rpc.handler(call, request, stream)
        except RpcError as error:
            stream.close(error.code, error.message)
        except Exception:  # noqa: BLE001 - failed logs it
            failure = failed(call.path)
            stream.close(failure.code, failure.message)
        else:
            stream.start()

    def _end(self, stream_id: int, error: RpcError) -> None:
        block = trailers_only(error.code, error.message)
        self.connection.send_headers(stream_id, block, end_stream=True)

    def _plain(self, event: RequestReceived, plain: Plain, waited: float) -> int:
        method, path, query, headers = plain.method, plain.path, plain.query, plain.headers
        request = Request(method, path, query, headers, event.body, self.name, waited)
        answer = self.port.dispatch.answer(request)
        head_only = method == "HEAD"
        if isinstance(answer, Response):
            return self._respond(event.stream_id, answer, head_only=head_only)
        if isinstance(answer, Deferred):
            self._defer(
                event.stream_id,
                answer,
                lambda at, result: self._respond(at, response_of(result), head_only=head_only),
            )
            return 0
        self._begin(event.stream_id, answer, head_only=head_only)
        return 0

    def _begin(self, stream_id: int, answer: Streamed, *, head_only: bool) -> None:
        block = _start(answer.status, answer.headers) + encode_block([("date", self.port.date)])
        self.connection.send_headers(stream_id, block, end_stream=head_only)
        if not head_only:
            until = None if answer.seconds is None else self.clock() + answer.seconds
            body = DataBody(self, stream_id, answer.ending, until)
            self._streams[stream_id] = body
            body.begin(answer.start)

    def _refuse_body(self, stream_id: int, headers: Headers) -> None:
        meaning = choose(self.port.routes, headers, self.name)
        if type(meaning) is Plain:
            answer = self.port.dispatch.too_large(meaning.path, meaning.headers)
            self._respond(stream_id, answer)
        else:
            self._end(stream_id, RpcError(Code.RESOURCE_EXHAUSTED, "request too large"))

    def _respond(self, stream_id: int, response: Response, *, head_only: bool = False) -> int:
        body, rest = response.body, [("date", self.port.date)]
        if response.status in BODILESS:
            body = b""
        else:
            rest.append(("content-length", str(len(body))))
        block = _start(response.status, response.headers) + encode_block(rest)
        self.connection.send_response(stream_id, block, b"" if head_only else body, None)
        return len(body)

    # -- what server streams ask ---------------------------------------------------------------------------------

    def wrote(self) -> None:
        """Something was sent: write it, unless it is part of a batch."""
        if not self._batching:
            self.write(self.connection.take_output())
            self._part()

    def forget(self, stream_id: int) -> None:
        """A server stream has ended."""
        self._streams.pop(stream_id, None)

    # -- time and back-pressure ----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Answer what has waited."""
        self._answer()
        self._part()

    def resumed(self) -> None:
        """Answer what waits, then offer the transport to the streams in turn, for as long as it takes more."""
        self._answer()
        for stream_id, stream in tuple(self._streams.items()):
            if self.paused:
                break
            if stream_id in self._streams:
                self._streams[stream_id] = self._streams.pop(stream_id)
                stream.offer()
        self._part()

    def check(self, now: float) -> None:
        """End slow requests and calls past their deadline; ask a silent peer for a sign of life; let an idle one go."""
        connection, limits = self.connection, self.port.limits
        connection.tick()
        self._batching = True
        for stream in tuple(self._streams.values()):
            if stream.deadline is not None and now >= stream.deadline:
                stream.end(Code.DEADLINE_EXCEEDED, "deadline exceeded")
        for stream_id, since in tuple(self._bodies.items()):
            if now - since > limits.body_seconds:
                del self._bodies[stream_id]
                connection.reset(stream_id, ErrorCode.CANCEL)
        self._batching = False
        self.active = now if connection.open_streams else self.active
        silent = now - self._heard
        if connection.header_block_open and now - self._block_since > limits.header_seconds:
            self._leave(ErrorCode.ENHANCE_YOUR_CALM)
        elif now - self.active > limits.idle_seconds:
            self._leave(ErrorCode.NO_ERROR)
        elif connection.open_streams and silent > limits.idle_seconds:
            self.transport.abort()
        elif silent > limits.idle_seconds / 2 and not connection.unanswered_pings:
            connection.ping()
        self.write(connection.take_output())
        self._part(now)

    # -- the end -------------------------------------------------------------------------------------------------

    def _leave(self, error: ErrorCode) -> None:
        self.connection.goaway(error)
        self.write(self.connection.take_output())
        self._lose()
        self.finish()

    def drain(self) -> None:
        """Ask for no more streams, and by a PING learn when the peer has read that."""
        self._left_at = self.clock()
        self.connection.goaway(last=False)
        self.connection.ping()
        self.write(self.connection.take_output())

    def _part(self, now: float | None = None) -> None:
        """Once the peer knows that we leave, say which stream was the last; once none is open, finish."""
        connection = self.connection
        if self.ended is not None or not connection.draining:
            return
        if self._left_at is not None and not self._parted:
            patient = now is None or now - self._left_at < QUIET_SECONDS
            if connection.unanswered_pings and patient:
                return
            self._parted = True
            connection.goaway()
            self.write(connection.take_output())
        if not connection.open_streams:
            self.finish()

    def cut(self) -> None:
        """End the streams that are still open, and the connection."""
        self._batching = True
        for stream in tuple(self._streams.values()):
            stream.end(Code.UNAVAILABLE, "shutting down")
        self._batching = False
        self.connection.goaway()
        self.write(self.connection.take_output())
        self.transport.close()
