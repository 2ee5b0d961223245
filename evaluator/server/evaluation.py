"""flagd.evaluation.v1 and v2, in protobuf and in JSON: one flag by type, and in v1 all flags.

Each possible resolution of the compiled flag set is encoded once, and cached with the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from evaluator.flags.model import ABSENT
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.messages import Call, Code, RpcError
from evaluator.http.routes import Routes, UnaryHandler
from evaluator.resolving.resolution import ErrorCode, EvaluationReason, FlagType, Resolution, flag_type
from evaluator.server import protobuf
from evaluator.server.event_stream import EventStreams
from evaluator.server.service import EvaluationService, flags_per_step, is_large, selection

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from evaluator.server.context import Context
    from evaluator.store.snapshot import Snapshot

METHODS: Final = {
    "ResolveBoolean": FlagType.BOOLEAN,
    "ResolveString": FlagType.STRING,
    "ResolveInt": FlagType.INTEGER,
    "ResolveFloat": FlagType.FLOAT,
    "ResolveObject": FlagType.OBJECT,
}
ERRORS: Final = {
    ErrorCode.FLAG_NOT_FOUND: (Code.NOT_FOUND, "Flag not found"),
    ErrorCode.TYPE_MISMATCH: (Code.INVALID_ARGUMENT, "Type mismatch error"),
    ErrorCode.PARSE_ERROR: (Code.DATA_LOSS, "Error parsing input or configuration"),
    ErrorCode.GENERAL: (Code.UNKNOWN, "General error"),
}
"""flagd's status and text for each error; a provider reads the error back from the status."""

SERVICES: Final = {
    "flagd.evaluation.v1.Service": "v1",
    "flagd.evaluation.v2.Service": "v2",
    "schema.v1.Service": "v1",
}
"""The version that each service answers by. The deprecated schema.v1 (https://buf.build/open-feature/flagd)
has v1's messages, less a bulk answer's metadata: its clients skip that as a field they do not know.
"""


class Codec(Protocol):
    """One message format: the modules `messages` and `json_rpc`. All raise RpcError for bad messages."""

    def decode_request(self, message: bytes, /) -> tuple[str, Any]:
        """(flag key, context for `plain`)."""

    def decode_bulk_request(self, message: bytes, /) -> Any:
        """The context, for `plain`."""

    def plain(self, context: Any, /) -> Context:
        """A decoded context as a dict."""

    def plain_in_steps(self, context: Any, /) -> Generator[None, None, Context]:
        """Decode a context of any size; yields every few hundred microseconds."""

    def encode_answer(self, version: str, wanted: FlagType, resolution: Resolution, /) -> bytes:
        """A successful resolution as a response of `version`, "v1" or "v2"."""

    def encode_bulk_entry(self, key: str, kind: FlagType, resolution: Resolution, /) -> bytes | None:
        """Encode one flag of a bulk answer for `join_bulk`; None leaves it out."""

    def join_bulk(self, entries: Sequence[bytes], metadata: Mapping[str, Any], /) -> bytes:
        """The whole bulk answer."""

    def encode_event(self, kind: str, content: Mapping[str, Any], /) -> bytes:
        """Encode one message of an event stream."""


@dataclass(frozen=True, slots=True)
class CodecEndpoints:
    """The endpoints of one message format."""

    evaluation: Evaluation
    events: EventStreams


def routes(protobuf: CodecEndpoints, json: CodecEndpoints) -> Routes:
    """Return the routes of all services. All unary calls are without side effects: Connect may GET them."""
    unary, json_unary = _unary(protobuf.evaluation), _unary(json.evaluation)
    paths = [f"/{service}/EventStream" for service in SERVICES]
    return Routes(
        unary=unary,
        streams=dict.fromkeys(paths, protobuf.events.open),
        json_unary=json_unary,
        json_streams=dict.fromkeys(paths, json.events.open),
        idempotent=frozenset(unary),
    )


