"""Other clusters: which Secrets and hosts are used for one, and what is said of its refusals."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from controller.api.kube_config import KubeConfig
from controller.api.meta import ObjectKey
from controller.app.namespace_limits import kubeconfig_hosts_of
from controller.app.settings import ControllerSettings
from controller.kube.answers import grant_of_refused
from controller.kube.client import Accounts
from controller.kube.remote_access import Access
from controller.kube.remote_clusters import AnswerBudget, KubeConfigClusters, RemoteCluster
from controller.runtime.http_client import HttpClient
from controller.runtime.secret_texts import Binding, SecretContent, Tls
from controller.runtime.setbacks import Failed, Setback, Stalled, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

SET: Final = ObjectKey("FlagSet", "shop", "checkout")
SECRET: Final = KubeConfig.model_validate({"secretRef": {"name": "eu"}})
OWN: Final = "https://192.0.2.1:6443"


def kubeconfig(server: str = "https://127.0.0.1:1") -> bytes:
    return json.dumps(
        {
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {"token": "a-secret-token"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
    ).encode()


@dataclass
class Own:
    """The cluster with the Secrets."""

    secrets: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    hosts: tuple[str, ...] | None = None

    def begin_write(self, verb: str, kind: str) -> None:
        raise AssertionError(f"{verb} {kind}")

    async def secret(self, namespace: str, name: str) -> SecretContent | None:
        found = self.secrets.get(name)
        return None if found is None else SecretContent(found, Binding(namespace, name, self.hosts))

    def clusters(self, **settings: Any) -> KubeConfigClusters:
        hosts = kubeconfig_hosts_of(ControllerSettings(**settings), OWN)
        return KubeConfigClusters(Accounts(cast("Any", self)), HttpClient(hosts))


async def refusal_of(clusters: KubeConfigClusters, config: KubeConfig = SECRET) -> Setback:
    try:
        with pytest.raises(Setback) as caught:
            await (await clusters.open("shop", config, None)).written_by(SET)
    finally:
        await clusters.http.close()
    assert "a-secret-token" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("key", ["value", "value.yaml"])
async def test_a_kubeconfig_has_one_of_flux_s_keys(key: str) -> None:
    clusters = Own({"eu": {key: kubeconfig()}}).clusters()
    assert (await clusters.open("shop", SECRET, None)).server == "https://127.0.0.1:1"


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (
            "https://127.0.0.1:1",
            "host 127.0.0.1 has the address 127.0.0.1, denied by --denied-kubeconfig-hosts",
        ),
        ("https://[::1]", "host ::1 has the address ::1, denied by --denied-kubeconfig-hosts"),
        ("https://169.254.169.254", "has the address 169.254.169.254, denied by --denied-kubeconfig-hosts"),
        ("https://[::ffff:127.0.0.1]", "denied by --denied-kubeconfig-hosts"),
        ("https://localhost", "denied by --denied-kubeconfig-hosts"),
        ("https://192.0.2.1", "host 192.0.2.1 is the API server's"),
        ("https://kubernetes.default.svc", "host kubernetes.default.svc is the API server's"),
    ],
)
async def test_local_addresses_and_the_own_api_server_are_refused(server: str, why: str) -> None:
    setback = await refusal_of(Own({"eu": {"value": kubeconfig(server)}}).clusters())
    assert (type(setback), setback.reason) == (Stalled, "HostDenied")
    assert why in setback.message
    assert setback.message.startswith(f"cluster {server}: ")


async def test_a_server_that_accepts_and_never_answers_is_given_up() -> None:
    # The kernel accepts, and nobody answers.
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        own = Own({"eu": {"value": kubeconfig(address)}})
        clusters = replace(own.clusters(denied_kubeconfig_hosts=""), seconds=0.1)
        setback = await refusal_of(clusters)
    assert (type(setback), setback.reason) == (Failed, "ApiServerUnavailable")
    assert setback.message == f"cluster {address}: 127.0.0.1: no answer within 0.1 s"


async def test_only_hosts_that_are_named_are_used() -> None:
    setback = await refusal_of(
        Own({"eu": {"value": kubeconfig()}}).clusters(
            kubeconfig_hosts="eu.example.com", denied_kubeconfig_hosts=""
        )
    )
    assert setback.message.endswith("host 127.0.0.1 is not one of --kubeconfig-hosts")


async def test_a_secret_is_shown_to_the_hosts_of_its_annotation() -> None:
    setback = await refusal_of(Own({"eu": {"value": kubeconfig()}}, ("eu.example.com",)).clusters())
    assert (type(setback), setback.reason) == (Stalled, "SecretHostDenied")


class Echo:
    """A server that repeats what it is shown."""

    def __init__(self) -> None:
        self.access = Access("https://eu", Tls(), "a-secret-token")

    async def send(self, *_: Any) -> tuple[int, Mapping[str, str], bytes]:
        return 403, {}, json.dumps({"message": f"not with {self.access.token}"}).encode()


async def test_words_of_a_server_that_repeat_the_token_are_in_no_message() -> None:
    cluster = RemoteCluster(cast("Any", Echo()), None, cast("Any", Own()))
    with pytest.raises(Failed) as caught:
        await cluster.written_by(SET)
    assert caught.value.message == (
        "cluster https://eu: featureflagconfigurations: not with …; the credentials are not accepted there"
    )


@pytest.mark.parametrize(
    ("budget", "answer"),
    [
        (AnswerBudget(content=10), b"a" * 11),
        (AnswerBudget(values=10), b"[" * 11),
        (AnswerBudget(requests=0), b""),
    ],
)
def test_a_cluster_that_sends_too_much_is_not_read_on(budget: AnswerBudget, answer: bytes) -> None:
    with pytest.raises(Failed, match="its answers are larger than a flag set can be"):
        budget.spend(answer)


async def test_no_answer_is_a_failure_that_names_the_cluster() -> None:
    setback = await refusal_of(Own({"eu": {"value": kubeconfig()}}).clusters(denied_kubeconfig_hosts=""))
    assert setback.reason == "ApiServerUnavailable"
    assert setback.message == "cluster https://127.0.0.1:1: 127.0.0.1: connection refused"


@pytest.mark.parametrize(
    ("secrets", "kind", "reason", "message"),
    [
        (
            {},
            Waiting,
            "KubeConfigMissing",
            "Secret shop/eu does not exist; create it, or correct spec.kubeConfig",
        ),
        ({"eu": {}}, Stalled, "InvalidKubeConfig", "Secret shop/eu: it has no key 'value' or 'value.yaml'"),
        (
            {"eu": {"value": b"a"}},
            Stalled,
            "InvalidKubeConfig",
            "Secret shop/eu: it is no kubeconfig (not-an-object)",
        ),
    ],
)
async def test_a_secret_without_a_kubeconfig_is_named(
    secrets: dict[str, Mapping[str, bytes]], kind: type[Setback], reason: str, message: str
) -> None:
    setback = await refusal_of(Own(secrets).clusters())
    assert (type(setback), setback.reason, setback.message) == (kind, reason, message)


@pytest.mark.parametrize(
    ("user", "command"),
    [
        (
            "system:serviceaccount:shop:hub",
            "kubectl create rolebinding flagstaff-delivery-hub -n shop --clusterrole=flagstaff-delivery "
            "--serviceaccount=shop:hub",
        ),
        (
            "ada@example.com",
            "kubectl create rolebinding flagstaff-delivery -n shop --clusterrole=flagstaff-delivery "
            "--user=ada@example.com",
        ),
        ("$(rm -rf ~)", ""),
    ],
)
def test_the_user_that_a_refusal_names_is_granted_the_role(user: str, command: str) -> None:
    refusal = f'flagshards is forbidden: User "{user}" cannot list resource "flagshards"'
    assert grant_of_refused(refusal, "shop", "flagstaff-delivery") == command


def test_a_refused_impersonation_is_granted_by_its_own_role() -> None:
    refusal = 'serviceaccounts "a" is forbidden: User "ada" cannot impersonate resource "serviceaccounts"'
    assert grant_of_refused(refusal, "shop", "flagstaff-delivery") == (
        "kubectl create rolebinding flagstaff-impersonation -n shop "
        "--clusterrole=flagstaff-impersonation --user=ada"
    )
