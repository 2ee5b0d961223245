"""A TCP proxy in front of an API server that cuts every connection again and again."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from tests.git_http import splice

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cutter:
    """Passes bytes both ways, cuts all that is open every `seconds`, and lets nobody in while `closed`."""

    def __init__(self, port: int, seconds: float) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = port
        self._seconds = seconds
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.port = self._listener.getsockname()[1]
        self.closed = threading.Event()
        self.cuts = 0

    def run(self) -> None:
        """Accept until stopped."""
        threading.Thread(target=self._cut_often, daemon=True).start()
        while not self._stop.is_set():
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(accepted,), daemon=True).start()

    def stop(self) -> None:
        """Let go of everything."""
        self._stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection now, as a cable that is pulled."""
        with self._lock:
            ended, self._open = self._open, set()
        self.cuts += bool(ended)
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _cut_often(self) -> None:
        while not self._stop.wait(self._seconds):
            self.cut()

    def _pass(self, accepted: socket.socket) -> None:
        with accepted, contextlib.suppress(OSError):
            if self.closed.is_set():
                return
            with socket.create_connection(("127.0.0.1", self._port)) as there:
                with self._lock:
                    self._open |= {accepted, there}
                splice(accepted, there)


@contextlib.contextmanager
def cutter(port: int, seconds: float) -> Iterator[Cutter]:
    """A proxy before `port`, gone afterwards."""
    found = Cutter(port, seconds)
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        found.stop()
        thread.join()
