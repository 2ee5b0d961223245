"""Our descriptions of flagd's messages, beside the published classes: the same bytes both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as published_v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as published_v2
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as published_sync
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as published_old

from evaluator.wire import evaluation_v1_pb2, evaluation_v2_pb2, sync_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

TYPES = ("Boolean", "String", "Float", "Int", "Object")
ANSWERS = ("ResolveAllRequest", "ResolveAllResponse", "AnyFlag", "EventStreamResponse")
PAIRS: list[tuple[Any, Any]] = [
    *((getattr(evaluation_v1_pb2, name), getattr(published_v1, name)) for name in ANSWERS),
    *(
        (getattr(ours, f"Resolve{name}Response"), getattr(published, f"Resolve{name}Response"))
        for name in TYPES
        for ours, published in ((evaluation_v1_pb2, published_v1), (evaluation_v2_pb2, published_v2))
    ),
    *(
        (evaluation_v1_pb2.ResolveRequest, getattr(published, f"Resolve{name}Request"))
        for name in TYPES
        for published in (published_v1, published_v2)
    ),
    *(
        (getattr(sync_pb2, name), getattr(published_sync, name))
        for name in (
            "SyncFlagsRequest", "SyncFlagsResponse", "FetchAllFlagsResponse", "GetMetadataRequest",
            "GetMetadataResponse",
        )
    ),
    *(
        (sync_pb2.SyncFlagsRequest, each)
        for each in (
            published_sync.FetchAllFlagsRequest, published_old.SyncFlagsRequest,
            published_old.FetchAllFlagsRequest,
        )
    ),
    (sync_pb2.OldSyncFlagsResponse, published_old.SyncFlagsResponse),
    (sync_pb2.FetchAllFlagsResponse, published_old.FetchAllFlagsResponse),
]  # fmt: skip


def fields(message: Any) -> set[tuple[object, ...]]:
    """What decides about the bytes of a message."""
    return {
        (each.number, each.name, each.type, each.is_repeated, each.has_presence)
        for each in message.DESCRIPTOR.fields
    }


@pytest.mark.parametrize(("ours", "published"), PAIRS, ids=[each.DESCRIPTOR.full_name for _, each in PAIRS])
def test_a_message_has_the_fields_of_the_published_one(ours: Any, published: Any) -> None:
    assert fields(ours) == fields(published)


structs = st.dictionaries(
    st.text(max_size=3), st.none() | st.booleans() | st.floats() | st.text(), max_size=3
)


VALUES = {"Boolean": st.booleans(), "String": st.text(), "Float": st.floats(), "Object": structs}
VALUES["Int"] = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("kind", TYPES)
@given(st.data())
def test_an_answer_has_the_bytes_of_the_published_one(kind: str, data: st.DataObject) -> None:
    optional = {"variant": st.text(), "value": VALUES[kind], "metadata": structs}
    values = data.draw(st.fixed_dictionaries({"reason": st.text()}, optional=optional))
    name = f"Resolve{kind}Response"
    for ours, published in ((evaluation_v1_pb2, published_v1), (evaluation_v2_pb2, published_v2)):
        made, theirs = fill(getattr(ours, name)(), values), fill(getattr(published, name)(), values)
        assert made.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)


def fill(message: Any, values: dict[str, Any]) -> Message:
    for name, value in values.items():
        if isinstance(value, dict):
            getattr(message, name).update(value)
        else:
            setattr(message, name, value)
    found: Message = message
    return found
