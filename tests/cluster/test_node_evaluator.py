"""The evaluator of a node on a real API server, through a proxy with the rights of its manifest: it is told
of the pods of its own node alone, and of their own flag sets. Addresses of the loopback are the pods'.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from openfeature import api as openfeature
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType

from tests.clients.evaluator import evaluator
from tests.cluster.api import path_of
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.proxies import flags, manifest, proxy
from tests.worlds.objects import reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane
    from tests.cluster.proxies import ProxyProcess

ACCOUNT = "node-evaluator"


def place_pod(space: Namespace, name: str, node: str, address: str, account: str = "default") -> None:
    """A pod that a kubelet of `node` would run at this address, injected for the node's evaluator."""
    record = json.dumps({"flagSet": f"{space.name}/shop"})
    space.api.ask("POST", path_of("pod", space.name), {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {
            "flagstaff.dev/evaluator": "node", "flagstaff.dev/injected": record,
        }},
        "spec": {"nodeName": node, "serviceAccountName": account,
                 "containers": [{"name": "app", "image": "app"}]},
    })  # fmt: skip
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    path = f"{path_of('pod', space.name, name)}/status"
    space.api.ask("PATCH", path, status, "application/merge-patch+json")


def ask(port: int, address: str, selector: str = "") -> tuple[int, Any]:
    """The flag `hello` by OFREP, from a pod's address."""
    pool = urllib3.HTTPConnectionPool("127.0.0.1", port, source_address=(address, 0))
    headers = {"flagd-selector": selector} if selector else {}
    answer = pool.request(
        "POST", "/ofrep/v1/evaluate/flags/hello", json={"context": {}}, headers=headers, retries=False
    )
    said = answer.json()
    return answer.status, said.get("value", said.get("errorDetails"))


@contextlib.contextmanager
def evaluator_of_node(
    cluster: Plane, namespace: str, tmp_path: Path, process: ProxyProcess
) -> Iterator[dict[str, int]]:
    """The evaluator of the pod `evaluator`, once it is ready; its ports by name."""
    api = Namespace(cluster, namespace).api
    token = tmp_path / "token"
    token.write_text(api.token(namespace, ACCOUNT, "flagstaff-proxy", kind="Pod", name="evaluator"))
    source = {"uri": process.target, "provider": "grpc", "bearerTokenFile": str(token)}
    with evaluator(f"--pods-from={json.dumps(source)}", cwd=tmp_path) as running:
        ports = running.next_event("listening")
        ready = f"http://127.0.0.1:{ports['management']}/readyz"
        within(lambda: urllib3.request("GET", ready, retries=False).status == 200, process.log_text)
        yield ports


@pytest.mark.timeout(180)
def test_pods_of_the_node_get_their_own_flag_sets(cluster: Plane, namespace: str, tmp_path: Path) -> None:
    space = Namespace(cluster, namespace)
    space.apply(*reader(ACCOUNT), *reader("app"))
    space.apply(manifest(namespace, "shop", flags("one")))
    for name, node, address, account in (
        ("checkout", "n1", "127.0.0.2", "app"),
        ("without-right", "n1", "127.0.0.3", "default"),
        ("elsewhere", "n2", "127.0.0.4", "app"),
        ("evaluator", "n1", "127.0.0.5", ACCOUNT),
    ):
        place_pod(space, name, node, address, account)
    options = ("--auth", "enforce", "--node-evaluators", f"{namespace}/{ACCOUNT}")
    with (
        proxy(cluster, tmp_path / "proxy", *options) as process,
        evaluator_of_node(cluster, namespace, tmp_path, process) as ports,
    ):
        port = ports["ofrep"]
        within(lambda: ask(port, "127.0.0.2") == (200, "one"), process.log_text)
        status, why = ask(port, "127.0.0.3")
        assert status == 403
        assert f"system:serviceaccount:{namespace}:default may not get" in why
        assert ask(port, "127.0.0.4") == (403, "no pod of this node has this address by itself")
        space.apply(manifest(namespace, "shop", flags("two")))
        within(lambda: ask(port, "127.0.0.2") == (200, "two"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("resolver", "port"), [(ResolverType.RPC, "grpc"), (ResolverType.IN_PROCESS, "sync")]
)
def test_a_stock_provider_gets_its_pods_flags_and_their_changes(
    cluster: Plane, namespace: str, tmp_path: Path, resolver: ResolverType, port: str
) -> None:
    """It knows host and port, as injection says them, and nothing of flag sets: its address is the pod's."""
    space = Namespace(cluster, namespace)
    space.apply(*reader(ACCOUNT), *reader("app"))
    space.apply(manifest(namespace, "shop", flags("one")))
    place_pod(space, "checkout", "n1", "127.0.0.1", "app")
    place_pod(space, "evaluator", "n1", "127.0.0.5", ACCOUNT)
    options = ("--auth", "enforce", "--node-evaluators", f"{namespace}/{ACCOUNT}")
    with (
        proxy(cluster, tmp_path / "proxy", *options) as process,
        evaluator_of_node(cluster, namespace, tmp_path, process) as ports,
    ):
        provider = FlagdProvider("127.0.0.1", ports[port], resolver_type=resolver, deadline_ms=30_000)
        openfeature.set_provider_and_wait(provider, "node")
        try:
            client = openfeature.get_client("node")
            assert client.get_string_value("hello", "default") == "one"
            space.apply(manifest(namespace, "shop", flags("two")))
            within(lambda: client.get_string_value("hello", "default") == "two")
        finally:
            openfeature.shutdown()
