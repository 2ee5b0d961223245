"""The names of gRPC peers, and the meaning of their statuses for a follower. Imports no gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToDict

from evaluator.flags.model import EMPTY
from evaluator.sync.config import InvalidSourceError
from evaluator.sync.source import Delivery, SourceFault

if TYPE_CHECKING:
    from evaluator.sync.config import SourceConfig
    from evaluator.wire import sync_pb2

_MAX_DETAILS: Final = 200
_ENVOY: Final = "write envoy://host:port/service"
_OWN_LIMIT: Final = "larger than max"
"""In gRPC's own words for a message that we would not have: peers use the same code when they are full."""
_REASONS: Final = {
    "UNAVAILABLE": "Unreachable",
    "RESOURCE_EXHAUSTED": "Busy",
    "NOT_FOUND": "NotFound",
    "UNAUTHENTICATED": "Unauthenticated",
    "PERMISSION_DENIED": "Forbidden",
    "FAILED_PRECONDITION": "Invalid",
    "INVALID_ARGUMENT": "Refused",
    "UNIMPLEMENTED": "Refused",
}
SAID: Final = frozenset(_REASONS.values()) - {"Busy", "Refused"}
"""What a peer can say of flags that it does not send: none, unknown, bad, or not for us."""


def fault(peer: str, code: str, details: str) -> SourceFault:
    """From a gRPC status, `code` by its name."""
    text = "".join(sign for sign in details if sign.isprintable())[:_MAX_DETAILS]
    reason = "TooLarge" if _OWN_LIMIT in text else _REASONS.get(code, "Ended")
    return SourceFault(reason, f"{peer}: {code}: {text}")


def delivered(peer: str, message: sync_pb2.SyncFlagsResponse) -> Delivery:
    """What a peer sent. Raises SourceFault for a context with bad numbers, or nested without end."""
    try:
        context = MessageToDict(message.sync_context) if message.HasField("sync_context") else EMPTY
    except (ValueError, RecursionError):
        raise SourceFault("Invalid", f"{peer}: its context values are not JSON") from None
    content = message.flag_configuration.encode()
    return Delivery(((f"grpc://{peer}/flags.json", content),), context)


def target(config: SourceConfig) -> tuple[str, list[tuple[str, Any]]]:
    """What gRPC dials, and its channel options. `envoy://HOST:PORT/SERVICE` dials HOST:PORT and asks for
    SERVICE. Raises InvalidSourceError.
    """
    if config.uri.startswith("uds:"):
        return "unix:" + config.uri.removeprefix("uds:").removeprefix("//"), []
    if not config.uri.startswith("envoy:"):
        return config.uri, []
    try:
        parts = urlsplit(config.uri)
        port = parts.port
    except ValueError:
        raise InvalidSourceError(f"the source {config.name}: {_ENVOY}") from None
    service = parts.path.strip("/")
    if not parts.hostname or not port or not service or "/" in service:
        raise InvalidSourceError(f"the source {config.name}: {_ENVOY}")
    return parts.netloc, [("grpc.default_authority", service)]
