"""Evaluators that are nothing but their receipts: each reports what the proxy delivers, and goes where its
connection leads.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from evaluator.wire.delivery import LEAVE, MARK, REPORT, MemberText
from evaluator.wire.delivery_pb2 import LeaveRequest, ReportRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

BEAT_SECONDS: Final = 4.0
AGAIN_SECONDS: Final = 0.2
PATIENCE: Final = 10.0


class Members:
    """So many of one flag set, on one connection to `port` that is opened anew whenever it breaks."""

    def __init__(self, port: int, selector: str, count: int) -> None:
        self._port, self._selector = port, selector
        self._there = list(range(count))
        self._next = count
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, count: int) -> None:
        """So many more."""
        with self._lock:
            self._there += range(self._next, self._next + count)
            self._next += count

    def leave(self, count: int) -> None:
        """So many say goodbye."""
        with self._lock:
            going, self._there = self._there[:count], self._there[count:]
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            for number in going:
                request = LeaveRequest(member=_member(number, _now()), selector=self._selector)
                _asking(channel, LEAVE)(request, timeout=PATIENCE)

    def stop(self) -> None:
        """Fall silent."""
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._stop.wait(AGAIN_SECONDS):
            with (
                contextlib.suppress(grpc.RpcError),
                grpc.insecure_channel(f"127.0.0.1:{self._port}", _ALONE) as channel,
            ):
                self._connected(channel)

    def _connected(self, channel: grpc.Channel) -> None:
        connected_at, delivered = _now(), _Delivered()
        stream: Any = sync_pb2_grpc.FlagSyncServiceStub(channel).SyncFlags(
            sync_pb2.SyncFlagsRequest(selector=self._selector), metadata=((MARK, "1"),)
        )
        threading.Thread(target=delivered.follow, args=(stream,), daemon=True).start()
        report, beat, said = _asking(channel, REPORT), 0.0, ("", 0)
        try:
            while not self._stop.wait(0.05) and not delivered.over.is_set():
                with self._lock:
                    there = tuple(self._there)
                saying = (delivered.digest, len(there))
                if not delivered.digest or (saying == said and time.monotonic() - beat < BEAT_SECONDS):
                    continue
                said, beat = saying, time.monotonic()
                for number in there:
                    request = ReportRequest(
                        member=_member(number, connected_at), selector=self._selector, digest=delivered.digest
                    )  # fmt: skip
                    report(request, timeout=PATIENCE)
        finally:
            stream.cancel()


_ALONE: Final = (("grpc.use_local_subchannel_pool", 1),)


class _Delivered:
    """What a stream delivered last."""

    def __init__(self) -> None:
        self.digest = ""
        self.over = threading.Event()

    def follow(self, stream: Any) -> None:
        with contextlib.suppress(grpc.RpcError):
            for message in stream:
                self.digest = json.loads(message.flag_configuration)["metadata"]["flagstaff.dev/digest"]
        self.over.set()


def _asking(channel: grpc.Channel, path: str) -> Any:
    """A method of the delivery service; what it answers is nobody's concern."""
    return channel.unary_unary(
        path,
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=lambda answer: answer,
    )


def _member(number: int, connected_at: int) -> Any:
    text = MemberText(f"i-{number}", "shop", f"p-{number}", f"u-{number}", "node-1", "0")
    return text.message(connected_at)


def _now() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def members(port: int, selector: str, count: int) -> Iterator[Members]:
    """Members for as long as the block lasts."""
    made = Members(port, selector, count)
    try:
        yield made
    finally:
        made.stop()
