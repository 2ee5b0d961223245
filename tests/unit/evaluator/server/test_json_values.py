"""Numbers are written as flagd writes them, the same over every protocol."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1

from evaluator.http.messages import Request
from evaluator.resolving.resolution import FlagType
from evaluator.server.context import json_value
from evaluator.server.evaluate_flags import PREFIX
from tests.worlds.evaluator import World, answer_of, call, flag, world

AS_GO_WRITES_THEM = [
    (3, b"3"), (3.0, b"3"), (-0.0, b"0"), (0.1, b"0.1"), (2**53 + 1, b"9007199254740992"),
    (2**60, b"1152921504606847000"), (-(2**60), b"-1152921504606847000"), (2**64, b"18446744073709552000"),
    (1e20, b"100000000000000000000"), (10**25, b"1e+25"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "written"), AS_GO_WRITES_THEM)
def test_a_number_is_written_as_flagd_writes_it(value: float, written: bytes) -> None:
    assert orjson.dumps(json_value(value)) == written
    assert orjson.dumps(json_value({"a": [value, {"b": value}]})).count(written) == 2


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**40), 10**40))
def test_every_number_is_read_back_as_its_float64(value: float) -> None:
    assert json.loads(orjson.dumps(json_value(value)), parse_int=float) == float(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_float64_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        json_value([value])


def over_ofrep(served: World) -> Any:
    request = Request("POST", f"{PREFIX}/f", "", (), b"", "127.0.0.1:1")
    return json.loads(answer_of(served.ofrep.single(request)).body, parse_int=float)["value"]


def over_ofrep_bulk(served: World) -> Any:
    request = Request("POST", PREFIX, "", (), b"", "127.0.0.1:1")
    return json.loads(answer_of(served.ofrep.bulk(request)).body, parse_int=float)["flags"][0]["value"]


def over_connect(served: World) -> Any:
    answer = answer_of(served.json.unary("v2", FlagType.OBJECT)(call(), b'{"flagKey":"f"}'))
    return json.loads(answer, parse_int=float)["value"]


def over_grpc(served: World) -> Any:
    asked = v1.ResolveObjectRequest(flag_key="f").SerializeToString()
    answer = answer_of(served.evaluation.unary("v1", FlagType.OBJECT)(call(), asked))
    return MessageToDict(v1.ResolveObjectResponse.FromString(answer).value)


@pytest.mark.parametrize("number", [number for number, _ in AS_GO_WRITES_THEM])
def test_a_number_is_the_same_over_every_protocol(number: float) -> None:
    served = world(flag("f", {"o": {"n": number}}, "o"))
    protocols = (over_ofrep, over_ofrep_bulk, over_connect, over_grpc)
    assert [ask(served) for ask in protocols] == [{"n": float(number)}] * 4
