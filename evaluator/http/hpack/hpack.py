"""HPACK, the header compression of HTTP/2 (RFC 7541): a decoder with a dynamic table, an encoder without.

Octets are mapped to characters as Latin-1, so that any octets survive. `header_fields.mark_of` validates
each field once, when it is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from evaluator.http.hpack import huffman
from evaluator.http.hpack.header_fields import BAD, LAST_PSEUDO, LENGTH, MARKS, NONE, Block, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.http.messages import Headers

TABLE_BYTES = 4096
"""The size of our dynamic table: HPACK's default, so that our SETTINGS need not name it."""

MOST_FIELDS: Final = 256
"""Most fields of one block: a field of the table is one byte on the wire, but costs us work."""
FIELD_BYTES: Final = 32
"""Bytes that a field counts beside its name and value (section 4.1)."""
_KEPT_FIELD_BYTES: Final = 128
"""Bytes of memory that Python needs for a field beside its text."""

_STATIC_TEXT = """\
:authority|;:method|GET;:method|POST;:path|/;:path|/index.html;:scheme|http;:scheme|https;:status|200;:status|204
:status|206;:status|304;:status|400;:status|404;:status|500;accept-charset|;accept-encoding|gzip, deflate
accept-language|;accept-ranges|;accept|;access-control-allow-origin|;age|;allow|;authorization|;cache-control|
content-disposition|;content-encoding|;content-language|;content-length|;content-location|;content-range|
content-type|;cookie|;date|;etag|;expect|;expires|;from|;host|;if-match|;if-modified-since|;if-none-match|
if-range|;if-unmodified-since|;last-modified|;link|;location|;max-forwards|;proxy-authenticate|
proxy-authorization|;range|;referer|;refresh|;retry-after|;server|;set-cookie|;strict-transport-security|
transfer-encoding|;user-agent|;vary|;via|;www-authenticate|"""

_STATIC: Headers = tuple(
    (name, value)
    for entry in _STATIC_TEXT.replace("\n", ";").split(";")
    for name, _, value in [entry.partition("|")]
)
"""Appendix A; index 1 is first."""

_STATIC_COUNT = len(_STATIC)
_LAST_STATIC = 0x80 + _STATIC_COUNT
_INDEX_OF_FIELD = {field: index for index, field in enumerate(_STATIC, 1)}
_INDEX_OF_NAME = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


class HpackError(Exception):
    """The block is not HPACK: the state of the tables is unknown (COMPRESSION_ERROR)."""


class HeadersTooLarge(Exception):
    """The block decodes to more than the limit. Decoding stops, so the state of the tables is unknown."""


_Entry: TypeAlias = "tuple[tuple[str, str], int, int]"
"""A field, its size by section 4.1, and its mark by `header_fields.mark_of`."""


def _entry(name: str, value: str) -> _Entry:
    return (name, value), len(name) + len(value) + FIELD_BYTES, mark_of(name, value)


def _integer(value: int, prefix_bits: int, first: int) -> bytes:
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((first | value,))
    out = bytearray((first | limit,))
    value -= limit
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _string(text: str) -> bytes:
    octets = text.encode("latin-1")
    return _integer(len(octets), 7, 0) + octets


def encode_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """Encode headers as static-table references and literals that are not indexed. This needs no table, so
    one block can be encoded once and sent on every connection. Names must be in lower case. Raises
    UnicodeEncodeError for characters outside Latin-1.
    """
    out = []
    for field in headers:
        index = _INDEX_OF_FIELD.get(field)
        if index is not None:
            out.append(_integer(index, 7, 0x80))
            continue
        name, value = field
        index = _INDEX_OF_NAME.get(name, 0)
        out.append(_integer(index, 4, 0))
        if not index:
            out.append(_string(name))
        out.append(_string(value))
    return b"".join(out)


def _read_integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Read the integer with the prefix `mask` at `at`; return it and its end (section 5.1)."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
    raise HpackError("integer too large")


