"""FeatureFlagConfigurations on a real API server, through a proxy as its own service account, to stock
clients.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from controller.app.settings import ProxySettings, settings_of
from tests.clients.evaluator import evaluator
from tests.cluster.api import Api, path_of
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT, namespace_on
from tests.cluster.proxies import ProxyProcess, apply, flags, manifest, proxy
from tests.cluster.tokens import sign_token
from tests.worlds.objects import reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

PATIENCE = 60.0
SOON = 8.0


@pytest.fixture(scope="module")
def served(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with proxy(cluster, tmp_path_factory.mktemp("proxy"), "--context", '{"region":"eu"}') as process:
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
        running.next_event("flags served")
        apply(cluster, manifest(namespace, "shop", flags("two")))
        assert running.next_event("flags served")["flags"] == 1


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


def test_a_stream_waits_for_its_object_and_ends_with_it_and_it_may_come_back(
    cluster: Plane, namespace: str, stub: Any
) -> None:
    selector = f"{namespace}/shop"
    with pytest.raises(grpc.RpcError) as absent:
        stub.FetchAllFlags(sync_pb2.FetchAllFlagsRequest(selector=selector), timeout=PATIENCE)
    stream = subscribe(stub, selector)
    apply(cluster, manifest(namespace, "shop", flags("one")))
    first = value(next(stream))
    cluster.kubectl("delete", "featureflagconfiguration", "shop", "-n", namespace)
    with pytest.raises(grpc.RpcError) as gone:
        next(stream)
    codes = (absent.value.code(), gone.value.code())
    assert (first, codes) == ("one", (grpc.StatusCode.NOT_FOUND,) * 2)
    again = subscribe(stub, selector)
    apply(cluster, manifest(namespace, "shop", flags("two")))
    assert value(next(again)) == "two"
    again.cancel()


def test_streams_end_with_the_namespace_of_their_object(cluster: Plane, stub: Any) -> None:
    with namespace_on(cluster) as inner:
        apply(cluster, manifest(inner, "shop", flags("one")))
        stream = subscribe(stub, f"{inner}/shop")
        next(stream)
    with pytest.raises(grpc.RpcError) as gone:
        next(stream)
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


def test_conflicts_are_counted_and_subscribers_without_a_token_are_said_on_the_object(
    cluster: Plane, namespace: str, served: ProxyProcess, stub: Any
) -> None:
    apply(
        cluster,
        manifest(namespace, "shop", flags("configuration")),
        manifest(namespace, "shop", flags("flag"), kind="FeatureFlag"),
    )
    stream = subscribe(stub, f"{namespace}/shop")
    assert value(next(stream)) == "configuration"
    stream.cancel()
    within(lambda: "UnauthenticatedSubscriber" in reasons(cluster, namespace))
    labels = f'{{kind="FeatureFlag",name="shop",namespace="{namespace}",reason="Shadowed"}}'
    assert served.metric(f"flagstaff_proxy_conflict{labels}") == 1


def reasons(cluster: Plane, namespace: str) -> set[str]:
    return {each["reason"] for each in Api(cluster).items(path_of("event", namespace))}


@pytest.fixture(scope="module")
def enforcing(cluster: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("enforcing")
    with proxy(cluster, folder, "--auth", "enforce", name="enforcing") as process:
        yield process


def tenant(cluster: Plane, namespace: str) -> tuple[tuple[str, str]]:
    """A service account that may read the flags of its namespace: the metadata that its pods send."""
    space = Namespace(cluster, namespace)
    space.apply(*reader("app"))
    return (("authorization", f"Bearer {space.api.token(namespace, 'app', 'flagstaff-proxy')}"),)


def first_answer(stub: Any, selector: str, shown: tuple[tuple[str, str], ...]) -> str:
    """A new stream's first value, or the code of its refusal."""
    stream = subscribe(stub, selector, metadata=shown)
    try:
        return value(next(stream))
    except grpc.RpcError as refused:
        return str(refused.code().name)
    finally:
        stream.cancel()


def test_under_enforce_a_token_opens_streams_for_as_long_as_the_cluster_takes_it(
    cluster: Plane, namespace: str, enforcing: ProxyProcess
) -> None:
    apply(cluster, manifest(namespace, "shop", flags("one")))
    fresh = tenant(cluster, namespace)
    soon = (("authorization", f"Bearer {sign_token(cluster, namespace, 'app', SOON)}"),)
    with grpc.insecure_channel(enforcing.target) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        opened = partial(first_answer, stub, f"{namespace}/shop")
        assert opened(soon) == "one"
        within(lambda: opened(soon) == "UNAUTHENTICATED")
        assert opened(fresh) == "one"


def test_under_enforce_a_tenant_reads_its_own_flags_and_no_others(
    cluster: Plane, namespace: str, neighbour: Namespace, enforcing: ProxyProcess
) -> None:
    other = neighbour.name
    for each in (namespace, other):
        apply(cluster, manifest(each, "shop", flags(each) | {"metadata": {"flagSetId": f"id-{each}"}}))
    shown = tenant(cluster, namespace)
    for_the_api_server = (("authorization", f"Bearer {Api(cluster).token(namespace, 'app')}"),)
    with grpc.insecure_channel(enforcing.target) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        for selector in (f"{namespace}/shop", f"flagSetId=id-{namespace}"):
            stream = subscribe(stub, selector, metadata=shown)
            assert value(next(stream)) == namespace
            stream.cancel()
        fetch = sync_pb2.FetchAllFlagsRequest
        codes = []
        for selector, metadata in (
            (f"{other}/shop", shown),
            (f"flagSetId=id-{other}", shown),
            (f"{namespace}/shop", ()),
            (f"{namespace}/shop", (("authorization", "Bearer forged"),)),
            (f"{namespace}/shop", for_the_api_server),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                stub.FetchAllFlags(fetch(selector=selector), metadata=metadata, timeout=PATIENCE)
            codes.append(refused.value.code().name)
    assert codes == ["PERMISSION_DENIED", "NOT_FOUND", *["UNAUTHENTICATED"] * 3]


def test_the_proxys_account_may_do_nothing_else(cluster: Plane) -> None:
    account = "--as=system:serviceaccount:flagstaff-system:flagstaff-proxy"
    for verb, what in (
        ("get", "secrets"), ("list", "secrets"), ("update", "featureflagconfigurations"),
        ("patch", "featureflagconfigurations/status"), ("delete", "flagshards"), ("create", "pods"),
    ):  # fmt: skip
        assert cluster.kubectl("auth", "can-i", verb, what, account, "-A", check=False).strip() == "no"


def test_what_is_deployed_is_taken_by_the_api_server_and_by_the_program(
    cluster: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy = ROOT / "deploy"
    cluster.kubectl(
        "apply", "--server-side", "--dry-run=server", "-f", str(deploy / "components/proxy/proxy.yaml")
    )
    patched = cluster.kubectl(
        "patch", "--local", "-f", str(deploy / "components/proxy/proxy.yaml"), "--type", "strategic",
        "-o", "json", "--patch-file", str(deploy / "components/proxy-tls/patch-proxy.yaml"), check=False,
    )  # fmt: skip
    start = patched.index("{")
    deployment = json.JSONDecoder().raw_decode(patched[start:])[0]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        monkeypatch.setenv(each["name"], each.get("value", "x"))
    settings = settings_of(ProxySettings)
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert (container["args"], settings.auth) == (["proxy"], "enforce")
    assert {str(Path(settings.tls_cert).parent)} <= mounts
