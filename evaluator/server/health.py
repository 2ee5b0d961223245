"""grpc.health.v1: whether flags are served, for probes and for clients that balance load by it.

Messages by https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto: `HealthCheckRequest
{string service = 1}` has the wire shape of protobuf's own StringValue, and `HealthCheckResponse
{ServingStatus status = 1}` is two bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue

from evaluator.http.messages import Call, Code, MessageStream, RpcError
from evaluator.http.routes import Routes

if TYPE_CHECKING:
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store

SERVICE: Final = "grpc.health.v1.Health"


class ServingStatus(IntEnum):
    """HealthCheckResponse.ServingStatus, as far as it is sent."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3

    @property
    def message(self) -> bytes:
        """Return the encoded response with this status: field 1, varint."""
        return bytes((0x08, self))


class HealthService:
    """SERVING once there are flags, stale ones too, until `close`; one for all ports of a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._closing = False
        self._watches: set[_Watch] = set()
        self._unsubscribe = store.subscribe(self._on_change)

    @property
    def status(self) -> ServingStatus:
        """The status of the process, and of each of its services."""
        served = self._store.snapshot is not None and not self._closing
        return ServingStatus.SERVING if served else ServingStatus.NOT_SERVING

    def watch(self, stream: MessageStream, *, known: bool) -> None:
        """Send `stream` the status of a service, `known` or not, now and at each change, until it ends."""
        if self._closing:
            raise RpcError(Code.UNAVAILABLE, "shutting down")
        watch = _Watch(self, stream, known)
        self._watches.add(watch)
        watch.advance()

    def forget(self, watch: _Watch) -> None:
        """Remove a watch that has ended."""
        self._watches.discard(watch)

    def close(self) -> None:
        """Send NOT_SERVING to all watchers and end their streams."""
        self._closing = True
        self._unsubscribe()
        for watch in tuple(self._watches):
            watch.end()

    def _on_change(self, _: Snapshot) -> None:
        for watch in tuple(self._watches):
            watch.advance()


class _Watch:
    """One Watch stream, and the last status sent to it."""

    def __init__(self, health: HealthService, stream: MessageStream, known: bool) -> None:
        self._health = health
        self._stream = stream
        self._known = known
        self._sent: ServingStatus | None = None
        stream.on_writable = self.advance
        stream.on_closed = self._on_closed

    def advance(self) -> None:
        """Send the newest status, if it was not sent and the stream is writable."""
        status = self._health.status if self._known else ServingStatus.SERVICE_UNKNOWN
        if status is not self._sent and self._stream.writable:
            self._sent = status
            self._stream.send(status.message)

    def end(self) -> None:
        """End the stream, with a message if it is writable."""
        self.advance()
        self._on_closed()
        self._stream.close(Code.UNAVAILABLE, "shutting down")

    def _on_closed(self) -> None:
        self._health.forget(self)


def routes(health: HealthService, *beside: Routes) -> Routes:
    """The health service of a port that also answers `beside`, whose services it knows; to be merged with
    them.

    Check of a service that the port has not is NOT_FOUND; Watch says SERVICE_UNKNOWN, and stays open, as a
    service may come.
    """
    paths = [path for routes in beside for path in (*routes.unary, *routes.streams)]
    known = frozenset(("", SERVICE, *(path.split("/")[1] for path in paths)))

    def check(_: Call, message: bytes) -> bytes:
        if _service(message) not in known:
            raise RpcError(Code.NOT_FOUND, "unknown service")
        return health.status.message

    def watch(_: Call, message: bytes, stream: MessageStream) -> None:
        health.watch(stream, known=_service(message) in known)

    return Routes(unary={f"/{SERVICE}/Check": check}, streams={f"/{SERVICE}/Watch": watch})


def _service(message: bytes) -> str:
    try:
        return StringValue.FromString(message).value
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error
