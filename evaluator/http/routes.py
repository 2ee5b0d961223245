"""The seam between frames and handlers: a table from (protocol, path) to a handler that knows nothing of frames.

Unary handlers are plain functions, called in place on the loop: they must return within microseconds, or defer their answer. What
lasts longer is a stream, which is told when it may write and never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Names in lower case, in order of arrival; repeated names stay apart."""


class Code(IntEnum):
    """gRPC status codes that we send (https://grpc.io/docs/guides/status-codes/)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """Raised by an RPC handler to end the call with a status other than OK."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def too_late() -> RpcError:
    """What ends a call whose caller waits no longer."""
    return RpcError(Code.DEADLINE_EXCEEDED, "deadline exceeded")


def header(headers: Headers, name: str) -> str | None:
    """The first value of `name` (lower case), or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """One RPC as its handler sees it."""

    path: str
    """`/package.Service/Method`."""
    headers: Headers
    peer: str


@dataclass(frozen=True, slots=True)
class Request:
    """One plain HTTP request, read whole."""

    method: str
    path: str
    """Percent-decoded, without the query."""
    query: str
    headers: Headers
    body: bytes
    peer: str
    waited: float = 0.0
    """Seconds since it came, behind others of its connection."""


@dataclass(frozen=True, slots=True)
class Response:
    """One plain HTTP response; the listener adds content-length and date."""

    status: int
    body: bytes = b""
    headers: Headers = ()


class ByteStream(Protocol):
    """The body of a response that is sent as it comes. The rules are MessageStream's; what is sent is bytes, not messages."""

    on_writable: Callable[[], None] | None
    """Called once flow control and the transport take more, after `writable` was False."""
    on_closed: Callable[[], None] | None
    """Called once when the response has ended for whatever reason but `close`."""

    @property
    def code(self) -> Code:
        """Why `on_closed` is called: the status that our side sent, CANCELLED where the peer ended it or is gone."""

    @property
    def writable(self) -> bool:
        """True while open and nothing sent before is still waiting in a buffer of ours."""

    @property
    def closed(self) -> bool:
        """True once ended by either side."""

    def send(self, piece: bytes) -> None:
        """Send the next bytes of the body."""

    def close(self, last: bytes = b"") -> None:
        """End the body well, with `last` behind whatever waits; harmless if it has ended."""

    def break_off(self) -> None:
        """End the body so that the peer can tell it from one that ended well; harmless if it has ended. `on_closed` is not called."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A plain HTTP response whose body lasts: headers at once, then whatever `start` sends, for as long as it likes."""

    status: int
    """Of a response that may have a body: not 204, not 304."""
    headers: Headers
    """With a content-length just as many bytes are to be sent."""
    start: Callable[[ByteStream], None]
    """Called once the headers are sent: keeps the ByteStream, sets its callbacks, returns at once. Not called for HEAD."""
    ending: Callable[[Code, str], bytes] | None = None
    """The last bytes of a body that we end for our own reasons, where its format has words for them."""
    seconds: float | None = None
    """How long the caller waits for the end; DEADLINE_EXCEEDED then."""


@dataclass(frozen=True, slots=True)
class Deferred(Generic[T]):
    """An answer that takes milliseconds: it is made a few steps at a time, others being answered in between.

    If whoever asked is gone before the end, `steps` is closed.
    """

    steps: Generator[None, None, T]
    """Yields after at most some hundred microseconds; returns the answer, or raises what a handler may raise."""
    seconds: float | None = None
    """How long the caller waits; DEADLINE_EXCEEDED then."""

    def through(
        self, run: Callable[[Generator[None, None, T]], Generator[None, None, R]]
    ) -> Deferred[R]:
        """What `run` makes of the steps: it delegates to them at once, and sees their end even if it comes before their turn."""
        steps = run(_held(self.steps))
        next(steps)
        return Deferred(steps, self.seconds)

    def then(self, finish: Callable[[T], R]) -> Deferred[R]:
        """`finish` of the same answer."""

        def finished(steps: Generator[None, None, T]) -> Generator[None, None, R]:
            return finish((yield from steps))

        return self.through(finished)

    def watched(
        self, well: Callable[[T], None], ill: Callable[[BaseException], None]
    ) -> Deferred[T]:
        """The same answer, one of the two told of its end: GeneratorExit is that nobody waits for it any more."""

        def followed(steps: Generator[None, None, T]) -> Generator[None, None, T]:
            try:
                answer = yield from steps
            except BaseException as error:
                ill(error)
                raise
            well(answer)
            return answer

        return self.through(followed)

    def timed(self, clock: Callable[[], float]) -> Deferred[T]:
        """The same answer, its `seconds` counted from now on `clock`: after them the steps get the error to end with."""
        if self.seconds is None:
            return self
        steps = self._timed(clock() + self.seconds, clock)
        # Begun, so that closing it closes what it times.
        next(steps)
        return Deferred(steps)

    def _timed(self, until: float, clock: Callable[[], float]) -> Generator[None, None, T]:
        try:
            yield
            while clock() < until:
                next(self.steps)
                yield
            self.steps.throw(too_late())
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            self.steps.close()
        raise too_late()


