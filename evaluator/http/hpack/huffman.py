"""Decodes the Huffman code of HPACK strings (RFC 7541 section 5.2 and Appendix B)."""

from __future__ import annotations

from typing import TypeAlias

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

_END = 256


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


_NODES = _tree()
_Row: TypeAlias = "list[tuple[_Row, str]]"
"""The state of decoding between two bytes: for each next byte, the next row and the decoded text."""

_DEAD: _Row = []
"""The state after the end-of-string symbol, which no string may contain."""


_ROWS: list[_Row] = [[] for _ in _NODES]
_NUMBERS = {id(row): number for number, row in enumerate(_ROWS)}


def _fill(row: _Row) -> None:
    """Compute the transitions of a row when it is first used: few rows ever are."""
    start = _NUMBERS[id(row)]
    for byte in range(256):
        node, symbols = start, ""
        for shift in range(7, -1, -1):
            node = _NODES[node][byte >> shift & 1]
            if node == -1 - _END:
                break
            if node < 0:
                symbols += chr(-1 - node)
                node = 0
        row.append((_DEAD, "") if node < 0 else (_ROWS[node], symbols))


def _ends() -> frozenset[int]:
    """Return the identities of rows at which a string may end: after at most seven bits, all ones."""
    nodes = [0]
    for _ in range(7):
        nodes.append(_NODES[nodes[-1]][1])
    return frozenset(id(_ROWS[node]) for node in nodes)


_ENDS = _ends()


def decode(coded: bytes) -> str:
    """Decode a string to octets as Latin-1. Raises ValueError if it is no Huffman code."""
    row, out, rest = _ROWS[0], [], iter(coded)
    byte = 0
    while True:
        try:
            for byte in rest:
                row, symbols = row[byte]
                out.append(symbols)
            break
        except IndexError:
            if row is _DEAD:
                raise ValueError("end of string within a Huffman string") from None
            _fill(row)
            row, symbols = row[byte]
            out.append(symbols)
    if id(row) not in _ENDS:
        raise ValueError("wrong padding of a Huffman string")
    return "".join(out)
