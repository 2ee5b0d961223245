"""The sync port, asked by the published stubs and by the published Python provider in in-process mode,
unchanged.
"""

from __future__ import annotations

import contextlib
import json
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2 as v1
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2_grpc as v1_grpc
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2 as old
from openfeature.schemas.protobuf.sync.v1 import sync_service_pb2_grpc as old_grpc

from tests.clients.server import Server, banner, until
from tests.clients.up import banner as document
from tests.clients.up import up
from tests.repositories import Repository
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import flag, flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient

    from evaluator.flags.model import FlagSet

PATIENCE = 20
GOLD = EvaluationContext("user-1", {"tier": "gold"})


def version(number: int, *, padding: int = 0) -> FlagSet:
    return flag_set(
        flag("f", {"v": {"n": number, "padding": token_hex(padding // 2)}}, "v"), flagSetId="shop"
    )


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(version(1))
    yield running
    running.close()


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.ports.sync}") as open_channel:
        yield open_channel


@pytest.fixture
def sync(channel: grpc.Channel) -> Any:
    return v1_grpc.FlagSyncServiceStub(channel)


def number(response: Any) -> int:
    found: int = json.loads(response.flag_configuration)["flags"]["f"]["variants"]["v"]["n"]
    return found


def test_the_deprecated_service_is_there_too(server: Server, channel: grpc.Channel) -> None:
    stub: Any = old_grpc.FlagSyncServiceStub(channel)
    stream = stub.SyncFlags(old.SyncFlagsRequest(), timeout=PATIENCE)
    first = next(stream)
    server.swap(version(2))
    second = next(stream)
    stream.cancel()
    fetched = stub.FetchAllFlags(old.FetchAllFlagsRequest(), timeout=PATIENCE)
    assert [number(each) for each in (first, second, fetched)] == [1, 2, 2]
    assert first.state == old.SYNC_STATE_ALL


def test_a_reader_that_stalls_gets_the_newest_flags_and_few_in_between(server: Server, sync: Any) -> None:
    stalled = sync.SyncFlags(v1.SyncFlagsRequest(), timeout=PATIENCE)
    watching = sync.SyncFlags(v1.SyncFlagsRequest(), timeout=PATIENCE)
    assert (number(next(stalled)), number(next(watching))) == (1, 1)
    for each in range(2, 102):
        server.swap(version(each, padding=1_000_000))
        assert number(next(watching)) == each
    got = [number(next(stalled))]
    while got[-1] < 101:
        got.append(number(next(stalled)))
    stalled.cancel()
    watching.cancel()
    assert got == sorted(set(got))
    assert len(got) < 50


@pytest.mark.parametrize("padding", [10, 5_000, 1_000_000])
def test_clients_that_take_gzip_or_refuse_it_read_sets_of_all_sizes(server: Server, padding: int) -> None:
    # The published stubs name gzip among what they accept; the second channel takes it back.
    refusing = [("grpc.compression_enabled_algorithms_bitset", 1)]
    address = f"127.0.0.1:{server.ports.sync}"
    with grpc.insecure_channel(address) as taking, grpc.insecure_channel(address, refusing) as plain:
        streams: list[Any] = [
            stub.SyncFlags(v1.SyncFlagsRequest(), timeout=PATIENCE)
            for stub in map(v1_grpc.FlagSyncServiceStub, (taking, plain))
        ]
        assert [number(next(stream)) for stream in streams] == [1, 1]
        server.swap(version(2, padding=padding))
        messages = [next(stream) for stream in streams]
        assert list(map(number, messages)) == [2, 2]
        assert messages[0] == messages[1]
        for stream in streams:
            stream.cancel()


def test_clients_that_vanish_at_once_leave_the_others_served(server: Server, sync: Any) -> None:
    staying = sync.SyncFlags(v1.SyncFlagsRequest(), timeout=PATIENCE)
    assert number(next(staying)) == 1
    for each in range(2, 52):
        leaving = sync.SyncFlags(
            v1.SyncFlagsRequest(selector="" if each % 2 else f"s{each}"), timeout=PATIENCE
        )
        server.swap(version(each))
        leaving.cancel()
    seen = 1
    while seen < 51:
        seen = number(next(staying))
    staying.cancel()
    assert number(sync.FetchAllFlags(v1.FetchAllFlagsRequest(), timeout=PATIENCE)) == 51


@contextlib.contextmanager
def in_process(port: int, **options: Any) -> Iterator[OpenFeatureClient]:
    provider = FlagdProvider(
        host="127.0.0.1",
        port=port,
        resolver_type=ResolverType.IN_PROCESS,
        deadline_ms=PATIENCE * 1000,
        retry_backoff_ms=50,
        retry_backoff_max_ms=100,
        **options,
    )
    api.set_provider_and_wait(provider, "sync-tests")
    try:
        yield api.get_client("sync-tests")
    finally:
        api.shutdown()
        api.clear_providers()


@pytest.fixture
def client(shop: Server) -> Iterator[OpenFeatureClient]:
    with in_process(shop.ports.sync) as connected:
        yield connected


def test_a_stock_provider_resolves_every_type_in_process(client: OpenFeatureClient) -> None:
    assert client.get_boolean_value("boolean", False) is True
    assert client.get_string_value("string", "") == "alpha"
    assert client.get_integer_value("integer", 0) == 10
    assert client.get_float_value("float", 0.0) == 0.5
    assert client.get_object_value("object", {}) == {"a": [1, {"b": None}], "c": "x"}
    assert client.get_boolean_value("no/default", True) is True


def test_a_stock_provider_targets_in_process(client: OpenFeatureClient) -> None:
    details = client.get_string_details("targeted", "none", GOLD)
    assert (details.value, details.variant, details.reason) == ("y", "yes", "TARGETING_MATCH")
    assert client.get_boolean_details("boolean", False).flag_metadata == {
        "flagSetId": "shop",
        "owner": "shop",
    }


def test_a_stock_provider_receives_a_change_at_once(shop: Server, client: OpenFeatureClient) -> None:
    events: list[EventDetails] = []
    client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, events.append)
    shop.swap(flag_set(*fakes.ALL, banner("party"), flagSetId="shop"))
    assert until(lambda: client.get_string_value("banner", "") == "Hooray")
    # The provider has the flags before it reports them.
    assert until(lambda: {key for event in events for key in event.flags_changed or ()}) == {"banner"}


@pytest.mark.parametrize(
    ("selector", "value"), [("flagSetId=shop", "Welcome"), ("flagSetId=other", "not found")]
)
def test_a_stock_provider_gets_what_its_selector_finds(shop: Server, selector: str, value: str) -> None:
    with in_process(shop.ports.sync, selector=selector) as client:
        assert client.get_string_value("banner", "not found") == value


def test_a_stock_provider_comes_back_after_a_restart(shop: Server, client: OpenFeatureClient) -> None:
    shop.stop()
    assert client.get_string_value("banner", "") == "Welcome"
    shop.start_again()
    shop.swap(flag_set(banner("party")))
    assert until(lambda: client.get_string_value("banner", "") == "Hooray")


def test_a_commit_reaches_an_in_process_provider(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json=document("plain"))
    with up(repository) as running, in_process(running.ready()["sync"]) as client:
        commit = repository.commit("party", flags__json=document("party"))
        assert until(lambda: client.get_string_value("banner", "") == "Hooray")
        details = client.get_string_details("banner", "")
    assert details.flag_metadata["flagstaff.dev/revision"] == f"main@sha1:{commit}"
