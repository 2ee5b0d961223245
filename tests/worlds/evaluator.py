"""Stand-ins for what handlers, the store and the hub are given."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from gzip import decompress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from evaluator.flags.model import ABSENT, Flag, FlagSet, State
from evaluator.http.deferred import Deferred, at_once
from evaluator.http.grpc_framing import PREFIX
from evaluator.http.messages import Call, Code, Zipped
from evaluator.http.scheduler import FairQueue
from evaluator.server import json_rpc
from evaluator.server.context import ContextSources
from evaluator.server.evaluate_flags import Ofrep
from evaluator.server.evaluation import Evaluation
from evaluator.server.metrics import Metrics
from evaluator.server.service import EvaluationService
from evaluator.server.sse import ChangeStreams
from evaluator.store.store import Store
from tests.stores import swap
from tests.worlds.hub import FakeScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evaluator.http.messages import ByteStream, Headers, Streamed

NOW = 1_700_000_000.0
T = TypeVar("T")


def answer_of(answer: T | Deferred[T]) -> T:
    """The answer, also where it is deferred."""
    return answer.finish(lambda: at_once(answer.steps)) if isinstance(answer, Deferred) else answer


def flag(
    key: str,
    variants: Mapping[str, Any],
    default: str | None = None,
    *,
    targeting: Any = ABSENT,
    state: State = State.ENABLED,
    metadata: Mapping[str, Any] | None = None,
) -> Flag:
    return Flag(
        key,
        state,
        MappingProxyType(dict(variants)),
        default,
        targeting,
        MappingProxyType(dict(metadata or {})),
    )


def flag_set(*flags: Flag, **metadata: Any) -> FlagSet:
    return FlagSet(
        flags=MappingProxyType({one.key: one for one in flags}), metadata=MappingProxyType(dict(metadata))
    )


BOOLEAN = flag("boolean", {"on": True, "off": False}, "on", metadata={"owner": "shop"})
STRING = flag("string", {"a": "alpha"}, "a")
INTEGER = flag("integer", {"ten": 10}, "ten")
FLOAT = flag("float", {"half": 0.5}, "half")
OBJECT = flag("object", {"o": {"a": [1, {"b": None}], "c": "x"}}, "o")
NO_DEFAULT = flag("no/default", {"on": True})
DISABLED = flag("disabled", {"on": True}, "on", state=State.DISABLED)
TARGETED = flag(
    "targeted",
    {"yes": "y", "no": "n"},
    "no",
    targeting={"if": [{"==": [{"var": "tier"}, "gold"]}, "yes", None]},
)
GONE_VARIANT = flag("gone-variant", {"on": True}, "on", targeting={"cat": ["nope"]})
BROKEN = flag("broken", {"on": True}, "on", targeting={"no_such_operator": [1]})
ALL = (
    BOOLEAN, STRING, INTEGER, FLOAT, OBJECT, NO_DEFAULT, DISABLED, TARGETED, GONE_VARIANT, BROKEN,
)  # fmt: skip


@dataclass
class World:
    """One store with every handler on it."""

    store: Store
    metrics: Metrics
    service: EvaluationService
    evaluation: Evaluation
    json: Evaluation
    ofrep: Ofrep


def world(*flags: Flag, sources: ContextSources | None = None, **metadata: Any) -> World:
    """Nothing is served if there are neither flags nor metadata."""
    store = Store(sources=("flags.json",))
    metrics = Metrics(store, lambda: NOW)
    service = EvaluationService(store, sources or ContextSources(), lambda: NOW, [metrics.count])
    if flags or metadata:
        swap(store, flag_set(*flags, **metadata), now=NOW)
    changes = ChangeStreams(store, FakeTimers(), unhurried_queue())
    return World(
        store, metrics, service, Evaluation(service), Evaluation(service, json_rpc), Ofrep(service, changes)
    )


def call(headers: Headers = ()) -> Call:
    return Call("/flagd.evaluation.v2.Service/Any", headers, "127.0.0.1:1")


class FakeStream:
    """A MessageStream whose peer reads only when the test says so."""

    def __init__(self, *, writable: bool = True, gzip: bool = False) -> None:
        self.sent: list[bytes] = []
        """The messages, plain."""
        self.zipped: list[Zipped] = []
        """Those that were sent compressed, as they were sent."""
        self.gzip = gzip
        self.ended: tuple[Code, str] | None = None
        self.on_ended: Callable[[Code], None] | None = None
        self.writable = writable
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        return self.ended is not None

    def send(self, message: bytes | Zipped) -> bool:
        if not self.writable or self.closed:
            return False
        if isinstance(message, Zipped):
            assert self.gzip
            self.zipped.append(message)
            message = decompress(b"".join(message.pieces)[PREFIX:])
        self.sent.append(message)
        return True

    def close(self, code: Code = Code.OK, message: str = "") -> None:
        if self.ended is None and self.on_ended is not None:
            self.on_ended(code)
        self.ended = self.ended or (code, message)
        self.writable = False

    def read(self) -> None:
        self.writable = True
        assert self.on_writable is not None
        self.on_writable()

    def hang_up(self) -> None:
        self.writable = False
        if self.on_ended is not None:
            self.on_ended(Code.CANCELLED)
        if self.on_closed is not None:
            self.on_closed()


class FakeBody:
    """A ByteStream that keeps what it is sent; one that is broken off raises ConnectionError."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.on_closed: Callable[[], None] | None = None

    def finish(self, last: bytes = b"") -> None:
        self.ended.set_result(last)

    def break_off(self) -> None:
        self.ended.set_exception(ConnectionError())
        # A client that is gone asks for no result.
        self.ended.exception()


async def body_of(answer: Streamed) -> bytes:
    """All that is sent."""
    body = FakeBody()
    answer.start(cast("ByteStream", body))
    return await body.ended


@dataclass(eq=False)
class FakeTimer:
    due: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


def in_place(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """`run_in_thread` without a thread."""
    done(work())


def unhurried_queue() -> FairQueue:
    """A queue whose turns never end for want of time."""
    return FairQueue(stopwatch=lambda: 0.0)


@dataclass
class FakeTimers:
    now: float = 0.0
    armed: list[FakeTimer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback)
        self.armed.append(timer)
        return timer

    @property
    def pending(self) -> list[FakeTimer]:
        return [timer for timer in self.armed if not timer.cancelled]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((t for t in self.pending if t.due <= end), key=lambda t: t.due):
            self.armed.remove(due[0])
            self.now = due[0].due
            due[0].callback()
        self.now = end


def version(number: int, *more: str) -> FlagSet:
    """The set `shop`, whose flag `f` differs by `number`."""
    flags = [flag("f", {"v": number}, "v"), *(flag(key, {"on": True}, "on") for key in more)]
    return flag_set(*flags, flagSetId="shop")


class ServedStore:
    """A store, timers, and a scheduler that runs when the test says so."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.timers = FakeTimers()
        self.scheduler = FakeScheduler()

    def serve(self, flags: FlagSet) -> None:
        swap(self.store, flags, now=NOW)
