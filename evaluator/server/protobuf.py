"""Protobuf messages of flagd.evaluation.v1 and v2, to and from plain values; `json_rpc` has the same
functions for JSON.

Both versions have the same requests and events; they differ in `optional` on `value` and `variant` of an
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError, EncodeError

from evaluator.flags.model import ABSENT, EMPTY
from evaluator.http.messages import Code, RpcError
from evaluator.resolving.resolution import FlagType, Resolution
from evaluator.server.context import MOST_VALUES, TOO_MANY, Context
from evaluator.targeting.values import MOST_LEVELS
from evaluator.wire import evaluation_v1_pb2 as v1
from evaluator.wire import evaluation_v2_pb2 as v2
from evaluator.wire.resolve_request import COMPILED, MOST_BYTES, read_usual

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from google.protobuf.struct_pb2 import ListValue, Struct, Value


_RESPONSES: Final[Mapping[str, Mapping[FlagType, Any]]] = {
    "v1": {
        FlagType.BOOLEAN: v1.ResolveBooleanResponse,
        FlagType.STRING: v1.ResolveStringResponse,
        FlagType.INTEGER: v1.ResolveIntResponse,
        FlagType.FLOAT: v1.ResolveFloatResponse,
        FlagType.OBJECT: v1.ResolveObjectResponse,
    },
    "v2": {
        FlagType.BOOLEAN: v2.ResolveBooleanResponse,
        FlagType.STRING: v2.ResolveStringResponse,
        FlagType.INTEGER: v2.ResolveIntResponse,
        FlagType.FLOAT: v2.ResolveFloatResponse,
        FlagType.OBJECT: v2.ResolveObjectResponse,
    },
}
_ANY_FIELD: Final = {
    FlagType.BOOLEAN: ("bool_value", False),
    FlagType.STRING: ("string_value", ""),
    FlagType.INTEGER: ("double_value", 0.0),
    FlagType.FLOAT: ("double_value", 0.0),
    FlagType.OBJECT: ("object_value", EMPTY),
}
"""Field of a flag's value in a bulk answer, and its content if there is no value."""
_UNENCODABLE: Final = (EncodeError, DecodeError, ValueError, TypeError, OverflowError, RecursionError)
_MALFORMED: Final = "malformed request"
_TOO_DEEP: Final = f"context nests deeper than {MOST_LEVELS}"
_STEP: Final = 256
"""Values that `plain_in_steps` reads between two yields."""


_read_request: Final = v1.ResolveRequest.FromString


def decode_request(message: bytes) -> tuple[str, Struct | Context]:
    """(flag key, context for `plain`) of a Resolve request; raises RpcError INVALID_ARGUMENT."""
    if COMPILED and len(message) <= MOST_BYTES:
        usual = read_usual(message)
        if usual is not None:
            return usual
    try:
        request = _read_request(message)
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, _MALFORMED) from error
    return request.flag_key, request.context


def decode_bulk_request(message: bytes) -> Struct:
    """The context of a ResolveAll request; raises RpcError INVALID_ARGUMENT."""
    try:
        return v1.ResolveAllRequest.FromString(message).context
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, _MALFORMED) from error


def plain(struct: Struct | Context) -> Context:
    """A Struct as a dict, all numbers as doubles; raises RpcError where it nests deeper than MOST_LEVELS."""
    return struct if isinstance(struct, dict) else _object(struct, MOST_LEVELS)


def _object(struct: Struct, depth: int) -> dict[str, Any]:
    if depth == 0:
        raise RpcError(Code.INVALID_ARGUMENT, _TOO_DEEP)
    # Measured: iterating over keys costs half of items(), and asking which field is set more than reading
    # those that are not.
    values, fields = {}, struct.fields
    for key in fields:
        value = fields[key]
        values[key] = value.string_value or value.number_value or value.bool_value or _value(value, depth)
    return values


def _array(values: ListValue, depth: int) -> list[Any]:
    if depth == 0:
        raise RpcError(Code.INVALID_ARGUMENT, _TOO_DEEP)
    return [_value(value, depth) for value in values.values]


