"""HPACK, the header compression of HTTP/2 (RFC 7541): a decoder with a dynamic table, an encoder without; and
the header fields of requests and trailers (RFC 9113 section 8). Pure.

Octets are mapped to characters as Latin-1, so that any octets survive. Each field is validated once, when it
is decoded: fields in the compression tables are validated already.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_extensions import i64

    from evaluator.http.messages import Headers


# fmt: off
_LENGTHS = [
    13, 23, *[28] * 7, 24, 30, 28, 28, 30, *[28] * 8, 30, *[28] * 9,  # controls
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,  # space to /
    5, 5, 5, *[6] * 7, 7, 8, 15, 6, 12, 10,  # 0 to ?
    13, 6, *[7] * 22, 8, 7, 8, 13, 19, 13, 14, 6,  # @ to _
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,  # ` to o
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,  # p to delete
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,  # the end of string
]
# fmt: on
"""Bits of each symbol's code. The code is canonical, so that the lengths say it all."""

_END: Final = 256


def _tree() -> list[list[int]]:
    """Return the nodes of the code: for each bit the next node, or `-1 - symbol`."""
    nodes: list[list[int]] = [[0, 0]]
    code = previous = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(_LENGTHS)):
        code <<= length - previous
        node = nodes[0]
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if not node[bit]:
                node[bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node[bit]]
        node[code & 1] = -1 - symbol
        code, previous = code + 1, length
    return nodes


_NODES: Final = _tree()


class _Row:
    """The state of decoding between two bytes: for each next byte, the next row and the decoded text."""

    __slots__ = ("ends", "number", "rows", "texts")

    def __init__(self, number: int) -> None:
        self.number = number
        """The number of its node; -1 after the end-of-string symbol, which no string may contain."""
        self.ends = False
        """Whether a string may end here: after at most seven bits, all ones."""
        self.rows: list[_Row] = []
        """Empty until the row is first used: few rows ever are."""
        self.texts: list[str] = []

    def fill(self) -> None:
        """Compute the transitions. Raises ValueError after the end-of-string symbol."""
        if self.number < 0:
            raise ValueError("end of string within a Huffman string")
        for byte in range(256):
            node, symbols = self.number, ""
            for shift in range(7, -1, -1):
                node = _NODES[node][byte >> shift & 1]
                if node == -1 - _END:
                    break
                if node < 0:
                    symbols += chr(-1 - node)
                    node = 0
            self.rows.append(_DEAD if node < 0 else _ROWS[node])
            self.texts.append("" if node < 0 else symbols)


_DEAD: Final = _Row(-1)
_ROWS: Final = [_Row(number) for number in range(len(_NODES))]


def _mark_ends() -> None:
    node = 0
    for _ in range(8):
        _ROWS[node].ends = True
        node = _NODES[node][1]


_mark_ends()


def decode(coded: bytes) -> str:
    """Decode a string to octets as Latin-1. Raises ValueError if it is no Huffman code."""
    row = _ROWS[0]
    texts = [""] * len(coded)
    for at in range(len(coded)):
        byte: i64 = coded[at]
        try:
            texts[at] = row.texts[byte]
        except IndexError:
            row.fill()
            texts[at] = row.texts[byte]
        row = row.rows[byte]
    if not row.ends:
        raise ValueError("wrong padding of a Huffman string")
    return "".join(texts)


NONE: Final = 0
"""The mark of a field that is nothing special."""
BAD: Final = 1
"""The mark of a field that is not allowed in a request."""
METHOD: Final = 2
SCHEME: Final = 3
PATH: Final = 4
AUTHORITY: Final = 5
LENGTH: Final = 6
CONTENT_TYPE: Final = 7
TIMEOUT: Final = 8
ENCODING: Final = 9
"""The mark of any other field is its index in `Block.values`."""

MARKS: Final = 10
LAST_PSEUDO: Final = AUTHORITY
UNDECLARED: Final = -1
"""The content length of a request without content-length."""

_SPECIAL: Final = {
    ":method": METHOD,
    ":scheme": SCHEME,
    ":path": PATH,
    ":authority": AUTHORITY,
    "content-length": LENGTH,
    "content-type": CONTENT_TYPE,
    "grpc-timeout": TIMEOUT,
    "grpc-encoding": ENCODING,
}
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_LENGTH: Final = re.compile(r"[0-9]{1,18}").fullmatch
_OF_A_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
_LONGEST_NAME: Final = 64


class Block:
    """A header block, decoded and validated."""

    __slots__ = ("fields", "size", "sound", "values")

    def __init__(self, fields: Headers, values: list[str | None], sound: bool, size: int) -> None:
        self.fields = fields
        self.values = values
        """Values by mark: the fields that decide how a request is answered."""
        self.sound = sound
        """Whether no field is BAD, no special one has two values, and pseudo-header fields come first."""
        self.size = size
        """About how many bytes it takes in memory."""


class _Entry:
    """A field as it is in a compression table."""

    __slots__ = ("field", "mark", "mark_of_name", "size")

    def __init__(self, name: str, value: str, mark_of_name: int) -> None:
        self.field = (name, value)
        self.mark_of_name = mark_of_name
        """Its mark if its value is valid."""
        self.mark = mark_of_name if _is_valid(name, value, mark_of_name) else BAD
        self.size = len(name) + len(value) + FIELD_BYTES
        """Its bytes by section 4.1."""


def _mark_of_name(name: str) -> int:
    """Return the mark of a field with a valid value; BAD for a name that no request may have."""
    mark = _SPECIAL.get(name)
    if mark is not None:
        return mark
    return NONE if _NAME(name) and name not in _OF_A_CONNECTION else BAD


_known_name: Final = lru_cache(maxsize=256)(_mark_of_name)


