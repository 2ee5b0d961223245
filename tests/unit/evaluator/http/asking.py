"""Plain requests over either HTTP version, on a transport and a clock of ours, and answers that
look alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httptools

from evaluator.http import h2_frames
from evaluator.http.dispatch import Dispatch
from evaluator.http.h2_frames import END_HEADERS, END_STREAM
from evaluator.http.hpack import Decoder, encode_block
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.limits import Limits
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.serving import Line

if TYPE_CHECKING:
    from evaluator.http.cors import Cors
    from evaluator.http.messages import Headers
    from evaluator.http.routes import Routes

VERSIONS = ("HTTP/1.1", "HTTP/2")


@dataclass
class Answer:
    """A response as far as it has come."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    reset: bool = False

    def __getitem__(self, name: str) -> str:
        """All values of a header."""
        return ", ".join(value for key, value in self.headers if key == name)


class _Http1Answers:
    """httptools' callbacks."""

    def __init__(self, method: str) -> None:
        self.answer = Answer()
        self.method = method

    def on_header(self, name: bytes, value: bytes) -> None:
        self.answer.headers.append((name.decode(), value.decode("latin-1")))

    def on_body(self, piece: bytes) -> None:
        self.answer.body += piece

    def on_message_complete(self) -> None:
        self.answer.ended = True


class Asking:
    """One connection that asks one thing at a time."""

    def __init__(
        self, version: str, routes: Routes, limits: Limits | None = None, cors: Cors | None = None
    ) -> None:
        self.version = version
        limits = limits or Limits()
        self.line: Line[Any] = Line(Http1Peer if version == "HTTP/1.1" else Http2Peer, limits, routes)
        self.line.port.dispatch = Dispatch(routes, limits, cors)
        self._stream = -1
        self._parser: Any = None
        self._seen: Any = None
        self.answer = Answer()
        if version == "HTTP/2":
            self.line.feed(wire.GREETING)

    def ask(self, path: str, body: bytes = b"", headers: Headers = (), method: str = "POST") -> Answer:
        """Send a request, whole; the answer as far as it comes at once, more of it by `read`."""
        self._stream += 2
        if self.version == "HTTP/1.1":
            self._seen = _Http1Answers(method)
            self._parser = httptools.HttpResponseParser(self._seen)
            self.answer = self._seen.answer
            lines = [f"{method} {path} HTTP/1.1", "host: h", f"content-length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers]
            self.line.peer.data_received("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            return self.read()
        self.answer = Answer()
        head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")]
        block = encode_block([*head, *headers])
        sent = wire.headers_frame(self._stream, block, END_HEADERS)
        for start in range(0, len(body), 16_000):
            sent += wire.data_frame(self._stream, body[start : start + 16_000], 0)
        self.line.peer.data_received(sent + wire.data_frame(self._stream))
        return self.read()

    def read(self) -> Answer:
        """The answer to the last request, as far as it has come by now."""
        output = self.line.pipe.take()
        if self.version == "HTTP/1.1":
            if output:
                self._parser.feed_data(output)
            self.answer.status = self._parser.get_status_code()
            return self.answer
        for kind, flags, stream, payload in wire.parse_frames(output):
            if stream == self._stream:
                self._take(kind, flags, payload)
        return self.answer

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        answer = self.answer
        if kind == h2_frames.HEADERS:
            fields = Decoder(100_000).decode(payload).fields
            answer.headers += [field for field in fields if field[0] != ":status"]
            answer.status = int(dict(fields).get(":status", answer.status))
        elif kind == h2_frames.DATA:
            answer.body += payload
        elif kind == h2_frames.RST_STREAM:
            answer.reset = int.from_bytes(payload) != 0
        if kind in {h2_frames.HEADERS, h2_frames.DATA} and flags & END_STREAM:
            answer.ended = True
