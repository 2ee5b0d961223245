"""Both ends of an HTTP/2 connection in memory: raw frames, or the `h2` package as the client."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived

from evaluator.http import h2_frames
from evaluator.http.h2_connection import Http2Connection
from evaluator.http.h2_frames import (
    END_HEADERS,
    END_STREAM,
    BodyTooLarge,
    Event,
    RequestReceived,
    frame,
    settings_frame,
)
from evaluator.http.hpack import encode_block
from evaluator.http.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = ((":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), (":authority", "host"))
BLOCK = encode_block(HEAD)
OK = encode_block([(":status", "200")])
STATUS = encode_block([("grpc-status", "0")])
FRAME_HEAD = Struct(">IBI")
"""`length << 8 | type`, flags, stream id: nine bytes."""
GREETING = h2_frames.PREFACE + settings_frame({})


def headers_frame(stream_id: int, block: bytes = BLOCK, flags: int = END_HEADERS) -> bytes:
    return frame(h2_frames.HEADERS, flags, stream_id, block)


def data_frame(stream_id: int, body: bytes = b"", flags: int = END_STREAM) -> bytes:
    return frame(h2_frames.DATA, flags, stream_id, body)


def whole(stream_id: int, body: bytes = b"hello") -> bytes:
    """A request in two frames."""
    return headers_frame(stream_id) + data_frame(stream_id, body)


def open_connection(limits: Limits | None = None) -> Http2Connection:
    """A connection after its greeting, our own already taken."""
    connection = Http2Connection(limits or Limits())
    assert connection.receive(GREETING) == []
    connection.take_output()
    return connection


def content(event: Event) -> object:
    """What an event is compared by."""
    if isinstance(event, RequestReceived):
        return "request", event.stream_id, event.headers, event.body
    if isinstance(event, BodyTooLarge):
        return "too large", event.stream_id, event.block.fields
    return event


def take_frames(connection: Http2Connection) -> list[tuple[int, int, int, bytes]]:
    """The frames in the output: type, flags, stream id, payload."""
    return list(parse_frames(connection.take_output()))


def parse_frames(output: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    while output:
        word, flags, stream_id = FRAME_HEAD.unpack_from(output)
        end = h2_frames.HEAD_BYTES + (word >> 8)
        yield word & 0xFF, flags, stream_id, output[h2_frames.HEAD_BYTES : end]
        output = output[end:]


def errors(connection: Http2Connection) -> list[tuple[str, int, int]]:
    """RST_STREAM and GOAWAY in the output: what, stream (the last one, for GOAWAY), error."""
    found = []
    for kind, _, stream_id, payload in take_frames(connection):
        if kind == h2_frames.RST_STREAM:
            found.append(("RST_STREAM", stream_id, int.from_bytes(payload)))
        if kind == h2_frames.GOAWAY:
            last, error = payload[:4], payload[4:8]
            found.append(("GOAWAY", int.from_bytes(last), int.from_bytes(error)))
    return found


class Pair:
    """`h2` as the client of a Connection."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = Http2Connection(limits or Limits())
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.events: list[Event] = []
        """What the server saw."""
        self.answers: list[Any] = []
        """What the client saw."""
        self.acknowledging = True
        self.pump()

    def pump(self) -> None:
        """Carry bytes until both are silent."""
        while True:
            out, back = self.client.data_to_send(), self.server.take_output()
            if not out and not back:
                return
            self.events += self.server.receive(out)
            for answer in self.client.receive_data(back):
                self.answers.append(answer)
                size = getattr(answer, "flow_controlled_length", 0)
                if size and self.acknowledging:
                    self.client.acknowledge_received_data(size, getattr(answer, "stream_id", 0))

    def request(self, body: bytes = b"hello", head: tuple[tuple[str, str], ...] = HEAD) -> int:
        """Send a request as far as the windows allow; its stream id."""
        stream_id: int = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, head)
        self.write(stream_id, body)
        return stream_id

    def write(self, stream_id: int, body: bytes) -> None:
        while True:
            self.pump()
            room = min(self.client.local_flow_control_window(stream_id), 16_384, len(body))
            piece, body = body[:room], body[room:]
            self.client.send_data(stream_id, piece, end_stream=not body)
            if not body:
                return self.pump()

    def requests(self) -> list[RequestReceived]:
        return [event for event in self.events if isinstance(event, RequestReceived)]

    def events_of(self, kind: type) -> list[Any]:
        """The client's events of one kind."""
        return [event for event in self.answers if isinstance(event, kind)]

    def body(self, stream_id: int) -> bytes:
        """What the client has read on a stream."""
        return b"".join(e.data for e in self.events_of(DataReceived) if e.stream_id == stream_id)
