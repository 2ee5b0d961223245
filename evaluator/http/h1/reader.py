"""Read one HTTP/1.1 connection (RFC 9112): bytes in, whole requests or an ending status out. No I/O."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import httptools

from evaluator.http.h1.head import read_plain
from evaluator.http.messages import Request, Response
from evaluator.http.server.dispatch import split_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.server.peer import Port

_PIECE: Final = 4_096
"""Bytes that are parsed between two looks at the clock."""
MOST_FIELDS: Final = 256
_FRAMING: Final = frozenset({"host", "content-length", "transfer-encoding", "expect"})
_LONGEST_NAME: Final = 64
_SHORT_BODY: Final = 4096
"""Bytes that come with their head as a rule: read whatever the path is, so that the connection is kept."""
_KEPT_FIELD_BYTES: Final = 160
"""What Python takes for a header beside its text."""

Asked: TypeAlias = tuple[Request, float, str, bool]
"""A request, when it began to come, its response's `connection` header, whether chunks are allowed."""


@lru_cache(maxsize=512)
def _known_name(name: bytes) -> str:
    """Clients use few."""
    return name.decode("latin-1").lower()


def held_by(request: Request) -> int:
    """About how many bytes a request takes."""
    fields = sum([len(name) + len(value) + _KEPT_FIELD_BYTES for name, value in request.headers])
    return len(request.body) + fields


class Phase(IntEnum):
    """What is being read."""

    IDLE = 0
    HEAD = 1
    BODY = 2


class _Refused(Exception):
    """Stops the parser: the request will not be read further."""


