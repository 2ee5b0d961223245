"""Messages of flagd.sync.v1 and of sync.v1, and a flag set as flagd sends it.

flagd sends a flag set to in-process providers and to other flagds as one JSON document.

    {"flags": {KEY: {"state", "variants", "defaultVariant", "targeting"?, "metadata"?}}, "metadata"?}

As in flagd (flagd/pkg/service/flag-sync) references are expanded, the metadata that the set's author wrote is
under the flag's own, and a flag without a default variant has `""`. The same content has the same bytes:
keys are sorted, numbers are spelled as in a digest.

Two things differ from flagd's, and no published provider is affected:

* `source`, which flagd puts into each flag, is left out. It has no readers (flagd overwrites it, providers
  drop it), and it would show a subscriber where flags are kept.
* The top-level `metadata` holds the set's own `flagstaff.dev/…` keys (revision, digest, the generation of
  `fractional`), if it has any. Receivers lay set metadata under each flag's, so that no flag repeats them.

flagd.sync.v1 and sync.v1, its deprecated predecessor, are in https://buf.build/open-feature/flagd.

They differ in what is beside the flags: flagd.sync.v1 has `sync_context`, which in-process providers lay over
each evaluation context; sync.v1 has `state`, always ALL, since a message is always the whole set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf.message import DecodeError

from evaluator.flags.catalog import fold
from evaluator.flags.model import ABSENT, PROVENANCE_PREFIX, Flag, FlagSet, Json, Scalar
from evaluator.flags.text import normal
from evaluator.http.messages import Code, RpcError
from evaluator.wire import sync_pb2
from evaluator.wire.hub import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def encode(flag_set: FlagSet) -> bytes:
    """Return the document, in UTF-8 without white space; `{"flags":{}}` for a set without flags. A rule that
    cannot be expanded within bounds becomes one that is a PARSE_ERROR everywhere. Raises ValueError for a
    number that is no finite float64; the parser admits none.
    """
    # Encoded flag by flag: one call for a large set would block all other threads for as long as it takes.
    ours = {key: value for key, value in flag_set.metadata.items() if key.startswith(PROVENANCE_PREFIX)}
    flags = b",".join(
        _text(key) + b":" + _text(_definition(flag, ours)) for key, flag in sorted(fold(flag_set).items())
    )
    metadata = b',"metadata":' + _text(normal(ours)) if ours else b""
    return b'{"flags":{' + flags + b"}" + metadata + b"}"


def _definition(flag: Flag, inherited: Mapping[str, Scalar]) -> dict[str, Json]:
    definition: dict[str, Json] = {
        "state": flag.state.value,
        "variants": normal(dict(flag.variants)),
        "defaultVariant": flag.default_variant or "",
    }
    if flag.targeting is not ABSENT:
        definition["targeting"] = normal(flag.targeting)
    own = {key: value for key, value in flag.metadata.items() if inherited.get(key) != value}
    if own:
        definition["metadata"] = normal(own)
    return definition


def _text(value: Json) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


SELECTOR_HEADER: Final = "flagd-selector"
"""Header that selects flags, in every protocol; it overrides the request's own `selector`."""

SERVICE: Final = "/flagd.sync.v1.FlagSyncService/"
OLD_SERVICE: Final = "/sync.v1.FlagSyncService/"
GET_METADATA: Final = SERVICE + "GetMetadata"


@dataclass(frozen=True, slots=True)
class Payload:
    """An encoded message, for any number of streams."""

    message: bytes
    digest: bytes
    quiet: bool = False
    """Whether streams with an older message need not receive this one."""


@dataclass(frozen=True, slots=True, eq=False)
class SyncMethod:
    """An RPC that delivers flags, and the encoding of its answers. A thread may call `write`."""

    path: str
    lasting: bool
    """Whether it is a stream of messages, not a single one."""
    write: Callable[[bytes, Mapping[str, Any]], bytes]
    """(the flags' JSON document, the synchronised context) → message."""

    def payload(self, document: bytes, context: Mapping[str, Any]) -> Payload:
        """Return the message; takes long for a large set."""
        message = self.write(document, context)
        return Payload(message, digest(message))


def read_selector(message: bytes) -> str:
    """Return the selector in a request of any of these methods. Raises RpcError INVALID_ARGUMENT."""
    try:
        return sync_pb2.SyncFlagsRequest.FromString(message).selector
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error


def _write_update(flags: bytes, context: Mapping[str, Any]) -> bytes:
    message = sync_pb2.SyncFlagsResponse(flag_configuration=flags.decode())
    # Present even if empty, so that stock providers need no call of GetMetadata.
    message.sync_context.SetInParent()
    message.sync_context.update(context)
    return message.SerializeToString(deterministic=True)


def _write_old_update(flags: bytes, _: Mapping[str, Any]) -> bytes:
    message = sync_pb2.OldSyncFlagsResponse(flag_configuration=flags.decode(), state=sync_pb2.SYNC_STATE_ALL)
    return message.SerializeToString(deterministic=True)


def _write_all(flags: bytes, _: Mapping[str, Any]) -> bytes:
    """Return FetchAllFlagsResponse, the same bytes in both versions."""
    return sync_pb2.FetchAllFlagsResponse(flag_configuration=flags.decode()).SerializeToString()


def encode_metadata(context: Mapping[str, Any]) -> bytes:
    """Return a GetMetadataResponse."""
    message = sync_pb2.GetMetadataResponse()
    message.metadata.SetInParent()
    message.metadata.update(context)
    return message.SerializeToString(deterministic=True)


METHODS: Final = (
    SyncMethod(SERVICE + "SyncFlags", True, _write_update),
    SyncMethod(SERVICE + "FetchAllFlags", False, _write_all),
    SyncMethod(OLD_SERVICE + "SyncFlags", True, _write_old_update),
    SyncMethod(OLD_SERVICE + "FetchAllFlags", False, _write_all),
)
