"""Large requests are read while others are answered in between; those with too many values are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

from evaluator.http.deferred import Deferred, at_once
from evaluator.http.messages import Code, Request, RpcError
from evaluator.resolving.resolution import FlagType
from evaluator.server import context as contexts
from evaluator.server import protobuf
from evaluator.server.context import MOST_VALUES
from evaluator.server.evaluate_flags import PREFIX
from evaluator.server.management import read_question
from evaluator.server.service import is_large
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import World, answer_of, call, world

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_MANY = "the context has more than 10,000 values"
WIDE = {
    "a list": {"list": [1] * MOST_VALUES},
    "an object": {"object": {f"k{number}": 1 for number in range(MOST_VALUES)}},
    "empty lists": {"list": [[]] * MOST_VALUES},
    "keys": {f"key-{number}": "" for number in range(MOST_VALUES + 1)},
    "spread": {f"list-{number}": [None] * 100 for number in range(100)},
}
ALLOWED = {
    "a list": {"list": [f"user-{number}" for number in range(MOST_VALUES - 10)]},
    "objects": {"list": [{"id": number} for number in range(4_000)]},
    "a text of separators": {"text": ',[{\\"\n\x8a' * 100_000},
    "many texts of separators": {"list": [",[{\n" * 100] * 2_000},
}


def ofrep(served: World, context: Any, key: str | None = "targeted") -> Any:
    path = PREFIX if key is None else f"{PREFIX}/{key}"
    request = Request("POST", path, "", (), orjson.dumps({"context": context}), "127.0.0.1:1")
    return (served.ofrep.bulk if key is None else served.ofrep.single)(request)


def ask_by_protobuf(served: World, context: Any) -> Any:
    request = v2.ResolveStringRequest(flag_key="targeted")
    request.context.update(context)
    resolve = served.evaluation.unary("v2", FlagType.STRING)
    return resolve(call(), request.SerializeToString())


def protobuf_bulk(served: World, context: Any) -> Any:
    request = v1.ResolveAllRequest()
    request.context.update(context)
    return served.evaluation.resolve_all(call(), request.SerializeToString())


def json(served: World, context: Any) -> Any:
    text = orjson.dumps({"flagKey": "targeted", "context": context})
    return served.json.unary("v2", FlagType.STRING)(call(), text)


def json_bulk(served: World, context: Any) -> Any:
    return served.json.resolve_all(call(), orjson.dumps({"context": context}))


def ofrep_bulk(served: World, context: Any) -> Any:
    return ofrep(served, context, None)


RPCS = [ask_by_protobuf, protobuf_bulk, json, json_bulk]
named = pytest.mark.parametrize("ask", [*RPCS, ofrep, ofrep_bulk], ids=lambda ask: ask.__name__)


@pytest.mark.parametrize("context", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("ask", RPCS, ids=lambda ask: ask.__name__)
def test_a_call_with_too_many_values_is_an_invalid_argument(
    ask: Callable[[World, Any], Any], context: Any
) -> None:
    with pytest.raises(RpcError, match=TOO_MANY) as caught:
        answer_of(ask(world(*fakes.ALL), context))
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("context", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("key", ["targeted", None], ids=["single", "bulk"])
def test_over_ofrep_too_many_values_are_an_invalid_context(key: str | None, context: Any) -> None:
    response = answer_of(ofrep(world(*fakes.ALL), context, key))
    answer = orjson.loads(response.body)
    assert (response.status, answer["errorCode"]) == (400, "INVALID_CONTEXT")
    assert answer["errorDetails"] == TOO_MANY


def test_an_explanation_takes_no_more_values_either() -> None:
    question = orjson.dumps({"flagKey": "a", "context": WIDE["a list"]})
    with pytest.raises(ValueError, match=TOO_MANY):
        read_question(question)


@pytest.mark.parametrize("context", ALLOWED.values(), ids=ALLOWED)
@named
def test_a_large_context_is_answered_as_a_small_one_and_deferred(
    ask: Callable[[World, Any], Any], context: Any
) -> None:
    served = world(*fakes.ALL)
    answer = ask(served, {**context, "tier": "gold"})
    assert isinstance(answer, Deferred)
    assert answer_of(answer) == answer_of(ask(served, {"tier": "gold"}))


@pytest.mark.parametrize("ask", [ask_by_protobuf, json, ofrep], ids=lambda ask: ask.__name__)
def test_a_context_that_a_person_would_write_is_answered_in_place(ask: Callable[[World, Any], Any]) -> None:
    context = {"tier": "gold", "groups": [f"group-{number}" for number in range(500)]}
    assert not isinstance(ask(world(*fakes.ALL), context), Deferred)


def struct_of(context: Any) -> Any:
    request = v2.ResolveStringRequest()
    request.context.update(context)
    return protobuf.decode_request(request.SerializeToString())[1]


@pytest.mark.parametrize("context", ALLOWED.values(), ids=ALLOWED)
def test_of_a_large_message_no_more_than_a_few_hundred_values_are_read_in_one_step(context: Any) -> None:
    steps = sum(1 for _ in protobuf.plain_in_steps(struct_of(context)))
    assert steps >= members(context) // 256


@pytest.mark.parametrize("levels", [30, 45])
def test_a_large_message_may_nest_as_deep_as_a_small_one(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    struct = struct_of({"a": value})
    assert at_once(protobuf.plain_in_steps(struct)) == protobuf.plain(struct) == {"a": value}


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below, max_size=4),
    max_leaves=12,
)  # fmt: skip
CONTEXTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)


def members(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(below) + sum(members(each) for each in below)


@settings(max_examples=60)
@given(CONTEXTS)
def test_values_are_counted_exactly(context: dict[str, Any]) -> None:
    struct, text, found = struct_of(context), orjson.dumps(context), members(context)
    for most in {found, max(found - 1, 0)}:
        if len(text) > 2 * most and context:
            assert contexts.too_many_in_json(text, most) is (found > most)
        try:
            assert at_once(protobuf.plain_in_steps(struct, most)) == protobuf.plain(struct)
            assert found <= most
        except RpcError:
            assert found > most


def test_a_request_that_is_not_large_has_no_room_for_too_many_values() -> None:
    assert is_large(b"1," * MOST_VALUES)
