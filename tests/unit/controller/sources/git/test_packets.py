"""Packet lines as Git's documentation has them, whole, cut anywhere, and as no server should send them."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.sources.git.http.packets import NEEDED, PackAnswer, request, take_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = "a" * 40, "b" * 40
PACK = struct.pack("!4sII", b"PACK", 2, 3) + b"three objects"
SAID = [[b"NAK\n"], [f"ACK {B}\n".encode()], [f"ACK {B} common\n".encode(), f"ACK {B}\n".encode()]]
"""About what is held."""
LINES = st.lists(st.none() | st.binary(min_size=1, max_size=70), max_size=8)


def line(content: bytes | None) -> bytes:
    return b"0000" if content is None else f"{len(content) + 4:04x}".encode() + content


def cut_at(content: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(each, len(content)) for each in places} | {len(content)})
    return [content[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def read(content: bytes, places: list[int], most: int = 100_000) -> tuple[PackAnswer, bytes]:
    answer = PackAnswer(most)
    found = b"".join(answer.feed(each) for each in cut_at(content, places))
    answer.close()
    return answer, found


def an_answer(
    pack: bytes = PACK, size: int = 1_000, said: Sequence[bytes] = SAID[0], ends: bool = True
) -> bytes:
    parts = [pack[at : at + size] for at in range(0, len(pack), size)]
    bands = [line(b"\x02Counting objects\r"), *(line(b"\x01" + each) for each in parts), line(b"\x01")]
    cut = line(f"shallow {A}\n".encode()) + line(None)
    return cut + b"".join(map(line, said)) + b"".join(bands) + (line(None) if ends else b"")


@given(LINES, st.lists(st.integers(0, 600)))
def test_lines_are_the_same_however_they_arrive(lines: list[bytes | None], places: list[int]) -> None:
    content = bytearray()
    found: list[bytes | None] = []
    for piece in cut_at(b"".join(map(line, lines)), places):
        content += piece
        found += take_lines(content)
    assert found == lines
    assert not content


@given(st.sets(st.sampled_from("bcdef")))
def test_a_request_says_what_is_wanted_and_what_is_held_without_its_history(letters: set[str]) -> None:
    held = sorted(each * 40 for each in letters)
    content = bytearray(request(A, NEEDED | {"thin-pack", "multi_ack", "agent=x"}, held))
    said = [None if each is None else each.decode() for each in take_lines(content)]
    assert said == [
        f"want {A} side-band-64k thin-pack\n",
        *(f"shallow {each}\n" for each in held),
        "deepen 1\n",
        None,
        *(f"have {each}\n" for each in held),
        "done\n",
    ]


@given(st.integers(1, 30), st.lists(st.integers(0, 200)), st.sampled_from(SAID))
def test_a_pack_is_the_same_however_it_arrives(size: int, places: list[int], said: list[bytes]) -> None:
    answer, found = read(an_answer(size=size, said=said), places)
    assert (answer.objects, found) == (3, PACK)


@given(st.integers(0, len(an_answer()) - 1))
def test_an_answer_that_is_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        read(an_answer()[:length], [])


CUT = line(f"shallow {A}\n".encode())


@pytest.mark.parametrize(
    "content",
    [
        line(b"ERR upload-pack: not our ref"),
        CUT + line(b"ERR no"),
        CUT + line(None) + line(b"ERR no"),
        CUT + line(None) + line(None),
        line(f"unshallow {A}".encode()),
        line(b"NAK\n"),
        an_answer(ends=False) + line(b"\x03out of memory"),
        an_answer(ends=False) + line(b"\x04"),
        an_answer(b"JUNK" + PACK[4:]),
        an_answer(PACK[:8] + bytes(4)),
        an_answer() + line(None),
        an_answer() + line(b"\x01more"),
        b"0003",
        b"-001",
        b"zzzz",
        b"<!DOCTYPE html>",
    ],
)
def test_what_is_no_pack_of_one_commit_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read(content, [])


def test_an_answer_has_a_limit_and_an_empty_line_counts_for_a_kilobyte() -> None:
    assert read(an_answer(), [], most=7 * 1_024)[1] == PACK
    with pytest.raises(ValueError, match="too large"):
        read(an_answer(), [], most=7 * 1_024 - 1)
    with pytest.raises(ValueError, match="too large"):
        read(an_answer(PACK + bytes(100_000), size=60_000), [], most=100_000)


@given(st.binary(max_size=60))
def test_any_answer_is_read_or_refused(tail: bytes) -> None:
    for start in (b"", CUT + line(None), an_answer(ends=False)):
        with contextlib.suppress(ValueError):
            read(start + tail, [])
