"""Streams to grpc-go, whose users may have it compress requests, and have it take gzip then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.protobuf.json_format import MessageToDict
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as evaluation
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as sync

from tests.clients.server import Server, banner
from tests.contract.grpc_go import Message, stream
from tests.worlds.evaluator import flag, flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

SYNC: Final = "/flagd.sync.v1.FlagSyncService/SyncFlags"
EVENTS: Final = "/flagd.evaluation.v1.Service/EventStream"


def flags(default: str, padding: int) -> Any:
    return flag_set(banner(default), flag("padding", {"long": "x" * padding}, "long"))


def served(message: Message) -> str:
    document = json.loads(sync.SyncFlagsResponse.FromString(message.content).flag_configuration)
    return str(document["flags"]["banner"]["defaultVariant"])


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(flags("plain", 10))
    yield running
    running.close()


def test_each_set_arrives_and_a_large_one_compressed(server: Server) -> None:
    with stream(server.ports.sync, SYNC) as next_message:
        assert served(next_message()) == "plain"
        for default, padding in (("party", 20_000), ("plain", 2_000_000), ("party", 10)):
            server.swap(flags(default, padding))
            message = next_message()
            assert (served(message), message.encoding) == (default, "gzip")
            if padding > 1_000:
                assert message.read < len(message.content) / 10


def test_each_change_arrives_as_an_event(server: Server) -> None:
    with stream(server.ports.grpc, EVENTS) as next_message:
        assert event(next_message()) == ("provider_ready", set())
        for default in ("party", "plain"):
            server.swap(flags(default, 10))
            assert event(next_message()) == ("configuration_change", {"banner"})


def event(message: Message) -> tuple[str, set[str]]:
    """(type, keys of changed flags)."""
    read = evaluation.EventStreamResponse.FromString(message.content)
    return read.type, set(MessageToDict(read.data).get("flags", ()))
