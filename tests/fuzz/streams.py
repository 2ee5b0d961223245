"""Bytes off the wire: HTTP/1.1, HTTP/2 and its header compression.

An input of `http2` is a list of frames, each a byte for its type, its flags, its stream and its length, and
the payload: frames whose lengths are right get further than any noise. Type 255 puts its payload into the
stream as it is. Blocks of `hpack` have their length before them.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

from hpack import Decoder as TheirDecoder
from hpack import HPACKError

from evaluator.http import h2_frames, hpack
from evaluator.http.h2_connection import Http2Connection
from evaluator.http.h2_frames import HeadersReceived
from evaluator.http.http1_peer import Http1Peer
from evaluator.http.http1_reader import Asked
from evaluator.http.http2_peer import Http2Peer
from evaluator.http.limits import Limits
from tests.fuzz.requests import dispatch, routes
from tests.fuzz.target import Target, Wrong, nothing_fails, same
from tests.unit.evaluator.http import wire
from tests.unit.evaluator.http.serving import Line
from tests.unit.evaluator.http.wire import GREETING, parse_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evaluator.http.messages import Request

LIMITS = Limits(body_bytes=2_048, header_bytes=16_384, streams_per_connection=20)
RAW = 255
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")
STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) [\x20-\x7e]*\r\n")
BODILESS = (b"1", b"204", b"304")

HTTP1_WORDS = (
    "POST /ofrep/v1/evaluate/flags/boolean HTTP/1.1\r\n", "GET / HTTP/1.0\r\n", "HEAD ",
    "OPTIONS * HTTP/1.1\r\n", "CONNECT a:1 HTTP/1.1\r\n", "host: a\r\n", "content-length: 2\r\n",
    "transfer-encoding: chunked\r\n", "connection: close\r\n", "connection: upgrade\r\n", "upgrade: h2c\r\n",
    "expect: 100-continue\r\n", "\r\n\r\n", "0\r\n\r\n", "5;a=b\r\n", "http://a/b?c#d", "\r", "\n ", "\0",
)  # fmt: skip


class Recorded(deque[Asked]):
    """A queue of requests that remembers those that were answered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []

    def popleft(self) -> Asked:
        item = super().popleft()
        self.asked.append(item[0])
        return item


