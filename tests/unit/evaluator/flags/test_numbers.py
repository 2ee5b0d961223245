"""A number has one form: the same in value and type over every protocol, format and after a restart."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaluator.flags.canonical import canonical, digest
from evaluator.flags.merge import parse
from evaluator.flags.saved import Saved, decode, encode
from evaluator.flags.text import normal, read_integer, read_number
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
from evaluator.server import json_rpc, protobuf
from evaluator.wire import evaluation_v1_pb2
from evaluator.wire.sync_messages import encode as sync_payload

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet

READ = {
    "3": 3, "3.0": 3, "3e0": 3, "30e-1": 3, "-0": 0, "-0.0": 0, "0.5": 0.5, "9007199254740991": 2**53 - 1,
    "9007199254740993": 2**53, "-9007199254740993": -(2**53), "1152921504606846977": 2**60,
    "-9223372036854775808": -(2**63), "-9223372036854775809": -(2**63), "9223372036854774784": 2**63 - 1024,
    "9223372036854775807": 2.0**63, "18446744073709551616": 2.0**64, "1e21": 1e21, "5e-324": 5e-324,
    "1e400": None, "9" * 400: None, "-" + "9" * 5000: None,
}  # fmt: skip


def document(literal: str) -> bytes:
    return b'{"flags":{"f":{"state":"ENABLED","variants":{"n":%b},"defaultVariant":"n"}}}' % literal.encode()


def flag_set(literal: str) -> FlagSet:
    read = parse(document(literal), file="a.json")
    assert read.problems == ()
    return read.flag_set


@pytest.mark.parametrize("literal", READ)
def test_a_literal_is_the_float64_that_flagd_holds_whole_numbers_of_64_bits_as_integers(literal: str) -> None:
    expected = READ[literal]
    assert repr(read_number(literal)) == repr(expected)
    if set(literal) <= set("-0123456789"):
        assert repr(read_integer(literal)) == repr(expected)


def test_yaml_and_json_read_the_same_number() -> None:
    for literal, expected in READ.items():
        read = parse(f"flags: {{f: {{variants: {{n: {literal}}}}}}}".encode(), file="a.yaml").flag_set
        if expected is not None:
            assert repr(read.flags["f"].variants["n"]) == repr(expected)


@pytest.mark.parametrize("literal", ["9007199254740993", "3.0", "18446744073709551616", "-0.0", "0.5"])
def test_every_protocol_gives_the_same_number_before_and_after_a_restart(literal: str) -> None:
    first = flag_set(literal)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    restored = decode(encode(Saved(first, moment))).flag_set
    synced = parse(sync_payload(first), file="a.json").flag_set
    expected = read_number(literal)
    assert expected is not None
    for held in (first, restored, synced):
        answer = resolve(compile_flag_set(held), "f", FlagType.FLOAT, {}, 0)
        plain = resolve(compile_flag_set(held), "f", None, {}, 0)
        ofrep = json.loads(orjson.dumps(plain.value))
        connect = json.loads(json_rpc.encode_answer("v1", FlagType.FLOAT, answer))["value"]
        encoded = protobuf.encode_answer("v1", FlagType.FLOAT, answer)
        grpc = evaluation_v1_pb2.ResolveFloatResponse.FromString(encoded).value
        assert (float(ofrep), float(connect), grpc) == (expected, expected, expected)
        # Beyond 64 bits a whole float is written without an exponent, as flagd writes it.
        kept = abs(expected) < 2**63
        assert not kept or (repr(ofrep), repr(connect)) == (repr(expected), repr(expected))


@pytest.mark.parametrize(
    "spellings", [("3", "3.0", "3e0", "30e-1"), ("9007199254740993", "9007199254740992")]
)
def test_spellings_of_one_value_have_one_digest(spellings: tuple[str, ...]) -> None:
    assert len({digest(flag_set(literal)) for literal in spellings}) == 1


def test_an_integer_beyond_64_bits_in_metadata_can_be_encoded() -> None:
    top = b'{"flags":{},"metadata":{"n":18446744073709551616}}'
    metadata = dict(parse(top, file="a.json").flag_set.metadata)
    assert json.loads(orjson.dumps(metadata)) == {"n": 2.0**64}


numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@given(numbers)
@example(2**63 - 1)
@example(-(2**63) - 1)
@example(float(2**53 + 2))
def test_what_is_read_is_written_and_read_again_with_value_and_type(number: float) -> None:
    first = flag_set(json.dumps(number))
    assert repr(parse(canonical(first), file="a.json").flag_set) == repr(first)
    value = first.flags["f"].variants["n"]
    assert repr(normal(value)) == repr(value) == repr(normal(number))
    assert float(value) == float(number)


def test_a_context_of_another_decoder_is_read_alike() -> None:
    context = orjson.loads(b'{"id":9007199254740993,"deep":[{"n":3.0}],"big":18446744073709551616,"b":true}')
    assert repr(normal(context)) == repr({"id": 2**53, "deep": [{"n": 3}], "big": 2.0**64, "b": True})
