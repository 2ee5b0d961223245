"""Rights that are given by namespace or by pod, on a real API server: with them it works, without them it is
refused with what to do.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from functools import partial
from typing import TYPE_CHECKING

import pytest
import yaml

from controller.kube.client import Cluster
from controller.runtime.setbacks import Failed
from tests.cluster.controllers import SYSTEM
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane


async def test_secrets_are_read_where_the_right_was_given_by_the_command_that_the_refusal_names(
    cluster: Plane, namespace: str
) -> None:
    kubectl = cluster.kubectl
    kubectl("create", "secret", "generic", "git", "-n", namespace, "--from-literal=password=x")
    kubectl("create", "serviceaccount", "reader", "-n", namespace)
    token = kubectl("create", "token", "reader", "-n", namespace).strip()
    client = await Cluster.connect(str(cluster.config_for(token, namespace)))
    try:
        with pytest.raises(Failed, match="kubectl create rolebinding") as refused:
            await client.secret(namespace, "git")
        assert refused.value.reason == "AccessDenied"
        command = shlex.split(refused.value.message.rpartition("; kubectl ")[2])
        assert command[-1] == f"--serviceaccount={SYSTEM}:flagstaff-controller"
        kubectl(*command[:-1], f"--serviceaccount={namespace}:reader")
        async with asyncio.timeout(20):
            while not (found := await read(client, namespace)):  # noqa: ASYNC110 - the API server notifies nobody
                await asyncio.sleep(0.1)
        assert found == {"password": b"x"}
        with pytest.raises(Failed, match="forbidden"):
            await client.secret(SYSTEM, "git")
    finally:
        await client.close()


async def read(client: Cluster, namespace: str) -> object:
    try:
        return await client.secret(namespace, "git")
    except Failed:
        # The authorizer learns of a new binding by a watch.
        return None


@pytest.fixture
def policed(cluster: Plane, namespace: str) -> Iterator[str]:
    """A service account that the policy of proxies is about. Those of other tests have tokens of no pod."""
    account = f"system:serviceaccount:{namespace}:proxy"
    policy = (ROOT / "deploy/components/rights-policies/proxy-lease-policy.yaml").read_text()
    policy = policy.replace("system:serviceaccount:flagstaff-system:flagstaff-proxy", account)
    policy = policy.replace("flagstaff-proxy-lease", f"lease-{namespace}")
    assert account in policy
    kubectl = cluster.kubectl
    kubectl("apply", "-f", "-", given=policy)
    verbs, to = "--verb=get,create,patch,delete", f"--serviceaccount={namespace}:proxy"
    kubectl("create", "role", "leases", "-n", namespace, verbs, "--resource=leases.coordination.k8s.io")
    kubectl("create", "rolebinding", "leases", "-n", namespace, "--role=leases", to)
    yield account
    kubectl("delete", "-f", "-", given=policy)


def test_a_proxy_changes_no_lease_but_its_own(cluster: Plane, namespace: str, policed: str) -> None:
    proxy = [f"--as={policed}"]
    pod = ["--as-user-extra=authentication.kubernetes.io/pod-name=proxy-a"]

    def apply(name: str, *who: str) -> str:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
        }
        return cluster.kubectl(
            "apply", "--server-side", "-f", "-", *who, given=json.dumps(lease), check=False
        )

    def is_refused(name: str, *who: str) -> bool:
        return "may change only its own Lease" in apply(name, *who)

    own = "flagstaff-proxy-proxy-a-1"
    for name, who in (
        # The API server learns of a new policy a moment later.
        ("flagstaff-controller", [*proxy, *pod]),
        ("flagstaff-proxy-proxy-b-1", [*proxy, *pod]),
        (own, proxy),
    ):
        within(partial(is_refused, name, *who))
    assert "serverside-applied" in apply(own, *proxy, *pod)
    delete = ("delete", "lease", own, "-n", namespace)
    assert "may change only" in cluster.kubectl(*delete, *proxy, check=False)
    assert "deleted" in cluster.kubectl(*delete, *proxy, *pod, check=False)


def test_the_overlay_of_shared_clusters_is_taken_by_the_api_server(cluster: Plane) -> None:
    overlay = ROOT / "deploy" / "multi-tenant"
    built = cluster.kubectl("kustomize", str(overlay))
    # Other tests apply some of these objects as another manager.
    words = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-")
    output = cluster.kubectl("apply", *words, given=built)
    assert output.count("serverside-applied") == built.count("\nkind: ")
    proxy = next(each for each in yaml.safe_load_all(built) if each["metadata"]["name"] == "flagstaff-proxy"
                 and each["kind"] == "Deployment")  # fmt: skip
    [container] = proxy["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    # The patch goes over the manifest, whose variables stay.
    assert (given["FLAGSTAFF_AUTH"], "POD_NAME" in given) == ("enforce", True)