def cut(content: bytes, size: int) -> Iterator[bytes]:
    """The bytes in pieces of `size`."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


def http1(content: bytes) -> None:
    """Requests are the same however the bytes are cut, each has one response, and all of them are whole."""
    whole = conversation(content, len(content) or 1)
    for size in (1, 7):
        if b"expect" not in content.lower():
            same(conversation(content, size), whole, f"in pieces of {size}")


def conversation(content: bytes, size: int) -> tuple[list[object], list[bytes], bool]:
    """(requests, statuses, whether we ended it)."""
    recorded = Recorded()
    with nothing_fails():
        line = Line(Http1Peer, LIMITS, routes())
        line.port.dispatch = dispatch()
        line.peer._reader.queue = recorded  # noqa: SLF001 - what is compiled calls no double of a Dispatch
        for piece in cut(content, size):
            if line.pipe.reading:
                line.peer.data_received(piece)
        output = line.pipe.take()
        line.peer.connection_lost(None)
    methods = [request.method for request in recorded.asked]
    asked: list[object] = [(r.method, r.path, r.query, r.headers, r.body) for r in recorded.asked]
    return asked, list(responses(output, methods)), line.over()


def responses(output: bytes, methods: list[str]) -> Iterator[bytes]:
    """The status of each response; the output is nothing but whole ones, the last of which may go on."""
    methods = [*methods]
    while output:
        head, end, output = output.partition(b"\r\n\r\n")
        status = STATUS.match(head + b"\r\n")
        if status is None or not end:
            raise Wrong(f"no response: {head[:80]!r}")
        yield status[1]
        if status[1] == b"100":
            continue
        method = methods.pop(0) if methods else "the refused one"
        length = LENGTH.search(head + b"\r\n")
        if b"transfer-encoding: chunked" in head or (length is None and b"connection: close" in head):
            return
        if method == "HEAD" or status[1].startswith(BODILESS):
            continue
        if length is None or int(length[1]) > len(output):
            raise Wrong(f"a response without its body: {head!r}")
        output = output[int(length[1]) :]
    if methods:
        raise Wrong(f"no response to {methods}")


def to_frames(content: bytes) -> bytes:
    """The bytes that an input of `http2` means."""
    out, at = b"", 0
    while at + 4 <= len(content):
        kind, flags, stream, length = content[at : at + 4]
        payload = content[at + 4 : at + 4 + length]
        at += 4 + length
        out += payload if kind == RAW else h2_frames.frame(kind, flags, stream, payload)
    return out


def http2(content: bytes) -> None:
    """A connection answers in frames, and reports the same whatever pieces the bytes come in."""
    sent = GREETING + to_frames(content)
    with nothing_fails():
        line = Line(Http2Peer, LIMITS, routes())
        line.port.dispatch = dispatch()
        for piece in cut(sent, 1_000):
            line.peer.data_received(piece)
        line.wait(60.0)
        output = line.pipe.take()
        line.peer.connection_lost(None)
    well_formed(output)
    whole = events(sent, len(sent))
    for size in (1, 61):
        same(events(sent, size), whole, f"events of pieces of {size}")


def well_formed(output: bytes) -> None:
    """Frames within their size, on streams that have not ended, with blocks that another decoder reads."""
    ended, decoder = set(), TheirDecoder()
    for kind, flags, stream, payload in parse_frames(output):
        if len(payload) > h2_frames.DEFAULT_FRAME_BYTES:
            raise Wrong(f"a frame of {len(payload)} bytes")
        if stream in ended and kind in {h2_frames.HEADERS, h2_frames.DATA}:
            raise Wrong(f"stream {stream} goes on after its end")
        if kind == h2_frames.HEADERS:
            decoder.decode(payload)
        if kind == h2_frames.RST_STREAM or (kind in {h2_frames.HEADERS, h2_frames.DATA} and flags & 1):
            ended.add(stream)


def events(sent: bytes, size: int) -> list[object]:
    """What a connection without an owner reports; that a body is awaited is reported at the end of each read,
    so left out.
    """
    connection = Http2Connection(LIMITS)
    found = [event for piece in cut(sent, size) for event in connection.receive(piece)]
    return [wire.content(event) for event in found if not isinstance(event, HeadersReceived)]


def blocks(content: bytes) -> list[bytes]:
    """The blocks that an input of `hpack` means."""
    found, at = [], 0
    while at < len(content):
        found.append(content[at + 1 : at + 1 + content[at]])
        at += 1 + content[at]
    return found


def compression(content: bytes) -> None:
    """Blocks mean what the `hpack` package takes them for, or nothing to either; ours are read by both."""
    ours, theirs = hpack.Decoder(65_536), TheirDecoder(65_536)
    theirs.max_allowed_table_size = hpack.TABLE_BYTES
    for block in blocks(content):
        try:
            wanted = [*theirs.decode(block, raw=True)]
        except HPACKError:
            wanted = None
        try:
            found = ours.decode(block).fields
        except hpack.HpackError as error:
            # Ours are bounded: leading zeros do not count as digits to the other.
            if wanted is not None and "too large" not in str(error):
                raise Wrong(f"refused, {error}: {block!r}") from error
            return
        coded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in found]
        same(coded, wanted and [(bytes(name), bytes(value)) for name, value in wanted], "a block")
        same(hpack.Decoder(65_536).decode(hpack.encode_block(found)).fields, found, "encoded again")


HPACK_WORDS = (b"\x3f\xe1\x1f", b"\x20", b"\x40\x01a\x01b", b"\xbe", b"\xff\x80\x80", b"\x82\x86\x84")
TARGETS = {
    "http1": Target(http1, HTTP1_WORDS, 2_048),
    "http2": Target(http2, (), 2_048),
    "hpack": Target(compression, HPACK_WORDS, 1_024),
}  # fmt: skip
