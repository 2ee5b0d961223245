"""HTTP/2 callers whose requests are made before they are sent: each as the one before, or each with a
traceparent, request id and context of its own.

    python -m benchmarks.callers ORIGIN PATH CONTENT_TYPE FLAG same|varied

Prints requests, p50 and p99 in microseconds as JSON. Headers are compressed as grpc-go and nghttp2 do:
Huffman-coded and put into the dynamic table.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
import time
from collections import deque
from functools import partial
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop
from hpack import Encoder

from benchmarks.loads import connect_body, grpc_body, tracing_headers
from benchmarks.results import percentile

REQUESTS, CONNECTIONS, STREAMS = 40_000, 8, 4
HEAD = struct.Struct(">IBI")
"""Of a frame: `length << 8 | type`, flags, stream id."""
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_WINDOW: Final = 2**30


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def requests(origin: str, path: str, content_type: str, flag: str, numbers: list[int | None]) -> deque[bytes]:
    """The requests of one connection, in the order in which they must be sent."""
    url, encoder, made = urlsplit(origin), Encoder(), deque[bytes]()
    fixed = {":method": "POST", ":scheme": url.scheme, ":authority": url.netloc, ":path": path}
    body_of = connect_body if content_type == "application/json" else grpc_body
    fixed |= {"content-type": content_type, "te": "trailers", "user-agent": "grpc-go/1.75.0"}
    for stream, number in zip(count(1, 2), numbers, strict=False):
        block = encoder.encode(list((fixed | tracing_headers(number)).items()))
        body = _frame(_DATA, 1, stream, body_of(flag, number))
        made.append(_frame(_HEADERS, 4, stream, block) + body)
    return made


class Caller(asyncio.Protocol):
    """One connection with STREAMS calls under way until all are answered."""

    def __init__(self, made: deque[bytes], times: list[float]) -> None:
        self._made, self._times = made, times
        self._began: dict[int, float] = {}
        self._next = 1
        self._left = len(made)
        self._rest = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        window = struct.pack(">I", _WINDOW)
        greeting = _frame(_SETTINGS, 0, 0, b"") + _frame(_WINDOW_UPDATE, 0, 0, window)
        transport.write(_GREETING + greeting + self._ask(STREAMS))

    def _ask(self, many: int) -> bytes:
        now = time.perf_counter()
        for _ in range(min(many, len(self._made))):
            self._began[self._next] = now
            self._next += 2
        return b"".join(self._made.popleft() for _ in range(min(many, len(self._made))))

    def data_received(self, data: bytes) -> None:
        data, at, ended, now = self._rest + data, 0, 0, time.perf_counter()
        while len(data) - at >= 9:
            word, flags, stream = HEAD.unpack_from(data, at)
            if len(data) - at < 9 + (word >> 8):
                break
            kind = word & 0xFF
            if kind in {_RST_STREAM, _GOAWAY}:
                self.done.set_exception(SystemExit(f"refused: frame {kind} of stream {stream}"))
                return
            if flags & 1 and kind in {_DATA, _HEADERS}:
                ended += 1
                self._times.append(now - self._began.pop(stream))
            at += 9 + (word >> 8)
        self._rest = data[at:]
        self._left -= ended
        if self._left:
            self._transport.write(self._ask(ended))
        else:
            self._transport.close()
            self.done.set_result(None)


async def main(origin: str, path: str, content_type: str, flag: str, kind: str) -> None:
    """Send all, and print the figures."""
    url, loop, times = urlsplit(origin), asyncio.get_running_loop(), list[float]()
    tls = None
    if url.scheme == "https":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.set_alpn_protocols(["h2"])
    share = REQUESTS // CONNECTIONS
    made = [
        requests(origin, path, content_type, flag, [n if kind == "varied" else None for n in numbers])
        for numbers in (range(share * index, share * (index + 1)) for index in range(CONNECTIONS))
    ]
    host, port = str(url.hostname), url.port or 0
    opening = [loop.create_connection(partial(Caller, each, times), host, port, ssl=tls) for each in made]
    callers = [caller for _, caller in await asyncio.gather(*opening)]
    await asyncio.gather(*(caller.done for caller in callers))
    micros = [int(seconds * 1e6) for seconds in times]
    print(json.dumps([len(times), percentile(micros, 0.5), percentile(micros, 0.99)]))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
