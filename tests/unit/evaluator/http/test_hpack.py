from __future__ import annotations

import hpack as oracle
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hypothesis import given
from hypothesis import strategies as st

from evaluator.http import hpack
from evaluator.http.hpack import MOST_FIELDS, Decoder, HeadersTooLarge, HpackError, encode_block

NAMES = st.sampled_from([":path", ":status", "content-type", "x-a", "grpc-timeout"]) | st.text(
    "abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20
)
VALUES = st.sampled_from(["200", "/", "application/grpc"]) | st.text(
    st.characters(max_codepoint=255), max_size=200
)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=12)
GET = ((":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com"))
GETS = ((":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com"))
THREE = [
    GET,
    (*GET, ("cache-control", "no-cache")),
    ((":method", "GET"), *GETS, ("custom-key", "custom-value")),
]

RFC_7541_APPENDIX_C = {
    "C.2.1 literal with indexing": (
        ["400a637573746f6d2d6b65790d637573746f6d2d686561646572"],
        [(("custom-key", "custom-header"),)],
    ),
    "C.2.2 literal without indexing": (["040c2f73616d706c652f70617468"], [((":path", "/sample/path"),)]),
    "C.2.3 literal never indexed": (["100870617373776f726406736563726574"], [(("password", "secret"),)]),
    "C.2.4 indexed": (["82"], [((":method", "GET"),)]),
    "C.3 requests without Huffman": (
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        THREE,
    ),
    "C.4 requests with Huffman": (
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
        THREE,
    ),
}


@pytest.mark.parametrize(("blocks", "expected"), RFC_7541_APPENDIX_C.values(), ids=RFC_7541_APPENDIX_C.keys())
def test_the_examples_of_the_rfc_decode_as_it_says(
    blocks: list[str], expected: list[tuple[tuple[str, str], ...]]
) -> None:
    decoder = Decoder(10_000)
    assert [decoder.decode(bytes.fromhex(block)).fields for block in blocks] == expected


def test_every_huffman_code_is_that_of_the_oracle() -> None:
    for symbol in range(256):
        length = REQUEST_CODES_LENGTH[symbol]
        padding = -length % 8
        code = REQUEST_CODES[symbol] << padding | (1 << padding) - 1
        assert hpack.decode(code.to_bytes((length + padding) // 8)) == chr(symbol)


@given(st.binary(max_size=300))
def test_huffman_strings_of_the_oracle_decode_to_what_they_were(octets: bytes) -> None:
    coded = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode(octets)
    assert hpack.decode(coded) == octets.decode("latin-1")


@pytest.mark.parametrize(
    "coded",
    [b"\xff", b"\x1f\xff", b"\x00\x00", b"\xff" * 4, b"\xff" * 5, b"\xff\xff\xff\xfc", b"\xfe"],
    ids=["padding", "more padding", "zeros", "end of string", "and more", "and zeros", "half a code"],
)
def test_a_wrongly_ended_huffman_string_is_an_error(coded: bytes) -> None:
    with pytest.raises(ValueError, match="Huffman"):
        hpack.decode(coded)


@given(HEADERS)
def test_the_oracle_reads_our_blocks(headers: list[tuple[str, str]]) -> None:
    read = oracle.Decoder().decode(encode_block(headers), raw=True)
    expected = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    assert [(bytes(name), bytes(value)) for name, value in read] == expected


@given(st.lists(st.tuples(HEADERS, st.booleans(), st.none() | st.integers(0, 4096)), max_size=6))
def test_we_read_the_blocks_of_the_oracle(
    blocks: list[tuple[list[tuple[str, str]], bool, int | None]],
) -> None:
    encoder, decoder = oracle.Encoder(), Decoder(100_000)
    for headers, huffman_coded, table_size in blocks:
        if table_size is not None:
            encoder.header_table_size = table_size
        fields = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        block = encoder.encode(fields, huffman=huffman_coded)
        assert decoder.decode(block).fields == tuple(headers)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_any_bytes_are_headers_or_an_hpack_error(blocks: list[bytes]) -> None:
    decoder = Decoder(1000)
    for block in blocks:
        try:
            headers = decoder.decode(block).fields
        except (HpackError, HeadersTooLarge):
            continue
        assert sum(len(name) + len(value) + 32 for name, value in headers) <= 1000


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_what_we_take_the_oracle_takes_alike(blocks: list[bytes]) -> None:
    ours, theirs = Decoder(100_000), oracle.Decoder()
    for block in blocks:
        try:
            headers = ours.decode(block).fields
        except HpackError:
            return
        read = theirs.decode(block, raw=True)
        assert headers == tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in read)


WRONG = {
    "index 0": "80",
    "index beyond the tables": "be",
    "name index beyond the tables": "7f00",
    "string cut short": "400a6375",
    "block cut within an integer": "1f",
    "integer without end": "ffffffffffffff",
    "size update after a field": "8220",
    "size update over the setting": "3fe21f",
    "Huffman string of padding": "0081ff00",
}


@pytest.mark.parametrize("block", WRONG.values(), ids=WRONG.keys())
def test_a_broken_block_is_an_hpack_error(block: str) -> None:
    with pytest.raises(HpackError):
        Decoder(10_000).decode(bytes.fromhex(block))


def test_a_size_update_empties_the_table() -> None:
    decoder = Decoder(10_000)
    decoder.decode(bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572"))
    assert decoder.decode(b"\xbe").fields == (("custom-key", "custom-header"),)
    assert decoder.decode(b"\x20").fields == ()
    with pytest.raises(HpackError, match="outside"):
        decoder.decode(b"\xbe")


def test_a_block_means_something_else_once_the_table_has_changed() -> None:
    encoder, decoder = oracle.Encoder(), Decoder(10_000)
    decoder.decode(encoder.encode([("x-one", "1")]))
    assert [decoder.decode(b"\xbe").fields for _ in range(2)] == [(("x-one", "1"),)] * 2
    decoder.decode(encoder.encode([("x-two", "2")]))
    assert decoder.decode(b"\xbe").fields == (("x-two", "2"),)


def test_blocks_that_never_repeat_are_all_decoded() -> None:
    decoder = Decoder(10_000)
    for number in range(200):
        headers = (("x-number", str(number)),)
        assert decoder.decode(encode_block(headers)).fields == headers


@pytest.mark.parametrize(
    "block",
    [encode_block([("x-big", "b" * 300)]), b"\x84" * 257, b"\x40\x01a\x32" + b"b" * 50 + b"\xbe" * 2],
    ids=["one field", "many fields", "one field repeated"],
)
def test_a_block_over_its_bounds_is_read_no_further(block: bytes) -> None:
    with pytest.raises(HeadersTooLarge):
        Decoder(200 if b"\x84" not in block else 100_000).decode(block)


def test_a_block_of_as_many_fields_as_are_allowed_is_read() -> None:
    assert len(Decoder(100_000).decode(b"\x84" * MOST_FIELDS).fields) == MOST_FIELDS


def test_an_entry_larger_than_the_table_empties_it() -> None:
    encoder, decoder = oracle.Encoder(), Decoder(100_000)
    decoder.decode(encoder.encode([("x-small", "1")]))
    decoder.decode(encoder.encode([("x-big", "b" * 5000)]))
    with pytest.raises(HpackError):
        decoder.decode(b"\xbe")


def test_a_character_that_latin_1_lacks_cannot_be_sent() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_block([("x-name", "€")])
