"""gRPC flagd.evaluation.v1 and v2: one flag by type, and in v1 all flags.

A request costs a decoding, a resolution and a look-up: the answer's bytes are encoded once for each resolution the compiled flag
set can give, and kept until another set is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.model import ABSENT, EMPTY
from evaluator.http.routes import Code, Routes, RpcError
from evaluator.resolve import (
    ErrorCode,
    EvaluationReason,
    FlagType,
    flag_type,
    resolve,
    resolve_all,
)
from evaluator.server import messages
from evaluator.server.metrics import remember
from evaluator.server.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.flags.model import Json
    from evaluator.http.routes import Call, UnaryHandler
    from evaluator.resolve import CompiledFlagSet, Resolution
    from evaluator.server.context import ContextSources
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


def routes(evaluation: Evaluation, events: EventStreams) -> Routes:
    """Both services on one port."""
    unary: dict[str, UnaryHandler] = {
        f"/flagd.evaluation.{version}.Service/{method}": evaluation.unary(version, wanted)
        for version in ("v1", "v2")
        for method, wanted in METHODS.items()
    }
    unary["/flagd.evaluation.v1.Service/ResolveAll"] = evaluation.resolve_all
    streams = {
        f"/flagd.evaluation.{version}.Service/EventStream": events.open for version in ("v1", "v2")
    }
    return Routes(unary=unary, streams=streams)


class Evaluation:
    """Answers from the store's current snapshot."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        sources: ContextSources,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._sources = sources
        self._clock = clock
        self._answers: dict[str, dict[Resolution, Encoded]] = {"v1": {}, "v2": {}}
        self._entries: dict[Resolution, Encoded] = {}
        self.close = store.subscribe(self._forget)

    def unary(self, version: str, wanted: FlagType) -> UnaryHandler:
        """The handler of `version`'s method for flags of type `wanted`."""
        store, clock, sources = self._store, self._clock, self._sources
        answers = self._answers[version]

        def answer(call: Call, message: bytes) -> bytes:
            key, struct = messages.decode_request(wanted, message)
            snapshot = select(call.headers).of(store)
            if snapshot is None:
                raise RpcError(*ERRORS[ErrorCode.FLAG_NOT_FOUND])
            flags = snapshot.compiled
            context: Mapping[str, Json] = EMPTY
            if _reads_context(flags, key):
                context = sources.lay_over(messages.plain(struct), call.headers)
            resolution = resolve(flags, key, wanted, context, int(clock()))
            known = answers.get(resolution)
            if known is None:
                known = self._encode(version, wanted, key, resolution)
            known[1].count += 1
            return known[0]

        return answer

    def resolve_all(self, call: Call, message: bytes) -> bytes:
        """v1's bulk: every flag whose default variant tells its type; one that fails is there with its reason."""
        selected = select(call.headers)
        struct = messages.decode_bulk_request(message)
        context = self._sources.lay_over(messages.plain(struct), call.headers)
        parts: list[bytes] = []
        snapshot = selected.of(self._store)
        if snapshot is not None:
            resolved = resolve_all(snapshot.compiled, context, int(self._clock()))
            for key, resolution in resolved:
                self._append(parts, snapshot, key, resolution)
        parts.append(messages.encode_bulk_metadata(selected.metadata))
        return b"".join(parts)

    def _append(
        self, parts: list[bytes], snapshot: Snapshot, key: str, resolution: Resolution
    ) -> None:
        known = self._entries.get(resolution)
        if known is None:
            kind = flag_type(snapshot.flag_set.flags[key])
            if kind is None:
                return
            entry = messages.encode_bulk_entry(key, kind, resolution)
            if entry is None:
                return
            known = (entry, self._metrics.tally(key, resolution))
            if resolution.error_code is None:
                remember(self._entries, resolution, known)
        known[1].count += 1
        parts.append(known[0])

    def _encode(self, version: str, wanted: FlagType, key: str, resolution: Resolution) -> Encoded:
        tally = self._metrics.tally(key, resolution)
        if resolution.error_code is not None:
            tally.count += 1
            raise RpcError(*ERRORS.get(resolution.error_code, ERRORS[ErrorCode.GENERAL]))
        if version == "v1" and _is_code_default(resolution):
            tally.count += 1
            raise RpcError(*ERRORS[ErrorCode.FLAG_NOT_FOUND])
        known = (messages.encode_answer(version, wanted, resolution), tally)
        remember(self._answers[version], resolution, known)
        return known

    def _forget(self, _: Snapshot) -> None:
        for answers in (*self._answers.values(), self._entries):
            answers.clear()


def _reads_context(flags: CompiledFlagSet, key: str) -> bool:
    """False where every context gets the same answer, and its decoding is spared: most of a request's cost."""
    flag = flags.compiled.get(key)
    return flag is None or flag.run is not None


def _is_code_default(resolution: Resolution) -> bool:
    """v1 has no way to say "use your own default", so it says that there is no flag."""
    return resolution.value is ABSENT and resolution.reason is not EvaluationReason.DISABLED
