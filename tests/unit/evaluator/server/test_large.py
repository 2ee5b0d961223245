"""Large requests are read beside others, and those with too many values are refused before anything is made of them."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any
from unittest import mock

import orjson
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

from evaluator.http.routes import Code, Deferred, Request, RpcError, at_once
from evaluator.resolve import FlagType
from evaluator.server import counting, messages
from evaluator.server.counting import LARGE, MOST_VALUES
from evaluator.server.introspection import read_question
from evaluator.server.ofrep import PREFIX

from . import fakes
from .fakes import World, call, settled, world

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


def protobuf(served: World, context: Any) -> Any:
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


RPCS = [protobuf, protobuf_bulk, json, json_bulk]
named = pytest.mark.parametrize("ask", [*RPCS, ofrep, ofrep_bulk], ids=lambda ask: ask.__name__)


@pytest.mark.parametrize("context", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("ask", RPCS, ids=lambda ask: ask.__name__)
def test_a_call_with_too_many_values_is_an_invalid_argument(
    ask: Callable[[World, Any], Any], context: Any
) -> None:
    with pytest.raises(RpcError, match=TOO_MANY) as caught:
        settled(ask(world(*fakes.ALL), context))
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("context", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("key", ["targeted", None], ids=["single", "bulk"])
def test_over_ofrep_too_many_values_are_an_invalid_context(key: str | None, context: Any) -> None:
    response = settled(ofrep(world(*fakes.ALL), context, key))
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
    assert settled(answer) == settled(ask(served, {"tier": "gold"}))


@pytest.mark.parametrize("ask", [protobuf, json, ofrep], ids=lambda ask: ask.__name__)
def test_a_context_that_a_person_would_write_is_answered_in_place(
    ask: Callable[[World, Any], Any],
) -> None:
    context = {"tier": "gold", "groups": [f"group-{number}" for number in range(500)]}
    assert not isinstance(ask(world(*fakes.ALL), context), Deferred)


@pytest.mark.parametrize("context", ALLOWED.values(), ids=ALLOWED)
def test_of_a_large_message_no_more_than_a_row_is_read_in_one_step(context: Any) -> None:
    request = v2.ResolveStringRequest()
    request.context.update(context)
    message = request.SerializeToString()
    steps = sum(1 for _ in messages.decode_large(FlagType.STRING, message))
    assert steps > len(next(iter(context.values()))) / 256 or "text" in context


def deepened(levels: int) -> bytes:
    request = v2.ResolveStringRequest()
    value = request.context.fields["a"]
    for _ in range(levels):
        value = value.list_value.values.add()
    value.number_value = 1
    return request.SerializeToString()


@pytest.mark.parametrize("levels", [30, 64, 1_000])
def test_a_large_message_may_nest_as_deep_as_a_small_one(levels: int) -> None:
    message = deepened(levels)
    try:
        key, context = messages.decode_request(FlagType.STRING, message)
    except RpcError as error:
        with pytest.raises(RpcError, match=error.message):
            at_once(messages.decode_large(FlagType.STRING, message))
    else:
        found = at_once(messages.decode_large(FlagType.STRING, message))
        assert found == (key, messages.plain(context))


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=4), below, max_size=4),
    max_leaves=12,
)  # fmt: skip
CONTEXTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)
PADDING = b"\x0a\x80\x7d" + b"\n" * 16_000
"""A flag key that makes the quick bound look closer."""


def members(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(below) + sum(members(each) for each in below)


@settings(max_examples=60)
@given(CONTEXTS)
def test_values_are_counted_exactly(context: dict[str, Any]) -> None:
    request = v2.ResolveStringRequest()
    request.context.update(context)
    message, text = PADDING + request.SerializeToString(), orjson.dumps(context)
    for most, expected in ((members(context), False), (members(context) - 1, True)):
        with mock.patch.multiple(counting, MOST_VALUES=max(most, 0), LARGE=0):
            if most >= 0 and context:
                found = at_once(counting.too_many_in_protobuf(message, {2: counting.STRUCT}))
                assert (found, counting.too_many_in_json(text)) == (expected, expected)


@settings(max_examples=60)
@given(CONTEXTS)
def test_a_message_reads_the_same_in_steps(context: dict[str, Any]) -> None:
    request = v2.ResolveStringRequest(flag_key="key")
    request.context.update(context)
    message = request.SerializeToString()
    key, given_context = messages.decode_request(FlagType.STRING, message)
    found = at_once(messages.decode_large(FlagType.STRING, message))
    assert found == (key, messages.plain(given_context))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_message_that_can_be_read_is_refused_as_malformed(message: bytes) -> None:
    refused = False
    try:
        at_once(counting.too_many_in_protobuf(PADDING + message, {2: counting.STRUCT}))
    except counting.MalformedError:
        refused = True
    try:
        v2.ResolveStringRequest.FromString(message)
    except DecodeError:
        return
    assert not refused


def sized(tag: bytes, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return tag + length + bytes([size]) + content


def nested(levels: int, within: bytes) -> bytes:
    for _ in range(levels):
        within = sized(b"\x32", sized(b"\x0a", within)) + b"\x08\x00"
    return within


def of_value(value: bytes) -> bytes:
    return PADDING + sized(b"\x12", sized(b"\x0a", sized(b"\x12", value)))


WITHOUT_VALUES = {
    "empty contexts": PADDING + b"\x12\x00" * 100_000,
    "empty objects in a value": of_value(b"\x2a\x00" * 100_000),
    "objects of nothing known": of_value(b"\x2a\x02\x10\x00" * 100_000),
    "lists below lists": of_value(nested(1_000, b"\x32\x00")),
}


@pytest.mark.parametrize("message", WITHOUT_VALUES.values(), ids=WITHOUT_VALUES)
def test_many_messages_without_a_value_are_refused_and_keep_no_place(message: bytes) -> None:
    """The bound of memory is what a hundred thousand places on a list are far above."""
    steps = counting.too_many_in_protobuf(message, {2: counting.STRUCT})
    tracemalloc.start()
    try:
        assert at_once(steps)
    except counting.MalformedError:
        assert b"\x32" in message
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 100_000


def test_a_request_that_is_not_large_has_no_room_for_too_many_values() -> None:
    assert LARGE < 2 * MOST_VALUES
