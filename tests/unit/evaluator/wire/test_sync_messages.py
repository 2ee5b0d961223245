from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as v1
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old

from evaluator.http.messages import Code, RpcError
from evaluator.wire.sync_messages import METHODS, SyncMethod, encode_metadata, read_selector

FLAGS = '{"flags":{"é":{}}}'
CONTEXT = {"region": "eu", "n": 1.5}
REQUESTS: dict[str, Any] = {
    "/flagd.sync.v1.FlagSyncService/SyncFlags": v1.SyncFlagsRequest,
    "/flagd.sync.v1.FlagSyncService/FetchAllFlags": v1.FetchAllFlagsRequest,
    "/sync.v1.FlagSyncService/SyncFlags": old.SyncFlagsRequest,
    "/sync.v1.FlagSyncService/FetchAllFlags": old.FetchAllFlagsRequest,
}
RESPONSES: dict[str, Any] = {
    "/flagd.sync.v1.FlagSyncService/SyncFlags": (v1.SyncFlagsResponse, {"syncContext": CONTEXT}),
    "/flagd.sync.v1.FlagSyncService/FetchAllFlags": (v1.FetchAllFlagsResponse, {}),
    "/sync.v1.FlagSyncService/SyncFlags": (old.SyncFlagsResponse, {"state": "SYNC_STATE_ALL"}),
    "/sync.v1.FlagSyncService/FetchAllFlags": (old.FetchAllFlagsResponse, {}),
}
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)


@each_method
def test_a_request_has_a_selector(method: SyncMethod) -> None:
    message = REQUESTS[method.path](provider_id="me", selector="source=x").SerializeToString()
    assert read_selector(message) == "source=x"


def test_a_malformed_request_is_refused() -> None:
    with pytest.raises(RpcError) as refused:
        read_selector(b"\xff\xff")
    assert refused.value.code is Code.INVALID_ARGUMENT


@each_method
def test_a_message_is_what_the_published_stubs_read(method: SyncMethod) -> None:
    kind, beside = RESPONSES[method.path]
    read = kind.FromString(method.write(FLAGS.encode(), CONTEXT))
    assert MessageToDict(read) == {"flagConfiguration": FLAGS, **beside}


def test_the_context_is_there_even_if_empty() -> None:
    message = METHODS[0].write(FLAGS.encode(), {})
    assert v1.SyncFlagsResponse.FromString(message).HasField("sync_context")
    assert v1.GetMetadataResponse.FromString(encode_metadata({})).HasField("metadata")


def test_metadata_is_the_context() -> None:
    read = v1.GetMetadataResponse.FromString(encode_metadata(CONTEXT))
    assert MessageToDict(read) == {"metadata": CONTEXT}
