"""Server-sent events that notify open pages of changes; a page then asks again for its view.

Nothing of a flag is in an event, so that every reader may have it. The framing is
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.page.rendering import SAFE
from evaluator.host.shares import FairShare
from evaluator.http.messages import Response, Streamed, header
from evaluator.wire.countdown import Countdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.http.messages import ByteStream, Request
    from evaluator.wire.countdown import TimerHandle, Timers

KEEP_ALIVE_SECONDS: Final = 20.0
"""Proxies close connections that are silent for longer."""
GATHER_SECONDS: Final = 0.1
"""Seconds from a change until pages are notified; all changes in between need one event."""
MOST: Final = 400
"""Most open streams, half of them of one reader; further pages get 503 and try again."""
FIRSTS: Final = 100
"""Streams beyond them, for readers that have none."""
_HEADERS: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-store"),
    ("x-accel-buffering", "no"),
    *SAFE,
)


class PageStreams:
    """The open streams."""

    def __init__(
        self,
        timers: Timers,
        changes_for: Callable[[Request], Callable[[], str] | Response],
        reader_of: Callable[[Request], str] = lambda _: "",
    ) -> None:
        """`changes_for` returns a refusal, or a function for the version of what the sender of a request may
        see: a text that changes with it. `reader_of` returns who sends a request; empty: it is unknown, or
        there is one reader.
        """
        self._changes_for = changes_for
        self.reader_of = reader_of
        self._shares: FairShare[str] = FairShare(MOST, FIRSTS, resource="page streams")
        self.silence: Countdown[PageStream] = Countdown(timers, KEEP_ALIVE_SECONDS, PageStream.keep_alive)
        self._timers = timers
        self._due: TimerHandle | None = None
        self._open: set[PageStream] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: Request) -> Response | Streamed:
        """The stream of one page; its `last-event-id`, or at first `?seen=`, is the version that it shows."""
        version = self._changes_for(request)
        if isinstance(version, Response):
            return version
        reader = self.reader_of(request)
        if not self._shares.has_place(reader):
            return Response(503, b"too many open pages\n", (("retry-after", "30"), *SAFE))
        seen = header(request.headers, "last-event-id") or request.query.removeprefix("seen=")

        def start(stream: ByteStream) -> None:
            opened = PageStream(self, stream, version, seen, reader)
            self._shares.hold(reader)
            self._open.add(opened)
            opened.advance()

        return Streamed(200, _HEADERS, start)

    def notify(self) -> None:
        """Notify all pages in a moment: changes come several at a time."""
        if self._due is None and self._open:
            self._due = self._timers.call_later(GATHER_SECONDS, self._advance_all)

    def _advance_all(self) -> None:
        self._due = None
        for opened in tuple(self._open):
            opened.advance()

    def forget(self, opened: PageStream) -> None:
        """Remove a stream that has ended."""
        self._open.remove(opened)
        self._shares.release(opened.reader)
        self.silence.forget(opened)

    def close(self) -> None:
        """End all streams."""
        if self._due is not None:
            self._due.cancel()
        for opened in tuple(self._open):
            opened.shut_down()


class PageStream:
    """One page, and the version that it shows."""

    def __init__(
        self, streams: PageStreams, stream: ByteStream, version: Callable[[], str], seen: str, reader: str
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._version = version
        self._seen = seen
        self.reader = reader
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def advance(self) -> None:
        """Send the newest version, unless the page shows it already."""
        version = self._version()
        if version == self._seen or not self._stream.writable:
            return
        self._seen = version
        self._stream.send(f"id: {version}\nevent: change\ndata:\n\n".encode())
        self._streams.silence.restart(self)

    def keep_alive(self) -> None:
        """Send a comment; a peer that does not read has messages waiting already."""
        if self._stream.writable:
            self._stream.send(b":\n\n")
        self._streams.silence.restart(self)

    def shut_down(self) -> None:
        """End it."""
        self._on_closed()
        self._stream.close()

    def _on_closed(self) -> None:
        self._streams.forget(self)
