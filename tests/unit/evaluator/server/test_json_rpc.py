from __future__ import annotations

import contextlib
import json
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

from evaluator.flags.model import ABSENT
from evaluator.http.messages import Code, RpcError
from evaluator.resolving.resolution import EvaluationReason, FlagType, Resolution
from evaluator.server import json_rpc, protobuf
from evaluator.server.evaluation import METHODS
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import World, answer_of, call, world

PB: dict[str, Any] = {"v1": v1, "v2": v2}
NUMBERS = st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | st.text(max_size=5)
PLAIN = st.recursive(
    st.none() | SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=3),
    max_leaves=8,
)  # fmt: skip
VALUES = {
    FlagType.BOOLEAN: st.booleans(),
    FlagType.STRING: st.text(max_size=8),
    FlagType.INTEGER: st.integers(-(2**63), 2**63 - 1),
    FlagType.FLOAT: st.floats(),
    FlagType.OBJECT: st.dictionaries(st.text(max_size=3), PLAIN, max_size=3),
}
SUCCESSES = st.sampled_from([r for r in EvaluationReason if r is not EvaluationReason.ERROR])


@st.composite
def resolutions(draw: st.DrawFn) -> tuple[FlagType, Resolution]:
    """A type and a successful answer of it, with a value or without."""
    wanted = draw(st.sampled_from(FlagType))
    metadata = MappingProxyType(draw(st.dictionaries(st.text(max_size=3), SCALARS, max_size=3)))
    value = draw(st.just(ABSENT) | VALUES[wanted])
    variant = None if value is ABSENT else draw(st.text(max_size=3))
    return wanted, Resolution(value, variant, draw(SUCCESSES), metadata=metadata)


def map_to_json(message: Any) -> Any:
    """What protobuf's own JSON mapping makes of `message`, with flagd's options."""
    return MessageToDict(message, always_print_fields_with_no_presence=True)


def read(text: bytes) -> Any:
    """`text` with its numbers as protobuf has them, doubles all."""
    return json.loads(text, parse_int=float)


@settings(max_examples=150)
@given(st.sampled_from(["v1", "v2"]), resolutions())
def test_an_answer_is_protobufs_own_mapping_of_the_binary_answer(
    version: str, given_: tuple[FlagType, Resolution]
) -> None:
    wanted, resolution = given_
    method = next(name for name, kind in METHODS.items() if kind is wanted)
    response = getattr(PB[version], f"{method}Response")
    binary = response.FromString(protobuf.encode_answer(version, wanted, resolution))
    encoded = json_rpc.encode_answer(version, wanted, resolution)
    assert read(encoded) == map_to_json(binary)


@settings(max_examples=100)
@given(st.text(max_size=5), resolutions())
def test_a_bulk_answer_is_protobufs_own_mapping_of_the_binary_one(
    key: str, given_: tuple[FlagType, Resolution]
) -> None:
    kind, resolution = given_
    whole = [
        codec.join_bulk([entry], {"flagSetId": "shop"})
        for codec in (protobuf, json_rpc)
        if (entry := codec.encode_bulk_entry(key, kind, resolution)) is not None
    ]
    binary = v1.ResolveAllResponse.FromString(whole[0])
    assert read(whole[1]) == map_to_json(binary)


@settings(max_examples=60)
@given(st.text(max_size=5), st.dictionaries(st.text(max_size=3), PLAIN, max_size=4))
def test_a_request_is_read_as_protobuf_reads_it(key: str, context: dict[str, Any]) -> None:
    document = {"flagKey": key, "context": json.loads(json.dumps(context), parse_int=float)}
    binary = ParseDict(document, v2.ResolveBooleanRequest()).SerializeToString()
    expected, struct = protobuf.decode_request(binary)
    text = orjson.dumps(document | {"unknown": [1]})
    assert json_rpc.decode_request(text) == (expected, protobuf.plain(struct))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", ("", {})),
        (b'{"flag_key":"a"}', ("a", {})),
        (b'{"flagKey":null,"context":null}', ("", {})),
        (b'{"flagKey":"a","flag_key":"b"}', ("a", {})),
        (b'{"context":{"a":[1,{"b":null}]}}', ("", {"a": [1, {"b": None}]})),
    ],
)
def test_each_spelling_of_a_request_is_read(text: bytes, expected: Any) -> None:
    assert json_rpc.decode_request(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "unmarshal message: zero-length payload is not a valid JSON object"),
        (b"[]", "unmarshal message: must be a JSON object"),
        (b"null", "unmarshal message: must be a JSON object"),
        (b'{"flagKey":5}', "unmarshal message: flagKey must be a string"),
        (b'{"context":[]}', "unmarshal message: context must be an object"),
        (b'{"context":{"a":NaN}}', "unmarshal message: "),
        (b'{"flagKey":"secret', "unmarshal message: "),
        (b'{"flagKey":"\xff"}', "unmarshal message: "),
        (b'{"context":' + b'{"a":' * 100 + b"1" + b"}" * 101, "context nests deeper than 64"),
        (b"[" * 10_000, "unmarshal message: "),
    ],
    ids=lambda value: None if len(value) < 60 else "deep",
)
def test_what_is_no_request_is_an_invalid_argument_in_connects_words(text: bytes, said: str) -> None:
    with pytest.raises(RpcError) as caught:
        json_rpc.decode_request(text)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message.startswith(said)
    assert "secret" not in caught.value.message


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_an_invalid_argument(text: bytes) -> None:
    with contextlib.suppress(RpcError):
        key, context = json_rpc.decode_request(text)
        assert isinstance(key, str)
        assert isinstance(context, dict)