def _read_string(block: bytes, at: int) -> tuple[str, int]:
    coded, length = block[at] & 0x80, block[at] & 0x7F
    at += 1
    if length == 0x7F:
        length, at = _read_integer(block, at - 1, 0x7F)
    end = at + length
    if end > len(block):
        raise HpackError("string longer than its block")
    if not coded:
        return block[at:end].decode("latin-1"), end
    try:
        return huffman.decode(block[at:end]), end
    except ValueError as error:
        raise HpackError(str(error)) from None


def _judge(entries: list[_Entry]) -> Block:
    values: list[str | None] = [None] * MARKS
    sound, regular, total = True, False, _KEPT_FIELD_BYTES * len(entries)
    for (_, value), size, mark in entries:
        total += size
        if mark == NONE:
            regular = True
            continue
        before = values[mark]
        if mark > LAST_PSEUDO:
            regular = True
            sound = sound and (before is None or mark != LENGTH or int(before) == int(value))
        else:
            sound = sound and mark != BAD and not regular and before is None
        if before is None:
            values[mark] = value
    return Block(tuple([field for field, _, _ in entries]), values, sound, total)


_STATIC_ENTRIES: Final = tuple(_entry(name, value) for name, value in _STATIC)


class Decoder:
    """The decoder of one connection."""

    __slots__ = ("_bytes", "_limit", "_max_bytes", "_table")

    def __init__(self, max_bytes: int) -> None:
        """Take the most bytes of a decoded block; a field counts as in RFC 9113 section 6.5.2."""
        self._max_bytes = max_bytes
        self._limit = TABLE_BYTES
        self._bytes = 0
        self._table: list[_Entry] = []

    def decode(self, block: bytes) -> Block:
        """Decode a whole block. After HpackError or HeadersTooLarge nothing more can be decoded."""
        try:
            return _judge(self._entries(block))
        except IndexError:
            raise HpackError("block ends early") from None

    def _entries(self, block: bytes) -> list[_Entry]:
        entries: list[_Entry] = []
        at, end, left = 0, len(block), self._max_bytes
        while at < end:
            first = block[at]
            if 0x80 < first <= _LAST_STATIC:
                entry = _STATIC_ENTRIES[first - 0x81]
                at += 1
            elif first & 0x80:
                index = first & 0x7F
                at += 1
                if index == 0x7F:
                    index, at = _read_integer(block, at - 1, 0x7F)
                entry = self._at_index(index)
            elif first & 0xE0 == 0x20:
                if entries:
                    raise HpackError("table size update after a field")
                limit, at = _read_integer(block, at, 0x1F)
                self._resize(limit)
                continue
            else:
                entry, at = self._literal(block, at, first)
            left -= entry[1]
            if left < 0 or len(entries) == MOST_FIELDS:
                raise HeadersTooLarge
            entries.append(entry)
        return entries

    def _at_index(self, index: int) -> _Entry:
        if index > _STATIC_COUNT:
            if index > _STATIC_COUNT + len(self._table):
                raise HpackError("index outside the tables")
            return self._table[_STATIC_COUNT - index]
        if not index:
            raise HpackError("index 0")
        return _STATIC_ENTRIES[index - 1]

    def _literal(self, block: bytes, at: int, first: int) -> tuple[_Entry, int]:
        """Read the literal field at `at`, add it to the table if `first` says so; return it and its end."""
        indexed = first & 0x40
        if first & (0x3F if indexed else 0x0F):
            index, at = _read_integer(block, at, 0x3F if indexed else 0x0F)
            name = self._at_index(index)[0][0]
        else:
            name, at = _read_string(block, at + 1)
        value, at = _read_string(block, at)
        size = len(name) + len(value) + FIELD_BYTES
        entry = (name, value), size, mark_of(name, value)
        if indexed:
            self._bytes += size
            self._table.append(entry)
            while self._bytes > self._limit:
                self._bytes -= self._table.pop(0)[1]
        return entry, at

    def _resize(self, limit: int) -> None:
        if limit > TABLE_BYTES:
            raise HpackError("table size over the setting")
        self._limit = limit
        while self._bytes > limit:
            self._bytes -= self._table.pop(0)[1]