class Reader:
    """The receiving side. Methods named on_* are httptools' callbacks."""

    __slots__ = (
        "_at", "_body", "_came", "_clock", "_fed", "_fields", "_head_size", "_keeps", "_limits", "_method",
        "_parser", "_port", "_resumed", "_size", "_spliced", "_target", "_unread", "_version",
        "began", "expects", "keep", "peer", "phase", "queue", "refusal", "refused", "since",
    )  # fmt: skip

    def __init__(self, port: Port, clock: Callable[[], float]) -> None:
        self._port = port
        self._limits = port.limits
        self._clock = clock
        self._parser: Any = httptools.HttpRequestParser(self)
        self._spliced = False
        self._unread = b""
        self._at = 0
        """How much of that is read."""
        self._came = clock()
        """When the newest bytes came."""
        self.peer = ""
        """The client of the connection."""
        self.queue: deque[Asked] = deque()
        """Requests to answer."""
        self.refusal: Response | None = None
        """The response to a request whose body is not read, behind the queue."""
        self.refused = 0
        """Status that ends the connection once the queue is answered."""
        self.keep = True
        """False after a request that is the connection's last."""
        self.expects = False
        """A body waits for `100 Continue`."""
        self.phase = Phase.IDLE
        self.began = self.since = self._resumed = self._came
        """When the newest request began to come, and since when its head or body does."""
        self._begin()

    @property
    def pending(self) -> bool:
        """Whether requests wait, or bytes that may be some."""
        return bool(self.queue) or self._at < len(self._unread)

    @property
    def held(self) -> int:
        """About how many bytes what was not answered makes us keep."""
        size = len(self._unread)
        if self.phase is not Phase.IDLE:
            size += self._head_size + self._size + _KEPT_FIELD_BYTES * len(self._fields)
        if self.queue:
            size += sum(held_by(request) for request, *_ in self.queue)
        return size

    def stopped(self) -> bool:
        """Whether nothing more is to be read."""
        return self.refused != 0 or not self.keep

    def resume(self, now: float) -> None:
        """Count against the peer no time in which what it sent waited for us."""
        self.since += now - max(self._came, self._resumed)
        self._resumed = now

    def end(self) -> None:
        """The request that is being answered was the last: what waits behind it is dropped."""
        self.queue.clear()
        self.keep, self.refused, self._unread = False, 0, b""

    def refuse(self, status: int) -> None:
        """Keep nothing of what was read, and end the connection with `status`."""
        self.end()
        self._begin()
        self.phase, self.expects, self.refusal, self.refused = Phase.IDLE, False, None, status

    def drop(self) -> None:
        """Keep nothing of what was read: the connection is over."""
        self.refuse(0)
        # Each refers to the other, and would live until a full collection, which may be long after.
        self._parser = None

    def finish(self) -> None:
        """The peer sends no more: read what it sent."""
        while self._at < len(self._unread):
            self.read_on()
        self.keep = False

    def feed(self, data: bytes) -> None:
        """Have `data` read by `read_on`."""
        self._unread, self._at = self._unread[self._at :] + data, 0
        self._came = self._clock()

    def read_on(self) -> None:
        """Read the next piece."""
        data = self._unread
        if self._at or len(data) > _PIECE:
            data = data[self._at : self._at + _PIECE]
        self._at += len(data)
        if self.phase is Phase.IDLE:
            data = self._plain(data)
        if data:
            self._parse_on(data)
        if self.stopped() or self._at >= len(self._unread):
            self._unread, self._at = b"", 0

    def _parse_on(self, data: bytes) -> None:
        # The parser keeps an unfinished name or value to itself, so its size shows only in what was fed.
        within = self.phase is Phase.HEAD
        self._parse(data)
        if within and self.phase is Phase.HEAD and not self.refused:
            self._fed += len(data)
            self.refused = 431 if self._fed > self._limits.header_bytes else 0

    def _plain(self, data: bytes) -> bytes:
        """Read the plain requests that `data` begins with; the rest of it."""
        at = 0
        while at < len(data) and (found := read_plain(data, at, self._limits, self.peer)):
            request, at = found
            self.began = self._came
            self.queue.append((request, self._came, "", True))
        return data[at:]

    def _parse(self, data: bytes) -> None:
        while not self.stopped():
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                # We upgrade nothing, but the parser stops here, before the body if there is one.
                data = self._body_framing() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserError:
                self.refused = self.refused if self.stopped() else 400
            else:
                return

    def _body_framing(self) -> bytes:
        """A head that makes a fresh parser read the body of the request at hand, which keeps its own head."""
        if not self._spliced:
            return b""
        names = ("content-length", "transfer-encoding")
        lines = [f"{n}: {v}\r\n" for n, v in self._fields if n in names]
        return f"POST / HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    # -- httptools -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._target = b""
        self._version = self._method = ""
        self._keeps = True
        self._fields: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._head_size = self._fed = self._size = 0

    def _refuse(self, status: int) -> None:
        self.refused = status
        raise _Refused

    def _refuse_body(self) -> None:
        path, _ = split_target(self._target.decode("latin-1"))
        self.refusal = self._port.dispatch.too_large(path, tuple(self._fields))
        self._refuse(413)

    def _refuse_unknown(self) -> None:
        dispatch = self._port.dispatch
        if not dispatch.knows(split_target(self._target.decode("latin-1"))[0]):
            self.refusal = dispatch.unknown(tuple(self._fields))
            self._refuse(404)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._spliced:
            return
        if not self.keep:
            # A parser of the body alone cannot know that the request was the connection's last.
            raise _Refused
        self._begin()
        self.phase = Phase.HEAD
        self.since = self.began = self._came

    def on_url(self, piece: bytes) -> None:
        """A piece of the request target."""
        if not self._spliced:
            self._target += piece
            self._head_size += len(piece)
            if self._head_size > self._limits.header_bytes:
                self._refuse(431)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: trailers count and are dropped."""
        self._head_size += len(name) + len(value)
        fields = self._fields
        if self._head_size > self._limits.header_bytes or len(fields) == MOST_FIELDS:
            self._refuse(431)
        if self.phase is Phase.HEAD:
            known = len(name) <= _LONGEST_NAME
            text = _known_name(name) if known else name.decode("latin-1").lower()
            fields.append((text, value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """The end of a head: refuse here what need not be read."""
        if self._spliced:
            self._spliced = False
            return
        parser, self.phase, self.since = self._parser, Phase.BODY, self._came
        # Read here: the parser that completes the message may be a fresh one.
        self._version, self._method = parser.get_http_version(), parser.get_method().decode()
        self._keeps = parser.should_keep_alive() and self._method != "CONNECT"
        hosts, chunked, length = 0, False, ""
        for name, value in self._fields:
            if name not in _FRAMING:
                continue
            if name == "host":
                hosts += 1
            elif name == "content-length":
                length = length or value
            elif name == "expect":
                self.expects = self._version == "1.1" and value.lower() == "100-continue"
            else:
                chunked = True
        if hosts > 1 or (self._version == "1.1" and not hosts):
            self._refuse(400)
        # A client of HTTP/1.0 may not know where a chunked body ends (RFC 9112 section 6.1).
        self._keeps = self._keeps and not (chunked and self._version == "1.0")
        if length and 0 < self._limits.body_bytes < int(length):
            self._refuse_body()
        if chunked or int(length or 0) > _SHORT_BODY:
            self._refuse_unknown()
        self._spliced = (chunked or (length or "0") != "0") and parser.should_upgrade()

    def on_body(self, piece: bytes) -> None:
        """A piece of the body."""
        self.expects = False
        self._size += len(piece)
        if self._limits.body_bytes and self._size > self._limits.body_bytes:
            self._refuse_body()
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The end of a request."""
        if self._spliced:
            return
        self.phase = Phase.IDLE
        self.expects = False
        body, self._body = b"".join(self._body), []
        path, query = split_target(self._target.decode("latin-1"))
        request = Request(self._method, path, query, tuple(self._fields), body, self.peer)
        self.keep = self._keeps
        old = self._version == "1.0"
        keep = "keep-alive" if old else ""
        self.queue.append((request, self.began, keep if self.keep else "close", not old))