def answer(reason: str, value: Any, variant: str, **metadata: str) -> dict[str, Any]:
    return {"value": value, "reason": reason, "variant": variant, "metadata": metadata}


@pytest.mark.parametrize(
    ("version", "method", "key", "expected"),
    [
        ("v2", "Boolean", "boolean", answer("STATIC", True, "on", owner="shop")),
        ("v2", "Int", "integer", answer("STATIC", "10", "ten")),
        ("v1", "Float", "float", answer("STATIC", 0.5, "half")),
        ("v2", "Object", "object", answer("STATIC", {"a": [1, {"b": None}], "c": "x"}, "o")),
        ("v2", "Boolean", "disabled", {"reason": "DISABLED", "metadata": {}}),
        ("v1", "Boolean", "disabled", answer("DISABLED", False, "")),
    ],
)
def test_an_answer_in_json(version: str, method: str, key: str, expected: Any) -> None:
    assert ask(world(*fakes.ALL), version, f"Resolve{method}", key) == expected


def ask(served: World, version: str, method: str, key: str, **context: Any) -> Any:
    answer = served.json.unary(version, METHODS[method])
    text = orjson.dumps({"flagKey": key, "context": context})
    return orjson.loads(answer_of(answer(call(), text)))


def test_targeting_reads_the_context_of_the_request() -> None:
    served = world(*fakes.ALL)
    assert ask(served, "v2", "ResolveString", "targeted", tier="gold")["value"] == "y"
    assert ask(served, "v2", "ResolveString", "targeted", tier="tin")["value"] == "n"


def test_errors_are_those_of_the_binary_answer() -> None:
    with pytest.raises(RpcError) as caught:
        ask(world(*fakes.ALL), "v2", "ResolveBoolean", "missing")
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "Flag not found")


def test_an_object_with_a_number_that_protobuf_cannot_hold_is_an_error() -> None:
    answer = Resolution({"n": float("inf")}, "on", EvaluationReason.STATIC)
    with pytest.raises(RpcError) as caught:
        json_rpc.encode_answer("v2", FlagType.OBJECT, answer)
    assert caught.value.code is Code.DATA_LOSS
    assert json_rpc.encode_bulk_entry("k", FlagType.OBJECT, answer) is None


def test_a_bulk_answer_has_every_flag_with_its_type_and_its_reason() -> None:
    served = world(fakes.BOOLEAN, fakes.FLOAT, fakes.DISABLED)
    answer = orjson.loads(answer_of(served.json.resolve_all(call(), b"{}")))
    assert answer["metadata"] == {}
    assert {key: (flag["reason"], flag["variant"]) for key, flag in answer["flags"].items()} == {
        "boolean": ("STATIC", "on"),
        "float": ("STATIC", "half"),
        "disabled": ("DISABLED", ""),
    }
    assert answer["flags"]["boolean"]["boolValue"] is True
    assert answer["flags"]["float"]["doubleValue"] == 0.5


def test_answers_in_both_formats_are_counted_together() -> None:
    served = world(fakes.BOOLEAN)
    for evaluation, message in (
        (served.evaluation, b"\x0a\x07boolean"),
        (served.json, b'{"flagKey":"boolean"}'),
    ):
        evaluation.unary("v2", FlagType.BOOLEAN)(call(), message)
    lines = served.metrics.text().decode().splitlines()
    impressions = [line for line in lines if 'key="boolean"' in line]
    assert all(line.endswith(" 2.0") for line in impressions if "_total" in line)
    assert len(impressions) >= 2
