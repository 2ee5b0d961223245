"""Messages of flagd.evaluation.v1 and v2 in protobuf's JSON mapping, as Connect clients send and read them.

The mapping is https://protobuf.dev/programming-guides/json with flagd's options: fields that are zero are
written, unknown ones are skipped. Written by hand: this is a call's cost, and protobuf's own encoder takes
seven times as long.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import orjson

from evaluator.flags.model import ABSENT
from evaluator.http.messages import Code, RpcError
from evaluator.resolving.resolution import FlagType, Resolution
from evaluator.server.context import TOO_MANY, Context, json_value, read_too_deep, too_many_in_json
from evaluator.targeting.values import MOST_LEVELS

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence


_ZERO: Final = {
    FlagType.BOOLEAN: False,
    FlagType.STRING: "",
    FlagType.INTEGER: "0",
    FlagType.FLOAT: 0,
    FlagType.OBJECT: {},
}
"""Values that v1 writes if there is none."""
_ANY_FIELD: Final = {
    FlagType.BOOLEAN: ("boolValue", False),
    FlagType.STRING: ("stringValue", ""),
    FlagType.INTEGER: ("doubleValue", 0),
    FlagType.FLOAT: ("doubleValue", 0),
    FlagType.OBJECT: ("objectValue", {}),
}
_UNENCODABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


def decode_request(message: bytes) -> tuple[str, Context]:
    """(flag key, context) of a Resolve request; raises RpcError INVALID_ARGUMENT."""
    document = _document(message)
    key = document.get("flagKey")
    if key is None:
        key = document.get("flag_key")
    if key is None:
        key = ""
    elif not isinstance(key, str):
        raise _malformed_error("flagKey must be a string")
    return key, _context(document)


def decode_bulk_request(message: bytes) -> Context:
    """The context of a ResolveAll request; raises RpcError INVALID_ARGUMENT."""
    return _context(_document(message))


def plain(context: Context) -> Context:
    """Return the context itself: JSON is already decoded."""
    return context


def plain_in_steps(context: Context) -> Generator[None, None, Context]:
    """`plain`, in the shape that the codec of protobuf needs."""
    yield
    return context


def encode_answer(version: str, wanted: FlagType, resolution: Resolution) -> bytes:
    """A successful resolution as the response of `version`, as `messages.encode_answer` has it.

    Raises RpcError DATA_LOSS for a value that protobuf cannot hold.
    """
    answer: dict[str, Any] = {}
    try:
        if resolution.value is not ABSENT:
            answer["value"] = _value(wanted, resolution.value)
        elif version == "v1":
            answer["value"] = _ZERO[wanted]
        answer["reason"] = resolution.reason.value
        if resolution.variant is not None or version == "v1":
            answer["variant"] = resolution.variant or ""
        answer["metadata"] = json_value(dict(resolution.metadata))
        return orjson.dumps(answer)
    except _UNENCODABLE as error:
        raise RpcError(Code.DATA_LOSS, "Error parsing input or configuration") from error


def encode_bulk_entry(key: str, kind: FlagType, resolution: Resolution) -> bytes | None:
    """`"key":{…}` of a ResolveAllResponse; None for a value that protobuf cannot hold."""
    field, zero = _ANY_FIELD[kind]
    try:
        value = zero if resolution.value is ABSENT else _value(FlagType.FLOAT, resolution.value)
        entry = {
            "reason": resolution.reason.value,
            "variant": resolution.variant or "",
            field: value,
            "metadata": json_value(dict(resolution.metadata)),
        }
        return orjson.dumps(key) + b":" + orjson.dumps(entry)
    except _UNENCODABLE:
        return None


def join_bulk(entries: Sequence[bytes], metadata: Mapping[str, Any]) -> bytes:
    """The ResolveAllResponse of `entries`."""
    return b'{"flags":{%b},"metadata":%b}' % (b",".join(entries), orjson.dumps(dict(metadata)))


def encode_event(kind: str, content: Mapping[str, Any]) -> bytes:
    """An EventStreamResponse, the same in every version."""
    return orjson.dumps({"type": kind, "data": dict(content)})


def _value(wanted: FlagType, value: Any) -> Any:
    """Convert a flag's value: 64-bit integers become text, doubles that JSON lacks become their name."""
    if wanted is FlagType.INTEGER:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return json_value(value)


def _document(message: bytes) -> dict[str, Any]:
    if not message:
        raise _malformed_error("zero-length payload is not a valid JSON object")
    if too_many_in_json(message):
        raise RpcError(Code.INVALID_ARGUMENT, TOO_MANY)
    try:
        document = orjson.loads(message)
    except orjson.JSONDecodeError as error:
        raise _malformed_error(str(error)) from error
    if not isinstance(document, dict):
        raise _malformed_error("must be a JSON object")
    if read_too_deep(document, message):
        raise RpcError(Code.INVALID_ARGUMENT, f"context nests deeper than {MOST_LEVELS}")
    return document


def _context(document: dict[str, Any]) -> Context:
    context = document.get("context")
    if context is None:
        return {}
    if not isinstance(context, dict):
        raise _malformed_error("context must be an object")
    return context


def _malformed_error(why: str) -> RpcError:
    """Return connect-go's error text (https://pkg.go.dev/connectrpc.com/connect), without the input."""
    return RpcError(Code.INVALID_ARGUMENT, f"unmarshal message: {why}")