def _unary(evaluation: Evaluation) -> dict[str, UnaryHandler]:
    calls: dict[str, UnaryHandler] = {}
    for service, version in SERVICES.items():
        for method, wanted in METHODS.items():
            calls[f"/{service}/{method}"] = evaluation.unary(version, wanted)
        if version == "v1":
            calls[f"/{service}/ResolveAll"] = evaluation.resolve_all
    return calls


class Evaluation:
    """flagd's RPCs of evaluation in one message format."""

    def __init__(self, service: EvaluationService, codec: Codec = protobuf) -> None:
        self._service = service
        self._codec = codec

    def unary(self, version: str, wanted: FlagType) -> UnaryHandler:
        """The handler of `version`'s method for flags of type `wanted`."""
        decode, plain, service = self._codec.decode_request, self._codec.plain, self._service
        answers = object()
        """Cache key of encoded answers in the snapshot."""

        def respond(call: Call, key: str, read: Callable[[], Context]) -> bytes:
            snapshot = service.snapshot_for(call.headers)
            resolution = service.evaluate(snapshot, call.headers, key, read, wanted)
            answer: bytes | None = snapshot.kept[answers].get(resolution)
            if answer is None:
                answer = self._encode(version, wanted, resolution)
                snapshot.kept[answers][resolution] = answer
            return answer

        def in_steps(call: Call, message: bytes) -> Generator[None, None, bytes]:
            yield
            key, given = decode(message)
            yield
            context = yield from self._codec.plain_in_steps(given)
            return respond(call, key, lambda: context)

        def answer(call: Call, message: bytes) -> bytes | Deferred[bytes]:
            if is_large(message):
                return Deferred(in_steps(call, message))
            key, given = decode(message)
            return respond(call, key, partial(plain, given))

        return answer

    def resolve_all(self, call: Call, message: bytes) -> bytes | Deferred[bytes]:
        """Evaluate v1's bulk request: every flag as the type of its default variant; a failing flag is
        included with its reason. All answers are from the flags served when the call came.
        """
        selected = selection(call.headers)
        snapshot = self._service.select(selected)
        steps = self._all(snapshot, call, message, selected.metadata)
        return Deferred(steps) if is_large(message, len(snapshot.compiled)) else at_once(steps)

    def _all(
        self, snapshot: Snapshot, call: Call, message: bytes, metadata: Mapping[str, Any]
    ) -> Generator[None, None, bytes]:
        entries, parts, step = snapshot.kept[self], list[bytes](), flags_per_step(message)
        context = yield from self._codec.plain_in_steps(self._codec.decode_bulk_request(message))
        resolutions = self._service.evaluate_all(snapshot, call.headers, context, typed=True)
        for number, (key, resolution) in enumerate(resolutions, 1):
            entry: bytes | None = entries.get(resolution)
            if entry is None:
                entry = self._encode_entry(snapshot, key, resolution)
            if entry:
                parts.append(entry)
            if number % step == 0:
                yield
        return self._codec.join_bulk(parts, metadata)

    def _encode_entry(self, snapshot: Snapshot, key: str, resolution: Resolution) -> bytes:
        """Encode one flag of a bulk answer; empty if it must be left out."""
        kind = flag_type(snapshot.flag_set.flags[key])
        entry = None if kind is None else self._codec.encode_bulk_entry(key, kind, resolution)
        if resolution.error_code is None:
            snapshot.kept[self][resolution] = entry or b""
        return entry or b""

    def _encode(self, version: str, wanted: FlagType, resolution: Resolution) -> bytes:
        if resolution.error_code is not None:
            raise RpcError(*ERRORS.get(resolution.error_code, ERRORS[ErrorCode.GENERAL]))
        if version == "v1" and _is_code_default(resolution):
            raise RpcError(*ERRORS[ErrorCode.FLAG_NOT_FOUND])
        return self._codec.encode_answer(version, wanted, resolution)


def _is_code_default(resolution: Resolution) -> bool:
    """Return whether the answer is "use the code default", which v1 can only express as FLAG_NOT_FOUND."""
    return resolution.value is ABSENT and resolution.reason is not EvaluationReason.DISABLED
