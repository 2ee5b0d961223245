"""flagd.evaluation.v1 and v2, in protobuf and in JSON: one flag by type, and in v1 all flags.

A request costs a decoding, a resolution and a look-up: the answer's bytes are encoded once for each resolution the compiled flag
set can give, and kept until another set is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from evaluator.flags.model import ABSENT, EMPTY
from evaluator.http.routes import Code, Deferred, Routes, RpcError, at_once
from evaluator.resolve import (
    ErrorCode,
    EvaluationReason,
    FlagType,
    flag_type,
    resolve,
    resolve_all,
)
from evaluator.server import messages
from evaluator.server.counting import LARGE
from evaluator.server.metrics import remember
from evaluator.server.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from evaluator.flags.model import Json
    from evaluator.http.routes import Call, UnaryHandler
    from evaluator.resolve import CompiledFlagSet, Resolution, Resolver
    from evaluator.server.context import Context, ContextSources
    from evaluator.server.events import EventStreams
    from evaluator.server.metrics import Encoded, Metrics
    from evaluator.store import Snapshot, Store

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


FEW: Final = 250
"""Flags up to which a bulk answer is made within the call: the first after a swap takes 10 ms then, others 2 ms."""
STEP: Final = 16
"""Flags of a larger one that are answered in a row."""
BRIEF: Final = 1_024
"""Bytes of a bulk request up to which both hold: a longer context may have lists that rules go through, so others are answered after each flag."""

SERVICES: Final = {
    "flagd.evaluation.v1.Service": "v1",
    "flagd.evaluation.v2.Service": "v2",
    "schema.v1.Service": "v1",
}
"""The version that each service answers by. The deprecated schema.v1 (https://buf.build/open-feature/flagd) has v1's messages, less a
bulk answer's metadata: its clients skip that as a field they do not know."""


class Codec(Protocol):
    """One format's messages: the modules `messages` (protobuf) and `json_rpc`. All raise RpcError for what they cannot read or write."""

    def decode_request(self, wanted: FlagType, message: bytes, /) -> tuple[str, Any]:
        """(flag key, context for `plain`)."""

    def decode_bulk_request(self, message: bytes, /) -> Any:
        """The context, for `plain`."""

    def decode_large(
        self, wanted: FlagType | None, message: bytes, /
    ) -> Generator[None, None, tuple[str, Context]]:
        """(flag key, context) of a request that is too large to be read in one step; `wanted` None: of a bulk request."""

    def plain(self, context: Any, /) -> Context:
        """A decoded context as a dict."""

    def encode_answer(self, version: str, wanted: FlagType, resolution: Resolution, /) -> bytes:
        """A successful resolution as a response of `version`, "v1" or "v2"."""

    def encode_bulk_entry(
        self, key: str, kind: FlagType, resolution: Resolution, /
    ) -> bytes | None:
        """One flag of a bulk answer, for `join_bulk`; None leaves it out."""

    def join_bulk(self, entries: Sequence[bytes], metadata: Mapping[str, Any], /) -> bytes:
        """The whole bulk answer."""

    def encode_event(self, kind: str, content: Mapping[str, Any], /) -> bytes:
        """One message of an event stream."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What answers in one message format."""

    evaluation: Evaluation
    events: EventStreams

    def close(self) -> None:
        """Tell event streams and forget."""
        self.events.close()
        self.evaluation.close()


def routes(protobuf: Spoken, json: Spoken) -> Routes:
    """All services on one port. Nothing here changes anything, so that Connect may GET every unary call."""
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
    """Answers from the store's current snapshot, in one message format."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        sources: ContextSources,
        clock: Callable[[], float],
        codec: Codec = messages,
        *,
        resolver: Resolver = resolve,
    ) -> None:
        self._codec = codec
        self._resolver = resolver
        self._store = store
        self._metrics = metrics
        self._sources = sources
        self._clock = clock
        self._answers: dict[str, dict[Resolution, Encoded]] = {"v1": {}, "v2": {}}
        self._entries: dict[Resolution, Encoded] = {}
        self.close = store.subscribe(self._forget, self._forget)

    def unary(self, version: str, wanted: FlagType) -> UnaryHandler:
        """The handler of `version`'s method for flags of type `wanted`."""
        store, clock, sources = self._store, self._clock, self._sources
        decode, decode_large = self._codec.decode_request, self._codec.decode_large
        answers, resolver = self._answers[version], self._resolver

        def respond(call: Call, key: str, given: Any, plain: Callable[[Any], Context]) -> bytes:
            snapshot = select(call.headers).of(store)
            if snapshot is None:
                raise RpcError(*ERRORS[ErrorCode.FLAG_NOT_FOUND])
            flags = snapshot.compiled
            context: Mapping[str, Json] = EMPTY
            if _reads_context(flags, key):
                context = sources.lay_over(plain(given), call.headers)
            resolution = resolver(flags, key, wanted, context, int(clock()))
            known = answers.get(resolution)
            if known is None:
                known = self._encode(version, wanted, key, resolution)
            known[1].count += 1
            return known[0]

        def respond_aside(call: Call, message: bytes) -> Generator[None, None, bytes]:
            key, context = yield from decode_large(wanted, message)
            yield
            return respond(call, key, context, dict)

        plain = self._codec.plain

        def answer(call: Call, message: bytes) -> bytes | Deferred[bytes]:
            if len(message) > LARGE:
                return Deferred(respond_aside(call, message))
            key, given = decode(wanted, message)
            return respond(call, key, given, plain)

        return answer

    def resolve_all(self, call: Call, message: bytes) -> bytes | Deferred[bytes]:
        """v1's bulk: every flag whose default variant tells its type; one that fails is there with its reason."""
        if len(message) > LARGE:
            return Deferred(self._all_aside(call, message))
        given = self._codec.decode_bulk_request(message)
        return self._bulk(call, self._codec.plain(given), brief=len(message) <= BRIEF)

    def _all_aside(self, call: Call, message: bytes) -> Generator[None, None, bytes]:
        _, given = yield from self._codec.decode_large(None, message)
        answer = self._bulk(call, given, brief=False)
        return (yield from answer.steps) if isinstance(answer, Deferred) else answer

    def _bulk(self, call: Call, given: Context, *, brief: bool) -> bytes | Deferred[bytes]:
        selected = select(call.headers)
        context = self._sources.lay_over(given, call.headers)
        snapshot = selected.of(self._store)
        if snapshot is None:
            return self._codec.join_bulk((), selected.metadata)
        steps = self._all(snapshot, context, selected.metadata, STEP if brief else 1)
        return at_once(steps) if brief and len(snapshot.compiled) <= FEW else Deferred(steps)

    def _all(
        self,
        snapshot: Snapshot,
        context: Mapping[str, Json],
        metadata: Mapping[str, Any],
        step: int,
    ) -> Generator[None, None, bytes]:
        """All flags of what was served when it was asked for, `step` in a row, whatever is served by the end."""
        entries, parts = self._entries, list[bytes]()
        resolved = resolve_all(snapshot.compiled, context, int(self._clock()))
        for number, (key, resolution) in enumerate(resolved, 1):
            known = entries.get(resolution) or self._entry(entries, snapshot, key, resolution)
            if known is not None:
                known[1].count += 1
                parts.append(known[0])
            if not number % step:
                yield
        return self._codec.join_bulk(parts, metadata)

    def _entry(
        self,
        entries: dict[Resolution, Encoded],
        snapshot: Snapshot,
        key: str,
        resolution: Resolution,
    ) -> Encoded | None:
        """One flag of a bulk answer; None leaves it out."""
        kind = flag_type(snapshot.flag_set.flags[key])
        entry = None if kind is None else self._codec.encode_bulk_entry(key, kind, resolution)
        if entry is None:
            return None
        known = (entry, self._metrics.tally(key, resolution))
        if resolution.error_code is None:
            remember(entries, resolution, known)
        return known

    def _encode(self, version: str, wanted: FlagType, key: str, resolution: Resolution) -> Encoded:
        tally = self._metrics.tally(key, resolution)
        if resolution.error_code is not None:
            tally.count += 1
            raise RpcError(*ERRORS.get(resolution.error_code, ERRORS[ErrorCode.GENERAL]))
        if version == "v1" and _is_code_default(resolution):
            tally.count += 1
            raise RpcError(*ERRORS[ErrorCode.FLAG_NOT_FOUND])
        known = (self._codec.encode_answer(version, wanted, resolution), tally)
        remember(self._answers[version], resolution, known)
        return known

    def _forget(self, _: Snapshot) -> None:
        for answers in self._answers.values():
            answers.clear()
        # Anew, not emptied: a bulk answer that is being made still fills the old one.
        self._entries = {}


def _reads_context(flags: CompiledFlagSet, key: str) -> bool:
    """False where every context gets the same answer, and its decoding is spared: most of a request's cost."""
    flag = flags.compiled.get(key)
    return flag is None or flag.run is not None


def _is_code_default(resolution: Resolution) -> bool:
    """v1 has no way to say "use your own default", so it says that there is no flag."""
    return resolution.value is ABSENT and resolution.reason is not EvaluationReason.DISABLED
