"""What Git servers answer: read or refused, and the same however it is cut into pieces."""

from __future__ import annotations

import contextlib

from controller.sources.git.http.packets import PackAnswer
from controller.sources.git.listing.http_listing import parse_advertisement
from tests.fuzz.target import Target, Wrong, same

WORDS = (
    "001e# service=git-upload-pack\n", "0000", "0004", "0005\x01", "0005\x02", "0008NAK\n",
    "0031ACK " + "a" * 40 + "\n", "0034shallow " + "a" * 40, "000cERR no", "0011\x01PACK\0\0\0\2\0\0\0\1",
    "PACK", "^{}", " refs/heads/main\n", " HEAD\0shallow side-band-64k", "symref=HEAD:",
)  # fmt: skip
LIMIT = 32 * 1_024


def packed(content: bytes, size: int) -> bytes | None:
    """The pack in an answer that comes in pieces of this size; None: it is refused."""
    answer, found = PackAnswer(LIMIT), b""
    try:
        for start in range(0, len(content), size):
            found += answer.feed(content[start : start + size])
        answer.close()
    except ValueError:
        return None
    if not (found.startswith(b"PACK") and answer.objects):
        raise Wrong(f"no pack: {found[:40]!r}")
    return found


def answer(content: bytes) -> None:
    """Read as the answer to each request."""
    for size in (1, 7):
        same(packed(content, size), packed(content, max(1, len(content))), f"in pieces of {size}")
    with contextlib.suppress(ValueError):
        found = parse_advertisement(content, narrowed=False)
        if not set(found.tags) <= set(found.commits):
            raise Wrong(f"a tag that marks nothing: {found!r}")


TARGETS = {"git_answer": Target(answer, WORDS, 1_024)}
