"""Many server streams in one process, as thin as Python can be, so that what is measured is the server.

    python -m benchmarks.subscribers PORT PATH CONNECTIONS STREAMS_OF_EACH [ENCODING]

Opens them all at once and prints a line of JSON when each has its first message. Then, for each line of
standard input, it prints `waiting`, and a line of JSON once every stream has had a message with that text in
it, or after PATIENCE seconds; with ENCODING, of what it accepts, once every stream has had a whole message.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.callers import HEAD
from benchmarks.results import percentile
from evaluator.http import grpc_framing as framing
from evaluator.http.h2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    HEADERS,
    MAX_WINDOW,
    PREFACE,
    SETTINGS,
    Setting,
    frame,
    settings_frame,
    window_frame,
)
from evaluator.http.h2_frames import DEFAULT_WINDOW as WINDOW
from evaluator.http.hpack import encode_block

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0


def greeting(path: str, streams: int, encoding: str) -> bytes:
    """All that a connection ever sends."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "bench")]
    more = [("content-type", "application/grpc"), ("te", "trailers")]
    block = encode_block([*fields, *more, ("grpc-accept-encoding", encoding or "identity")])
    opened = b"".join(
        frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, framing.frame(b""))
        for stream in range(1, 2 * streams, 2)
    )
    wide = settings_frame({Setting.INITIAL_WINDOW_SIZE: MAX_WINDOW})
    return PREFACE + wide + window_frame(0, MAX_WINDOW - WINDOW) + opened


class Subscriber:
    """One connection."""

    def __init__(self, port: int, sent: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.socket.connect(("127.0.0.1", port))
        self._unsent = sent
        self._buffer = bytearray()
        self.left: dict[int, int] = {}
        """Bytes that are still to come of the message of each stream."""
        self.bytes = 0

    def write(self) -> bool:
        """Whether all is sent."""
        self._unsent = self._unsent[self.socket.send(self._unsent) :]
        return not self._unsent

    def read(self) -> Iterator[tuple[int, bytes]]:
        """(stream, payload) of the DATA frames that have come. Raises OSError once the server has hung up."""
        piece = self.socket.recv(262_144)
        if not piece:
            raise ConnectionError
        self._buffer += piece
        at, buffer = 0, self._buffer
        while at + HEAD_BYTES <= len(buffer):
            word, flags, stream = HEAD.unpack_from(buffer, at)
            end = at + HEAD_BYTES + (word >> 8)
            if end > len(buffer):
                break
            if word & 0xFF == DATA:
                self.bytes += end - at
                yield stream, bytes(buffer[at + HEAD_BYTES : end])
            elif word & 0xFF == SETTINGS and not flags:
                self.socket.send(frame(SETTINGS, 1, 0))
            at = end
        del buffer[:at]

    def ends(self, stream: int, payload: bytes) -> bool:
        """Whether a message ends with this payload."""
        left = self.left.pop(stream, 0)
        if not left:
            left = framing.PREFIX + int.from_bytes(payload[1 : framing.PREFIX], "big")
        left -= len(payload)
        if left:
            self.left[stream] = left
        return not left


class Crowd:
    """All of them."""

    def __init__(self, port: int, path: str, connections: int, streams: int, encoding: str) -> None:
        self.streams = connections * streams
        self._poll = select.epoll()
        sent = greeting(path, streams, encoding)
        self._encoding = encoding
        self._open: dict[int, Subscriber] = {}
        for _ in range(connections):
            one = Subscriber(port, sent)
            self._open[one.socket.fileno()] = one
            self._poll.register(one.socket, select.EPOLLOUT | select.EPOLLIN)

    def await_all(self, text: bytes) -> list[float]:
        """When each stream had a message with `text` in it, on the monotonic clock; fewer than there are
        after PATIENCE.
        """
        times: dict[tuple[int, int], float] = {}
        until = time.monotonic() + PATIENCE
        while len(times) < self.streams and (left := until - time.monotonic()) > 0:
            for number, event in self._poll.poll(left):
                one = self._open[number]
                try:
                    if event & select.EPOLLOUT and one.write():
                        self._poll.modify(number, select.EPOLLIN)
                    for stream, payload in one.read() if event & select.EPOLLIN else ():
                        if one.ends(stream, payload) if self._encoding else text in payload:
                            times.setdefault((number, stream), time.monotonic())
                except OSError:
                    self._poll.unregister(number)
                    self._open.pop(number).socket.close()
        return sorted(times.values())

    @property
    def alive(self) -> int:
        """Connections that the server has not ended."""
        return len(self._open)

    @property
    def bytes(self) -> int:
        """Of all messages so far."""
        return sum(one.bytes for one in self._open.values())


def say(found: object) -> None:
    print(json.dumps(found), flush=True)


def main(port: int, path: str, connections: int, streams: int, encoding: str = "") -> None:
    """Until standard input ends."""
    started = time.monotonic()
    crowd = Crowd(port, path, connections, streams, encoding)
    times = crowd.await_all(b"")
    say({"received": len(times), "seconds": times[-1] - started if times else 0.0, "alive": crowd.alive})
    for line in sys.stdin:
        say("waiting")
        before = crowd.bytes
        times = crowd.await_all(line.strip().encode())
        found: dict[str, float] = {
            "received": len(times),
            "alive": crowd.alive,
            "bytes": crowd.bytes - before,
        }
        if times:
            after = [each - times[0] for each in times]
            found |= {"first": times[0], "spread": after[-1], "p50": percentile(after, 0.5)}
        say(found)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
