from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

from evaluator.http.messages import Code, RpcError
from evaluator.server import protobuf

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)  # fmt: skip


def test_reading_messages_imports_no_grpc() -> None:
    code = "import sys, evaluator.server.evaluation; print('grpc' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_a_struct_comes_back_as_the_dict_it_was_made_of(values: dict[str, Any]) -> None:
    struct = Struct()
    struct.update(values)
    assert protobuf.plain(struct) == values


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_invalid_argument(message: bytes) -> None:
    try:
        expected = v2.ResolveBooleanRequest.FromString(message).flag_key
    except DecodeError:
        with pytest.raises(RpcError) as caught:
            protobuf.decode_request(message)
        assert caught.value.code is Code.INVALID_ARGUMENT
    else:
        assert protobuf.decode_request(message)[0] == expected


def nest(depth: int, build: Any) -> Struct:
    struct = Struct()
    value: Any = 1
    for _ in range(depth):
        value = build(value)
    struct.update({"a": value})
    return struct


@pytest.mark.parametrize("build", [lambda v: {"a": v}, lambda v: [v]], ids=["objects", "arrays"])
def test_a_context_that_nests_too_deep_is_refused(build: Any) -> None:
    assert protobuf.plain(nest(63, build))
    with pytest.raises(RpcError, match="deeper than 64") as caught:
        protobuf.plain(nest(64, build))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_an_event_says_its_type_and_carries_an_object() -> None:
    message = v2.EventStreamResponse.FromString(protobuf.encode_event("keep_alive", {}))
    assert message.type == "keep_alive"
    assert message.HasField("data")