def _held(steps: Generator[None, None, T]) -> Generator[None, None, T]:
    """`steps` behind a first yield, at which they get what is thrown as if they had begun."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - theirs to raise
        try:
            steps.throw(error)
        except StopIteration as end:
            answer: T = end.value
            return answer
    return (yield from steps)


def at_once(steps: Generator[None, None, T]) -> T:
    """The answer of steps that are few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


class MessageStream(Protocol):
    """A server stream, open. All calls happen on the loop; none blocks.

    The subscriber owns latest-value-wins: it sends only while `writable`, and when `on_writable` comes it sends what is newest
    by then. `send` on a stream that is not writable or has ended is a programming error and raises RuntimeError.
    """

    on_writable: Callable[[], None] | None
    """Called once flow control and the transport take more, after `writable` was False."""
    on_closed: Callable[[], None] | None
    """Called once when the stream has ended for whatever reason but `close`."""

    @property
    def code(self) -> Code:
        """Why `on_closed` is called: the status that our side sent, CANCELLED where the peer ended it or is gone."""

    @property
    def writable(self) -> bool:
        """True while open and nothing sent before is still waiting in a buffer of ours."""

    @property
    def closed(self) -> bool:
        """True once ended by either side."""

    def send(self, message: bytes) -> None:
        """Send one message (serialised, unframed)."""

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with a status; harmless if it has ended."""


UnaryHandler: TypeAlias = Callable[[Call, bytes], bytes | Deferred[bytes]]
"""(call, request message) -> response message; raises RpcError. Anything else raised is answered INTERNAL and logged."""

StreamHandler: TypeAlias = Callable[[Call, bytes, MessageStream], None]
"""Starts a server stream: keeps the MessageStream, sets its callbacks, returns at once; raises RpcError to refuse."""

Answer: TypeAlias = Response | Streamed | Deferred[Response]
"""What a plain request may come to."""

HttpHandler: TypeAlias = Callable[[Request], Answer]


@dataclass(frozen=True, slots=True)
class Routes:
    """What one port answers. All protocols share it: gRPC, gRPC-Web and Connect are known by content-type.

    An RPC path is a plain one to nobody: it shadows a route of `http` with the same path.
    """

    unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """By RPC path, `/package.Service/Method`."""
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    json_unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    """The same calls with messages in protobuf's JSON mapping, for Connect; a path that is missing has no JSON."""
    json_streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    idempotent: frozenset[str] = frozenset()
    """RPC paths without side effects: Connect may GET them."""
    http: Mapping[tuple[str, str], HttpHandler] = field(default_factory=dict)
    """By (method, exact path), or (method, prefix ending in `/*`): the longest match wins. An unknown path is 404, a known
    path with another method 405 with `allow`."""


def merged(*several: Routes) -> Routes:
    """All of them on one port. Raises ValueError for a path that two of them answer."""
    taken: set[object] = set()
    for routes in several:
        own = {*routes.unary, *routes.streams, *routes.http}
        if twice := taken & own:
            raise ValueError(f"answered by two: {', '.join(sorted(map(str, twice)))}")
        taken |= own
    return Routes(
        unary={path: run for routes in several for path, run in routes.unary.items()},
        streams={path: run for routes in several for path, run in routes.streams.items()},
        json_unary={path: run for routes in several for path, run in routes.json_unary.items()},
        json_streams={path: run for routes in several for path, run in routes.json_streams.items()},
        idempotent=frozenset().union(*(routes.idempotent for routes in several)),
        http={key: run for routes in several for key, run in routes.http.items()},
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may use of us, on one port; a breach gets the protocol's error."""

    body_bytes: int = 1_000_000
    """Request body or message; 413 over HTTP, RESOURCE_EXHAUSTED over gRPC. 0: no limit."""
    header_bytes: int = 1_000_000
    """Decoded header block; 431 over HTTP. 0 is refused: a limit is always kept."""
    streams_per_connection: int = 250
    connections: int = 20_000
    header_seconds: float = 3.0
    """From a connection's first byte to a whole header block."""
    body_seconds: float = 5.0
    """From a header block to its whole body."""
    idle_seconds: float = 300.0
    """A connection without an open stream or request is closed after this."""
    resets_per_second: int = 100
    """RST_STREAM frames of the peer's, and as many PING, SETTINGS and empty frames; over it GOAWAY(ENHANCE_YOUR_CALM)."""
    ping_seconds: float = 0.0
    """The least time between a peer's pings; after two that come early GOAWAY(ENHANCE_YOUR_CALM)."""
    pings_without_stream: bool = True
    write_buffer_bytes: int = 1_048_576
    """A connection whose peer reads nothing is closed once this much waits for it."""
