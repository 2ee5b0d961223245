"""HPACK, the header compression of HTTP/2 (RFC 7541): a decoder with state, an encoder without.

Octets and characters are mapped as Latin-1, so that any octets survive; what is allowed in a field is not judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.http import huffman

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evaluator.http.routes import Headers

TABLE_BYTES = 4096
"""What our dynamic table may hold: HPACK's default, so that no setting need say it."""

_MEMO_ENTRIES = 64
_MEMO_BLOCK_BYTES = 1024

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
    """The block is not HPACK: the connection's state is lost (COMPRESSION_ERROR)."""


class HeadersTooLarge(Exception):
    """The block decoded to more than the bound; the table has been kept in step, so that the connection may go on."""


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
    """A header block of static-table references and literals that are not indexed.

    It needs and changes no state, so that one block may be prepared once and sent on every connection. Names in lower case;
    UnicodeEncodeError for what Latin-1 lacks.
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
    """The integer whose prefix lies under `mask` at `at`, and the place after it (section 5.1)."""
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
    coded = block[at] & 0x80
    length, at = _read_integer(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HpackError("string longer than its block")
    octets = block[at:end]
    if coded:
        try:
            octets = huffman.decode(octets)
        except ValueError as error:
            raise HpackError(str(error)) from None
    return octets.decode("latin-1"), end


class Decoder:
    """One connection's decoder.

    It remembers what a block of bytes meant for as long as the dynamic table stays as it is: clients repeat themselves.
    """

    __slots__ = ("_bytes", "_limit", "_max_bytes", "_memo", "_table")

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: bound of a decoded block, each field counted as name + value + 32 (RFC 9113 section 6.5.2)."""
        self._max_bytes = max_bytes
        self._limit = TABLE_BYTES
        self._bytes = 0
        self._table: list[tuple[str, str]] = []
        self._memo: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """The fields of one whole block; HpackError or HeadersTooLarge."""
        known = self._memo.get(block)
        if known is not None:
            return known
        try:
            headers, changed = self._decode(block)
        except IndexError:
            raise HpackError("block ends early") from None
        if changed:
            self._memo.clear()
        elif len(block) <= _MEMO_BLOCK_BYTES:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[block] = headers
        return headers

    def _decode(self, block: bytes) -> tuple[Headers, bool]:
        headers: list[tuple[str, str]] = []
        at, end, size, changed = 0, len(block), 0, False
        while at < end:
            first = block[at]
            if 0x80 < first <= _LAST_STATIC:
                field = _STATIC[first - 0x81]
                at += 1
            elif first & 0x80:
                index, at = _read_integer(block, at, 0x7F)
                field = self._entry(index)
            elif first & 0xE0 == 0x20:
                if size:
                    raise HpackError("table size update after a field")
                limit, at = _read_integer(block, at, 0x1F)
                self._resize(limit)
                changed = True
                continue
            else:
                indexed = first & 0x40
                field, at = self._literal(block, at, 0x3F if indexed else 0x0F)
                if indexed:
                    self._add(field)
                    changed = True
            size += len(field[0]) + len(field[1]) + 32
            if size <= self._max_bytes:
                headers.append(field)
        if size > self._max_bytes:
            if changed:
                self._memo.clear()
            raise HeadersTooLarge
        return tuple(headers), changed

    def _entry(self, index: int) -> tuple[str, str]:
        if index > _STATIC_COUNT:
            dynamic = index - _STATIC_COUNT
            if dynamic > len(self._table):
                raise HpackError("index outside the tables")
            return self._table[-dynamic]
        if not index:
            raise HpackError("index 0")
        return _STATIC[index - 1]

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[tuple[str, str], int]:
        index, at = _read_integer(block, at, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, at = _read_string(block, at)
        value, at = _read_string(block, at)
        return (name, value), at

    def _add(self, field: tuple[str, str]) -> None:
        self._bytes += len(field[0]) + len(field[1]) + 32
        self._table.append(field)
        if self._bytes > self._limit:
            self._evict()

    def _resize(self, limit: int) -> None:
        if limit > TABLE_BYTES:
            raise HpackError("table size over the setting")
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        gone = 0
        while self._bytes > self._limit:
            name, value = self._table[gone]
            self._bytes -= len(name) + len(value) + 32
            gone += 1
        del self._table[:gone]
