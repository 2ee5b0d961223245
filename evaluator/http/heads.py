"""Heads of HTTP/1.1 requests as they came before, byte for byte: what they mean need not be parsed again.

Clients that keep a connection send few different ones, and parsing is nearly half of what a small request costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.http.routes import Request

if TYPE_CHECKING:
    from evaluator.http.routes import Headers

_END: Final = b"\r\n\r\n"
_KNOWN: Final = 64
_LONGEST: Final = 2_048
_UNLEARNT: Final = ("transfer-encoding", "expect", "upgrade", "authorization", "cookie")
"""With these a body may come otherwise than as so many bytes behind the head, or something is said that is not to be kept."""

_Head: TypeAlias = "tuple[str, str, str, Headers, int]"
"""(method, path, query, headers, bytes of the body)."""


class Heads:
    """What the newest heads on a port's connections said."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Head] = {}

    def take(self, data: bytes, at: int, peer: str) -> tuple[Request, int] | None:
        """The request that begins at `at` and where it ends, if all of it is there and its head is known."""
        end = data.find(_END, at, at + _LONGEST) + len(_END)
        known = self._known.get(data[at:end])
        if known is None:
            return None
        method, path, query, headers, size = known
        if end + size > len(data):
            return None
        return Request(method, path, query, headers, data[end : end + size], peer), end + size

    def learn(self, data: bytes, request: Request) -> None:
        """`data` is `request`, all of it and nothing else, on a connection that goes on behind it."""
        size = len(request.body)
        head = data[: len(data) - size]
        # Where lines or the head end otherwise than they should, only the parser knows where.
        strict = head.find(_END) == len(head) - len(_END) and head.count(b"\n") == head.count(
            b"\r\n"
        )
        if not strict or len(head) > _LONGEST:
            return
        if any(name in _UNLEARNT for name, _ in request.headers):
            return
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[head] = request.method, request.path, request.query, request.headers, size
