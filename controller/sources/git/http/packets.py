"""Git's packet lines, and what `git-upload-pack` is asked and answers in them (protocol 0). Pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

NEEDED: Final = frozenset({"shallow", "side-band-64k"})
"""Capabilities of a server without which one commit cannot be asked for, or its pack not be read."""
_WELCOME: Final = frozenset({"multi_ack_detailed", "thin-pack", "ofs-delta", "no-progress"})
"""As git asks for them; some servers answer nothing else."""
_HEADER: Final = 12
"""Bytes: `PACK`, the version, the number of objects."""
_LEAST: Final = 1_024
"""Bytes that each line counts for, or a server could have us read many millions that are empty."""
_PACK, _PROGRESS = 1, 2
"""Bands."""


def take_lines(content: bytearray) -> Iterator[bytes | None]:
    """Take whole lines from the start of `content`; None for one that separates. Raises ValueError."""
    while len(content) >= 4:
        size = int(bytes(content[:4]), 16)
        if size < 0 or size in {1, 2, 3}:
            raise ValueError("not a packet line")
        if len(content) < size:
            return
        line = bytes(content[4:size]) if size else None
        del content[: max(size, 4)]
        yield line


def request(wanted: str, capabilities: frozenset[str], held: Collection[str]) -> bytes:
    """Ask for one commit without its history, as it differs from those `held`, which have none either."""
    used = " ".join(sorted(capabilities & (NEEDED | _WELCOME) - {"shallow"}))
    asked = [f"want {wanted} {used}", *(f"shallow {each}" for each in held), "deepen 1"]
    known = [*(f"have {each}" for each in held), "done"]
    return b"".join(map(_line, asked)) + b"0000" + b"".join(map(_line, known))


def _line(text: str) -> bytes:
    content = f"{text}\n".encode()
    return b"%04x%b" % (len(content) + 4, content)


class PackAnswer:
    """The answer to `request`, read as it comes."""

    def __init__(self, most: int) -> None:
        """`most`: bytes that it may have."""
        self.objects = 0
        """In the pack; known once `feed` has returned some of it."""
        self._left = most
        self._content = bytearray()
        self._header = bytearray()
        """Of the pack, as long as it is not whole."""
        self._read: Callable[[bytes | None], bytes] = self._shallow_line

    def feed(self, content: bytes) -> bytes:
        """Return what came of the pack; its whole header at first. Raises ValueError."""
        self._content += content
        found = bytearray()
        for line in take_lines(self._content):
            self._left -= max(len(line or b""), _LEAST)
            if self._left < 0:
                raise ValueError("the response is too large")
            found += self._read(line)
        return bytes(found)

    def close(self) -> None:
        """Raises ValueError unless all has come."""
        if self._read != self._end or self._content:
            raise ValueError("the response is truncated")

    def _shallow_line(self, line: bytes | None) -> bytes:
        if line is None:
            self._read = self._pack_line
        elif not line.startswith(b"shallow "):
            raise ValueError("no commit is cut off as it was asked for")
        return b""

    def _pack_line(self, line: bytes | None) -> bytes:
        if line is None and self.objects:
            self._read = self._end
            return b""
        if not line or not (line[0] in {_PACK, _PROGRESS} or line.startswith((b"ACK ", b"NAK"))):
            # An error's words are for git to tell.
            raise ValueError("the response is no pack")
        if line[0] != _PACK:
            return b""
        if self.objects:
            return line[1:]
        self._header += line[1:]
        if len(self._header) < _HEADER:
            return b""
        mark, self.objects = struct.unpack_from("!4s4xI", self._header)
        if mark != b"PACK" or not self.objects:
            raise ValueError("the response is no pack")
        return bytes(self._header)

    def _end(self, line: bytes | None) -> bytes:
        raise ValueError("something follows the pack")
