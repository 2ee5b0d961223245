"""Requests as bytes: what is read here is what protobuf reads."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from evaluator.server.protobuf import plain
from evaluator.wire import evaluation_v1_pb2 as v1
from evaluator.wire.resolve_request import read_usual

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
SCALARS = st.none() | st.booleans() | st.floats() | TEXT
NESTED = st.recursive(
    SCALARS, lambda below: st.lists(below) | st.dictionaries(TEXT, below), max_leaves=5
)  # fmt: skip


def encode_request(key: str, context: dict[str, Any]) -> bytes:
    given = Struct()
    given.update(context)
    message: bytes = v1.ResolveRequest(flag_key=key, context=given).SerializeToString()
    return message


def by_protobuf(message: bytes) -> tuple[str, dict[str, Any]]:
    request = v1.ResolveRequest.FromString(message)
    return request.flag_key, plain(request.context)


def same(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> bool:
    """Whether both are equal, NaN included, and of the same types."""
    return one[0] == other[0] and {k: repr(v) for k, v in one[1].items()} == {
        k: repr(v) for k, v in other[1].items()
    }


@given(TEXT.filter(bool), st.dictionaries(TEXT, SCALARS))
def test_a_context_of_scalars_is_read_as_protobuf_reads_it(key: str, context: dict[str, Any]) -> None:
    message = encode_request(key, context)
    read = read_usual(message)
    assert read is not None
    assert same(read, by_protobuf(message))


@given(TEXT, st.dictionaries(TEXT, NESTED, max_size=4), st.data())
def test_bytes_that_are_damaged_are_read_as_protobuf_reads_them_or_not_at_all(
    key: str, context: dict[str, Any], data: st.DataObject
) -> None:
    message = bytearray(encode_request(key, context))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(message)))
        message[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    damaged = bytes(message)
    read = read_usual(damaged)
    if read is None:
        return
    try:
        assert same(read, by_protobuf(damaged))
    except DecodeError:
        pytest.fail(f"protobuf refuses what was read: {damaged.hex()}")


@pytest.mark.parametrize(
    "message",
    [
        encode_request("", {}),
        encode_request("key", {"nested": {}}),
        encode_request("key", {"list": [1]}),
        encode_request("key", {}) + encode_request("again", {}),
        encode_request("key", {"a": 1}) + encode_request("", {"b": 1}),
        b"\x0a\x83\x00key",
        b"\x0a\x02\xc3\x28",
        b"\x0a\x03key\x1a\x00",
        b"\x0a\x03key\x12\x09",
        b"\x0a\x03key\x12\x07\x0a\x05\x0a\x01a\x12\x00",
        b"\x0a\x03key\x12\x09\x0a\x07\x0a\x01a\x12\x02\x20\x02",
    ],
)
def test_what_is_unusual_is_left_to_protobuf(message: bytes) -> None:
    assert read_usual(message) is None


def test_a_request_may_lack_a_context_or_have_it_first() -> None:
    assert read_usual(b"\x0a\x03key") == ("key", {})
    assert read_usual(b"\x12\x00\x0a\x03key") == ("key", {})
