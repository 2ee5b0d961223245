"""A relay of TCP connections that can be cut and pointed elsewhere: a network between two real programs that
breaks when a test says so.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Relay:
    """Listens on a port of its own, and passes on to `target`."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.open = True
        self.accepted = 0
        """Connections so far, also those that were not let through."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def choose(self) -> int:
        """The port that the next connection leads to."""
        return self.target

    def cut(self) -> None:
        """Break all connections, and let none through."""
        self.open = False
        with self._lock:
            pairs = tuple(self._pairs)
        for each in pairs:
            _end(each)

    def mend(self) -> None:
        """Let connections through again."""
        self.open = True

    def close(self) -> None:
        self.cut()
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self.accepted += 1
                if not self.open:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self.choose()), 5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self._pairs |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := one.recv(65_536):
                other.sendall(piece)
        for each in (one, other):
            _end(each)
            with self._lock:
                self._pairs.discard(each)
        one.close()


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(target: int) -> Iterator[Relay]:
    """A relay for as long as the block lasts."""
    made = Relay(target)
    try:
        yield made
    finally:
        made.close()
