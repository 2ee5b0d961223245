"""The published Python providers, unchanged, against an evaluator over sockets."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import CacheType, ResolverType
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent
from openfeature.exception import ErrorCode

from tests.clients.server import Server, banner, until
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import flag_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openfeature.client import OpenFeatureClient

GOLD = EvaluationContext("user-1", {"tier": "gold"})


@pytest.fixture
def over_grpc(shop: Server) -> Iterator[OpenFeatureClient]:
    yield from client(
        FlagdProvider(
            host="127.0.0.1",
            port=shop.ports.grpc,
            resolver_type=ResolverType.RPC,
            cache=CacheType.LRU,
            deadline_ms=5000,
            retry_backoff_ms=50,
            retry_backoff_max_ms=100,
        )
    )


@pytest.fixture
def over_ofrep(shop: Server) -> Iterator[OpenFeatureClient]:
    provider = OFREPProvider(f"http://127.0.0.1:{shop.ports.ofrep}")
    yield from client(provider)
    provider.session.close()


@pytest.fixture(params=["over_grpc", "over_ofrep"])
def either(request: pytest.FixtureRequest) -> OpenFeatureClient:
    found: OpenFeatureClient = request.getfixturevalue(request.param)
    return found


def client(provider: Any) -> Iterator[OpenFeatureClient]:
    api.set_provider_and_wait(provider, "tests")
    yield api.get_client("tests")
    api.shutdown()
    api.clear_providers()


def test_every_type_is_answered(either: OpenFeatureClient) -> None:
    assert either.get_boolean_value("boolean", False) is True
    assert either.get_string_value("string", "") == "alpha"
    assert either.get_integer_value("integer", 0) == 10
    assert either.get_float_value("float", 0.0) == 0.5
    assert either.get_object_value("object", {}) == {"a": [1, {"b": None}], "c": "x"}


def test_targeting_sees_the_clients_context(either: OpenFeatureClient) -> None:
    details = either.get_string_details("targeted", "none", GOLD)
    assert (details.value, details.variant, details.reason) == ("y", "yes", "TARGETING_MATCH")
    assert either.get_string_value("targeted", "none") == "n"


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("missing", ErrorCode.FLAG_NOT_FOUND),
        ("string", ErrorCode.TYPE_MISMATCH),
        ("broken", ErrorCode.PARSE_ERROR),
        ("gone-variant", ErrorCode.GENERAL),
    ],
)
def test_each_error_reaches_the_client_as_itself(
    either: OpenFeatureClient, key: str, error: ErrorCode
) -> None:
    details = either.get_boolean_details(key, True)
    assert (details.value, details.error_code) == (True, error)


@pytest.mark.parametrize("key", ["no/default", "disabled"])
def test_without_a_value_the_code_default_stands(either: OpenFeatureClient, key: str) -> None:
    for code_default in (True, False):
        details = either.get_boolean_details(key, code_default)
        assert (details.value, details.error_code) == (code_default, None)


def test_a_float_of_zero_is_a_float(shop: Server, either: OpenFeatureClient) -> None:
    shop.swap(flag_set(fakes.flag("rate", {"none": 0, "small": 0.05}, "none")))
    details = either.get_float_details("rate", 0.5)
    assert (details.value, details.error_code) == (0.0, None)


def test_metadata_reaches_an_ofrep_client(over_ofrep: OpenFeatureClient) -> None:
    details = over_ofrep.get_boolean_details("boolean", False)
    assert details.flag_metadata == {"flagSetId": "shop", "owner": "shop"}


def changed_flags(events: list[EventDetails]) -> set[str]:
    return {key for event in events for key in event.flags_changed or ()}


def test_a_change_reaches_the_client_and_empties_its_cache(
    shop: Server, over_grpc: OpenFeatureClient
) -> None:
    events: list[EventDetails] = []
    over_grpc.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, events.append)
    assert over_grpc.get_string_details("banner", "").reason == "STATIC"
    assert over_grpc.get_string_details("banner", "").reason == "CACHED"
    shop.swap(flag_set(*fakes.ALL, banner("party"), flagSetId="shop"))
    until(lambda: events)
    assert changed_flags(events) == {"banner"}
    assert over_grpc.get_string_details("banner", "").value == "Hooray"


def test_a_client_comes_back_after_a_restart_on_the_same_port(
    shop: Server, over_grpc: OpenFeatureClient
) -> None:
    stale, ready, changed = (list[EventDetails]() for _ in range(3))
    over_grpc.add_handler(ProviderEvent.PROVIDER_STALE, stale.append)
    over_grpc.add_handler(ProviderEvent.PROVIDER_READY, ready.append)
    over_grpc.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, changed.append)
    shop.stop()
    assert until(lambda: stale)
    ready.clear()
    shop.start_again()
    assert until(lambda: ready)
    shop.swap(flag_set(banner("party")))
    until(lambda: changed)
    assert "banner" in changed_flags(changed)
    assert over_grpc.get_string_value("banner", "") == "Hooray"


def test_metrics_count_what_clients_of_both_protocols_asked(
    shop: Server, over_grpc: OpenFeatureClient
) -> None:
    over_grpc.get_string_details("targeted", "", GOLD)
    url = f"http://127.0.0.1:{shop.ports.management}/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    expected = 'feature_flag_flagd_impression_total{feature_flag_key="targeted",'
    assert [line for line in text.splitlines() if line.startswith(expected) and line.endswith(" 1.0")]
