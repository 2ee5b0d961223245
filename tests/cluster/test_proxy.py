"""FeatureFlagConfigurations on a real API server, through a proxy as its own service account, to stock clients."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.clients.evaluator import evaluator
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy, within

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

PATIENCE = 20.0


@pytest.fixture(scope="module")
def served(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with proxy(
        cluster, tmp_path_factory.mktemp("proxy"), "--context", '{"region":"eu"}'
    ) as process:
        yield process


@pytest.fixture
def stub(served: ProxyProcess) -> Iterator[Any]:
    with grpc.insecure_channel(served.target) as channel:
        yield sync_pb2_grpc.FlagSyncServiceStub(channel)


def subscribe(stub: Any, selector: str, **options: Any) -> Any:
    request = sync_pb2.SyncFlagsRequest(selector=selector)
    return stub.SyncFlags(request, timeout=PATIENCE, **options)


def value(message: Any) -> str:
    """What the flag `hello` says."""
    flag = json.loads(message.flag_configuration)["flags"]["hello"]
    return str(flag["variants"][flag["defaultVariant"]])


def test_a_stock_provider_in_process_sees_each_change(
    cluster: Plane, namespace: str, served: ProxyProcess
) -> None:
    apply(cluster, manifest(namespace, "shop", flags("one")))
    provider = FlagdProvider(
        host="127.0.0.1",
        port=served.sync,
        resolver_type=ResolverType.IN_PROCESS,
        selector=f"core.openfeature.dev/{namespace}/shop",
    )
    api.set_provider_and_wait(provider, domain=namespace)
    try:
        client = api.get_client(domain=namespace)
        within(lambda: client.get_string_value("hello", "") == "one")
        apply(cluster, manifest(namespace, "shop", flags("two")))
        within(lambda: client.get_string_value("hello", "") == "two")
    finally:
        provider.shutdown()


def test_our_evaluator_serves_what_the_proxy_sends(
    cluster: Plane, namespace: str, served: ProxyProcess, tmp_path: Path
) -> None:
    apply(cluster, manifest(namespace, "shop", flags("one")))
    source = {"uri": served.target, "selector": f"{namespace}/shop", "provider": "grpc"}
    with evaluator("--sources", json.dumps([source]), cwd=tmp_path) as running:
        running.said("flags served")
        apply(cluster, manifest(namespace, "shop", flags("two")))
        assert running.said("flags served")["flags"] == 1


@pytest.mark.parametrize("form", ["core.openfeature.dev/{}/shop", "{}/shop", "flagSetId={}-id"])
@pytest.mark.parametrize("where", ["body", "header"])
def test_a_selector_is_taken_in_each_form_and_place(
    cluster: Plane, namespace: str, stub: Any, form: str, where: str
) -> None:
    document = flags("one") | {"metadata": {"flagSetId": f"{namespace}-id"}}
    apply(cluster, manifest(namespace, "shop", document))
    selector = form.format(namespace)
    metadata = (("flagd-selector", selector),) if where == "header" else ()
    stream = subscribe(stub, selector if where == "body" else "x/y", metadata=metadata)
    message = next(stream)
    stream.cancel()
    assert (value(message), dict(message.sync_context)) == ("one", {"region": "eu"})
