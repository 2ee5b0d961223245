"""Reads one HTTP/1.1 connection (RFC 9112): bytes in, whole requests or an ending status out. Pure."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import httptools

from evaluator.http.dispatch import split_target
from evaluator.http.messages import Headers, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evaluator.http.peer import Port


_KNOWN: Final = 512
"""Most names and targets whose decoded form is cached."""
LONGEST_KNOWN: Final = 64
KEPT_FIELD_BYTES: Final = 160
"""Bytes of memory that Python needs for a header beside its text."""


def read_name(sent: bytes) -> str:
    """Return a header's name in lower case, and keep it if it is short: clients use few."""
    name = sent.decode("latin-1").lower()
    if len(sent) <= LONGEST_KNOWN:
        if len(NAMES) == _KNOWN:
            NAMES.clear()
        NAMES[sent] = name
    return name


def read_target(target: bytes) -> tuple[str, str]:
    """(path, percent-decoded; query)."""
    return split_target(target.decode("latin-1"))


NAMES: Final[dict[bytes, str]] = {}
"""Lower-case header names by raw name."""
known_target: Final = lru_cache(_KNOWN)(read_target)


def size_of(fields: Iterable[tuple[str, str]], beside: int = 0) -> int:
    """Bytes of header fields, with so many beside the text of each."""
    return sum([len(name) + len(value) + beside for name, value in fields])


def held_by(request: Request) -> int:
    """About how many bytes a request takes."""
    return len(request.body) + size_of(request.headers, KEPT_FIELD_BYTES)


_PIECE: Final = 4_096
"""Bytes that are parsed between two checks of the time budget."""
MOST_FIELDS: Final = 256
_SHORT_BODY: Final = 4096
"""Bytes that come with their head as a rule: read whatever the path is, so that the connection is kept."""


Asked: TypeAlias = tuple[Request, float, str, bool]
"""A request, when it began to come, its response's `connection` header, whether chunks are allowed."""


class Phase(IntEnum):
    """What is being read."""

    IDLE = 0
    HEAD = 1
    BODY = 2


_IDLE: Final = Phase.IDLE
_HEAD: Final = Phase.HEAD
_BODY: Final = Phase.BODY


class _Refused(Exception):
    """Stops the parser: the request will not be read further."""