def _value(value: Value, depth: int) -> Any:
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "number_value":
            return value.number_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _object(value.struct_value, depth - 1)
        case "list_value":
            return _array(value.list_value, depth - 1)
        case _:
            return None


def plain_in_steps(struct: Struct, most: int = MOST_VALUES) -> Generator[None, None, Context]:
    """`plain` of a large Struct that was read from bytes: yields every some hundred microseconds.

    Raises RpcError INVALID_ARGUMENT for more than `most` values. protobuf itself bounds the depth, at 100
    nested messages.
    """
    return (yield from _object_in_steps(struct, count(1), most))


def _object_in_steps(
    struct: Struct, numbers: Iterator[int], most: int
) -> Generator[None, None, dict[str, Any]]:
    values, fields = {}, struct.fields
    for key in fields:
        values[key] = yield from _value_in_steps(fields[key], numbers, most)
    return values


def _value_in_steps(value: Value, numbers: Iterator[int], most: int) -> Generator[None, None, Any]:
    number = next(numbers)
    if number > most:
        raise RpcError(Code.INVALID_ARGUMENT, TOO_MANY)
    if number % _STEP == 0:
        yield
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return (yield from _object_in_steps(value.struct_value, numbers, most))
    if kind != "list_value":
        return _value(value, MOST_LEVELS)
    values = []
    for element in value.list_value.values:
        values.append((yield from _value_in_steps(element, numbers, most)))  # noqa: PERF401 - it yields in between
    return values


def encode_answer(version: str, wanted: FlagType, resolution: Resolution) -> bytes:
    """A successful resolution as the response of `version` ("v1" or "v2").

    Without a value, v2 leaves `value` and `variant` unset, and v1 sends their zero values.
    Raises RpcError DATA_LOSS for a value that protobuf cannot hold.
    """
    response = _RESPONSES[version][wanted]()
    response.reason = resolution.reason
    if resolution.variant is not None:
        response.variant = resolution.variant
    try:
        if resolution.value is not ABSENT:
            _put(response, "value", resolution.value)
        elif version == "v1" and wanted is FlagType.OBJECT:
            response.value.SetInParent()
        _put_struct(response.metadata, resolution.metadata)
        return _readable(response)
    except _UNENCODABLE as error:
        raise RpcError(Code.DATA_LOSS, "Error parsing input or configuration") from error


def encode_bulk_entry(key: str, kind: FlagType, resolution: Resolution) -> bytes | None:
    """A v1 ResolveAllResponse with one flag. Responses concatenated are the response with all of them.

    None for a value that protobuf cannot hold: flagd leaves such a flag out, too.
    """
    response = v1.ResolveAllResponse()
    entry = response.flags[key]
    entry.reason = resolution.reason
    entry.variant = resolution.variant or ""
    field, zero = _ANY_FIELD[kind]
    try:
        _put(entry, field, zero if resolution.value is ABSENT else resolution.value)
        _put_struct(entry.metadata, resolution.metadata)
        return _readable(response)
    except _UNENCODABLE:
        return None


def join_bulk(entries: Sequence[bytes], metadata: Mapping[str, Any]) -> bytes:
    """The ResolveAllResponse of `entries`."""
    response = v1.ResolveAllResponse()
    _put_struct(response.metadata, metadata)
    return b"".join((*entries, response.SerializeToString()))


def encode_event(kind: str, content: Mapping[str, Any]) -> bytes:
    """An EventStreamResponse, the same in both versions."""
    response = v1.EventStreamResponse(type=kind)
    _put_struct(response.data, content)
    return response.SerializeToString()


def _readable(response: Any) -> bytes:
    """Serialised, and read back once: protobuf writes what is deeper than the 100 levels clients read."""
    message: bytes = response.SerializeToString()
    type(response).FromString(message)
    return message


def _put(message: Any, field: str, value: Any) -> None:
    if isinstance(value, Mapping):
        _put_struct(getattr(message, field), value)
    else:
        setattr(message, field, value)


def _put_struct(struct: Struct, values: Mapping[str, Any]) -> None:
    struct.SetInParent()
    struct.update(values)