def _is_valid(name: str, value: str, mark_of_name: int) -> bool:
    """Return whether a request may have the value in the field."""
    if "\n" in value or "\r" in value or "\0" in value or value.strip(" \t") != value:
        return False
    return not ((mark_of_name == LENGTH and not _LENGTH(value)) or (name == "te" and value != "trailers"))


def content_length(block: Block) -> int | None:
    """Return a request's content length, or UNDECLARED; None if the block is no valid request."""
    values = block.values
    path = values[PATH]
    if not (block.sound and values[METHOD] and values[SCHEME] is not None and path):
        return None
    if path[0] != "/" and path != "*":
        return None
    length = values[LENGTH]
    return UNDECLARED if length is None else int(length)


def may_follow_a_body(block: Block) -> bool:
    """Return whether these are valid trailers (section 8.1)."""
    return block.sound and not any(block.values[METHOD : LAST_PSEUDO + 1])


TABLE_BYTES: Final = 4096
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

_STATIC_COUNT: Final = 61
_INDEX_OF_FIELD: Final = {field: index for index, field in enumerate(_STATIC, 1)}
_INDEX_OF_NAME: Final = {name: index for index, (name, _) in reversed(list(enumerate(_STATIC, 1)))}


_LAST_SHIFT: Final = 21
"""Integers have at most 28 bits beyond their prefix."""


class HpackError(Exception):
    """The block is not HPACK: the state of the tables is unknown (COMPRESSION_ERROR)."""


class HeadersTooLarge(Exception):
    """The block decodes to more than the limit. Decoding stops, so the state of the tables is unknown."""


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


def _read_integer(block: bytes, at: i64, mask: i64) -> tuple[i64, i64]:
    """Read the integer with the prefix `mask` at `at`; return it and its end (section 5.1)."""
    value: i64 = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    shift: i64 = 0
    while shift <= _LAST_SHIFT:
        byte: i64 = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise HpackError("integer too large")


def _read_string(block: bytes, at: i64) -> tuple[str, i64]:
    coded: i64 = block[at] & 0x80
    length: i64 = block[at] & 0x7F
    at += 1
    if length == 0x7F:
        length, at = _read_integer(block, at - 1, 0x7F)
    end: i64 = at + length
    if end > len(block):
        raise HpackError("string longer than its block")
    if not coded:
        return block[at:end].decode("latin-1"), end
    try:
        return decode(block[at:end]), end
    except ValueError as error:
        raise HpackError(str(error)) from None


_STATIC_ENTRIES: Final = [_Entry(name, value, _mark_of_name(name)) for name, value in _STATIC]


def _fits(values: list[str | None], mark: int, value: str, regular: bool) -> bool:
    """Put the value of a field with a mark into `values`, if it is the first; return whether the block may
    have the field. `regular`: a field that is no pseudo-header came before.
    """
    before = values[mark]
    if before is None:
        values[mark] = value
    if mark > LAST_PSEUDO:
        return before is None or mark != LENGTH or int(before) == int(value)
    return mark != BAD and not regular and before is None


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
            return self._decode(block)
        except IndexError:
            raise HpackError("block ends early") from None

    def _decode(self, block: bytes) -> Block:
        fields: list[tuple[str, str]] = []
        values: list[str | None] = [None] * MARKS
        sound, regular, left = True, False, self._max_bytes
        at: i64 = 0
        end: i64 = len(block)
        while at < end:
            first: i64 = block[at]
            if first & 0x80:
                at += 1
                index = first & 0x7F
                if index == 0x7F:
                    index, at = _read_integer(block, at - 1, 0x7F)
                entry = self._at_index(index)
            elif first & 0xE0 == 0x20:
                if fields:
                    raise HpackError("table size update after a field")
                index, at = _read_integer(block, at, 0x1F)
                self._resize(index)
                continue
            else:
                entry, at = self._literal(block, at, first)
            left -= entry.size
            if left < 0 or len(fields) == MOST_FIELDS:
                raise HeadersTooLarge
            fields.append(entry.field)
            mark = entry.mark
            if mark != NONE:
                sound = sound and _fits(values, mark, entry.field[1], regular)
            regular = regular or mark == NONE or mark > LAST_PSEUDO
        size = self._max_bytes - left + (_KEPT_FIELD_BYTES * len(fields))
        return Block(tuple(fields), values, sound, size)

    def _at_index(self, index: i64) -> _Entry:
        if index > _STATIC_COUNT:
            if index > _STATIC_COUNT + len(self._table):
                raise HpackError("index outside the tables")
            return self._table[_STATIC_COUNT - index]
        if not index:
            raise HpackError("index 0")
        return _STATIC_ENTRIES[index - 1]

    def _literal(self, block: bytes, at: i64, first: i64) -> tuple[_Entry, i64]:
        """Read the literal field at `at`, add it to the table if `first` says so; return it and its end."""
        indexed = first & 0x40 != 0
        mask: i64 = 0x3F if indexed else 0x0F
        if first & mask:
            index, at = _read_integer(block, at, mask)
            known = self._at_index(index)
            name, mark_of_name = known.field[0], known.mark_of_name
        else:
            name, at = _read_string(block, at + 1)
            mark_of_name = _known_name(name) if len(name) <= _LONGEST_NAME else _mark_of_name(name)
        value, at = _read_string(block, at)
        entry = _Entry(name, value, mark_of_name)
        if indexed:
            self._bytes += entry.size
            self._table.append(entry)
            self._shrink()
        return entry, at

    def _resize(self, limit: i64) -> None:
        if limit > TABLE_BYTES:
            raise HpackError("table size over the setting")
        self._limit = limit
        self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._limit:
            self._bytes -= self._table.pop(0).size
