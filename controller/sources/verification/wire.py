"""The strings that SSH's formats consist of (RFC 4251, section 5). Pure."""

from __future__ import annotations


class Damaged(ValueError):
    """Bytes that are not what they should be."""


class Reading:
    """Reads one string after the other."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def exactly(self, size: int) -> bytes:
        """Exactly `size` bytes. Raises Damaged."""
        if len(self._rest) < size:
            raise Damaged("it ends too early")
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def text(self) -> bytes:
        """A string: its length in four bytes, then its bytes. Raises Damaged."""
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def number(self) -> int:
        """A positive integer (`mpint`). Raises Damaged."""
        found = self.text()
        if found[:1] >= b"\x80" or len(found) > 2_048:
            raise Damaged("a number is negative or too large")
        return int.from_bytes(found, "big")

    def end(self) -> None:
        """Raises Damaged where something is left."""
        if self._rest:
            raise Damaged("something follows its end")


def string(content: bytes) -> bytes:
    """`content` as such a string."""
    return len(content).to_bytes(4, "big") + content