class Reader:
    """The receiving side. Methods named on_* are httptools' callbacks."""

    __slots__ = (
        "_body", "_came", "_clock", "_fed", "_fields", "_headers", "_keeps", "_limits", "_method", "_parser",
        "_pieces", "_port", "_resumed", "_size", "_spliced", "_target", "_version",
        "began", "expects", "keep", "peer", "phase", "queue", "refusal", "refused", "since",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self._port = port
        self._limits = port.limits
        self._clock = clock
        self._parser: Any = httptools.HttpRequestParser(self)
        self._pieces: deque[bytes] = deque()
        """Received bytes that are not parsed yet."""
        self._came = clock()
        """Time at which the newest bytes arrived."""
        self.peer = ""
        """The client of the connection."""
        self.queue: deque[Asked] = deque()
        """Requests to answer."""
        self.refusal: Response | None = None
        """The response to a request whose body is not read, behind the queue."""
        self.refused = 0
        """Status that ends the connection once the queue is answered."""
        self.keep = True
        """False once nothing more is to be read: a request is refused, or was the connection's last."""
        self.began = self.since = self._resumed = self._came
        """Times at which the newest request, and its current head or body, began to arrive."""
        self._method, self._version, self._keeps = "", "", True
        self._begin()

    @property
    def pending(self) -> bool:
        """Whether requests wait, or bytes that may be some."""
        return bool(self.queue or self._pieces)

    @property
    def held_bytes(self) -> int:
        """About how many bytes what was not answered makes us keep."""
        if self.phase is _IDLE and not (self.queue or self._pieces):
            return 0
        size = sum(map(len, self._pieces))
        if self.phase is not _IDLE:
            fields = (*self._headers, *self._fields)
            size += len(self._target) + size_of(fields, KEPT_FIELD_BYTES) + self._size
        return size + sum([held_by(request) for request, *_ in self.queue])

    def resume(self, now: float) -> None:
        """Exclude from the peer's time limits the time in which its bytes waited here."""
        self.since += now - max(self._came, self._resumed)
        self._resumed = now

    def end(self) -> None:
        """Make the request in progress the last: requests queued behind it are dropped."""
        self.queue.clear()
        self._pieces.clear()
        self.keep, self.refused = False, 0

    def refuse(self, status: int) -> None:
        """Drop all received data, and end the connection with `status`."""
        self.end()
        self._begin()
        self.refusal, self.refused = None, status

    def drop(self) -> None:
        """Drop all received data of a closed connection."""
        self.refuse(0)
        # The two refer to each other, and would stay until a full collection, which may be long after.
        self._parser = None

    def finish(self) -> None:
        """Parse the remaining bytes: the peer sends no more."""
        while self._pieces:
            self.read_on()
        self.keep = False

    def feed(self, data: bytes) -> None:
        """Have `data` read by `read_on`."""
        self._came = self._clock()
        if len(data) <= _PIECE:
            self._pieces.append(data)
        else:
            self._pieces.extend([data[at : at + _PIECE] for at in range(0, len(data), _PIECE)])

    def read_on(self) -> None:
        """Read the next piece."""
        data, within = self._pieces.popleft(), self.phase is _HEAD
        size = len(data)
        while data and self.keep:
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as upgrade:
                # We upgrade nothing, but the parser stops here, before the body if there is one.
                data = self._body_framing() + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                if self.keep:
                    self.keep, self.refused = False, 400
        if self.phase is not _IDLE and self.keep and self._is_oversized(size if within else 0):
            self.keep, self.refused = False, 431
        if not self.keep:
            self._pieces.clear()

    def _is_oversized(self, fed: int) -> bool:
        """Whether an unfinished request, of whose head `fed` bytes more came, has more fields than it may.

        The parser keeps an unfinished name or value to itself, so its size shows only in what was fed.
        """
        if self.phase is _HEAD:
            self._fed += fed
            return self._fed > self._limits.header_bytes or len(self._fields) > MOST_FIELDS
        return bool(self._fields) and self._too_large()

    def _too_large(self) -> bool:
        """Whether the head and its trailers, as far as they are read, are more than a peer may send."""
        size = len(self._target) + size_of(self._headers) + size_of(self._fields)
        return len(self._fields) > MOST_FIELDS or size > self._limits.header_bytes

    def _body_framing(self) -> bytes:
        """A head that makes the parser read the body of the request at hand, which keeps its own head."""
        if not self._spliced:
            return b""
        names = ("content-length", "transfer-encoding")
        lines = [f"{n}: {v}\r\n" for n, v in self._headers if n in names]
        return f"POST / HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    # -- httptools -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Keep nothing of a request."""
        self.phase = _IDLE
        self.expects = self._spliced = False
        self._target = b""
        self._headers: Headers = ()
        self._body: list[bytes] = []
        self._fields: list[tuple[str, str]] = []
        """Headers of the head while it is read, then trailers."""
        self._fed = self._size = 0

    def _refuse(self, status: int) -> None:
        self.keep, self.refused = False, status
        raise _Refused

    def _refuse_body(self) -> None:
        path, _ = read_target(self._target)
        self.refusal = self._port.dispatch.too_large(path, self._headers)
        self._refuse(413)

    def _refuse_unknown(self) -> None:
        dispatch = self._port.dispatch
        if not dispatch.knows(read_target(self._target)[0]):
            self.refusal = dispatch.unknown(self._headers)
            self._refuse(404)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._spliced:
            return
        if not self.keep:
            # After an upgrade the parser does not know that the request was the connection's last.
            raise _Refused
        self.phase = _HEAD
        self.since = self.began = self._came

    def on_url(self, piece: bytes) -> None:
        """Take in a piece of the request target."""
        if not self._spliced:
            self._target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: trailers count and are dropped."""
        self._fields.append((NAMES.get(name) or read_name(name), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The end of a head: refuse here what need not be read."""
        fields, self._fields = self._fields, []
        if self._spliced:
            self._spliced = False
            return
        parser, limits = self._parser, self._limits
        self._headers = headers = tuple(fields)
        if len(headers) > MOST_FIELDS or (self._fed + _PIECE > limits.header_bytes and self._too_large()):
            self._refuse(431)
        self.phase, self.since = _BODY, self._came
        known = {name: value for name, value in headers}  # noqa: C416 - compiled, dict() takes twice as long
        # Read here: the parser that completes the message may have begun another.
        self._method, keeps = parser.get_method().decode(), parser.should_keep_alive()
        version = "1.1" if keeps and "connection" not in known else parser.get_http_version()
        if ("host" not in known and version == "1.1") or (
            len(known) < len(headers) and sum(name == "host" for name, _ in headers) > 1
        ):
            self._refuse(400)
        chunked, length = "transfer-encoding" in known, int(known.get("content-length") or 0)
        if 0 < limits.body_bytes < length:
            self._refuse_body()
        if chunked or length > _SHORT_BODY:
            self._refuse_unknown()
        if "expect" in known:
            self.expects = version == "1.1" and known["expect"].lower() == "100-continue"
        self._spliced = (chunked or length > 0) and parser.should_upgrade()
        self._version = version
        # A client of HTTP/1.0 may not know where a chunked body ends (RFC 9112 section 6.1).
        self._keeps = keeps and self._method != "CONNECT" and not (chunked and version == "1.0")

    def on_body(self, piece: bytes) -> None:
        """Take in a piece of the body."""
        self.expects = False
        self._body.append(piece)
        self._size += len(piece)
        if 0 < self._limits.body_bytes < self._size:
            self._refuse_body()

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._spliced:
            return
        if self._fields and self._too_large():
            self._refuse(431)
        target = self._target
        path, query = (known_target if len(target) <= LONGEST_KNOWN else read_target)(target)
        request = Request(self._method, path, query, self._headers, b"".join(self._body), self.peer)
        self.keep = keep = self._keeps
        old = self._version == "1.0"
        self.queue.append((request, self.began, ("keep-alive" if old else "") if keep else "close", not old))
        self._begin()
