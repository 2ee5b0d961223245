"""examples/sidecar: what a pod gives the evaluator, checked by the API server and run as the pod would run
it.
"""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
import yaml
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.evaluation_context import EvaluationContext

from evaluator.cli import parse
from evaluator.settings import load
from evaluator.settings.settings import PodName
from tests.clients.evaluator import Evaluator, evaluator
from tests.cluster.patience import within
from tests.cluster.proxies import ProxyProcess, proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "sidecar"
SERVICE: Final = "flagstaff-proxy.flagstaff-system.svc"
PORTS: Final = {8013: "grpc", 8014: "management", 8015: "sync", 8016: "ofrep"}
"""What the evaluator calls its ports when it logs them."""
HERE: Final = {
    "FLAGSTAFF_HOST": "127.0.0.1",
    **{f"FLAGD_{name}PORT": "0" for name in ("", "MANAGEMENT_", "SYNC_", "OFREP_")},
}
"""What differs from a pod: it has a network of its own."""


def documents() -> list[dict[str, Any]]:
    return [*yaml.load_all((EXAMPLE / "deployment.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)]


def pod() -> dict[str, Any]:
    found = next(each for each in documents() if each["kind"] == "Deployment")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def sidecar() -> dict[str, Any]:
    (found,) = pod()["initContainers"]
    container: dict[str, Any] = found
    return container


def expand(text: str, variables: dict[str, str]) -> str:
    """`$(NAME)` as the kubelet replaces it."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], text)


def environment(fields: dict[str, str]) -> dict[str, str]:
    """The container's variables in a pod with these fields."""
    return {each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in sidecar()["env"]}


def test_the_api_server_takes_the_manifests_as_they_are(cluster: Plane, namespace: str) -> None:
    words = ("apply", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", str(EXAMPLE))
    output = cluster.kubectl(*words)
    assert sorted(re.findall(r"^\S+", output, re.MULTILINE)) == [
        "deployment.apps/checkout",
        "featureflagconfiguration.core.openfeature.dev/checkout",
        "role.rbac.authorization.k8s.io/checkout-flags",
        "rolebinding.rbac.authorization.k8s.io/checkout-flags",
        "serviceaccount/checkout",
    ]


def test_it_is_a_native_sidecar_without_privilege_that_writes_to_its_volume_alone() -> None:
    container, security = sidecar(), sidecar()["securityContext"]
    assert container["restartPolicy"] == "Always"
    assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
    assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})
    volumes = {each["name"] for each in pod()["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == volumes
    assert [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")] == [
        "/var/lib/flagstaff"
    ]


def test_its_command_line_is_understood_whole_and_names_its_pod() -> None:
    fields = {"metadata.name": "n", "metadata.namespace": "s", "metadata.uid": "u", "spec.nodeName": "k"}
    variables = environment(fields)
    found = load(parse([expand(each, variables) for each in sidecar()["args"]]), variables)
    (source,) = found.settings.sources
    assert (found.warnings, found.settings.pod) == ((), PodName(name="n", namespace="s", uid="u", node="k"))
    assert (source.selector, source.tls) == ("s/checkout", True)
    assert source.uri == f"{SERVICE}:8015"


def test_every_port_that_a_probe_or_a_client_asks_is_the_evaluators_own() -> None:
    ports = {each["name"]: each["containerPort"] for each in sidecar()["ports"]}
    probes = [value["httpGet"]["port"] for key, value in sidecar().items() if key.endswith("Probe")]
    assert set(ports.values()) == set(PORTS)
    assert {ports[each] for each in probes} == {8014}


def test_every_field_of_the_sidecar_is_explained() -> None:
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    names = [
        key
        for key in sidecar()
        if key not in {"name", "image", "env", "ports", "volumeMounts", "resources", "args"}
    ]
    names += [each["name"] for part in ("env", "ports") for each in sidecar()[part]]
    names += [each["name"] for each in pod()["volumes"]]
    names += [each.split("=")[0] for each in sidecar()["args"]]
    assert [name for name in names if name not in page] == []


class Kubelet:
    """Does for the container what a kubelet would, in folders of the test."""

    def __init__(self, plane: Plane, namespace: str, folder: Path) -> None:
        self._plane = plane
        self._namespace = namespace
        self._folder = folder

    def pod_fields(self) -> dict[str, str]:
        """The fields of a pod that the Deployment made."""
        query = ("get", "pods", "-n", self._namespace, "-l", "app=checkout", "-o", "json")
        found = within(lambda: json.loads(self._plane.kubectl(*query))["items"])
        meta = found[0]["metadata"]
        return {f"metadata.{key}": meta[key] for key in ("name", "namespace", "uid")} | {
            "spec.nodeName": "node-1"
        }

    def mount(self, fields: dict[str, str], authority: bytes) -> dict[str, str]:
        """The folder of each mount path, with what its volume has in it."""
        paths = {each["name"]: each["mountPath"] for each in sidecar()["volumeMounts"]}
        for volume in pod()["volumes"]:
            at = self._folder / volume["name"]
            at.mkdir(mode=0o777, parents=True)
            if "projected" in volume:
                (wanted,) = (each["serviceAccountToken"] for each in volume["projected"]["sources"])
                (at / wanted["path"]).write_text(self._token(fields, wanted))
            elif "configMap" in volume:
                (at / "ca.crt").write_bytes(authority)
        return {path: str(self._folder / name) for name, path in paths.items()}

    def _token(self, fields: dict[str, str], wanted: dict[str, Any]) -> str:
        bound = (
            "--bound-object-kind", "Pod", "--bound-object-name", fields["metadata.name"],
            "--bound-object-uid", fields["metadata.uid"],
        )  # fmt: skip
        return self._plane.kubectl(
            "create", "token", pod()["serviceAccountName"], "-n", self._namespace, *bound,
            "--audience", wanted["audience"], "--duration", f"{wanted['expirationSeconds']}s",
        ).strip()  # fmt: skip


@contextlib.contextmanager
def served_by_tls(plane: Plane, folder: Path, authority: trustme.CA) -> Iterator[ProxyProcess]:
    """A proxy as the example expects it."""
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    words = (
        "--tls-cert", str(certificate), "--tls-key", str(key), "--auth", "enforce", "--auth-audiences",
        "flagstaff-proxy",
    )  # fmt: skip
    with proxy(plane, folder, *words) as process:
        yield process


@pytest.fixture
def container(cluster: Plane, namespace: str, tmp_path: Path) -> Iterator[tuple[Evaluator, Any]]:
    """The sidecar's own command line with its own environment, and what it logged when it listened."""
    cluster.kubectl("apply", "-n", namespace, "-f", str(EXAMPLE))
    kubelet, authority = Kubelet(cluster, namespace, tmp_path / "volumes"), trustme.CA()
    fields = kubelet.pod_fields()
    mounts = kubelet.mount(fields, authority.cert_pem.bytes())
    with served_by_tls(cluster, tmp_path, authority) as process:
        moved = mounts | {f"{SERVICE}:8015": process.target}
        words = [expand(each, environment(fields)) for each in sidecar()["args"]]
        for there, here in moved.items():
            words = [each.replace(there, here) for each in words]
        environ = environment(fields) | HERE
        with evaluator(*words[1:], cwd=tmp_path, environ=environ, leading=()) as running:
            yield running, running.next_event("listening")


def test_the_command_line_serves_the_flag_set_to_a_stock_client_beside_it(
    container: tuple[Evaluator, dict[str, Any]], namespace: str, tmp_path: Path
) -> None:
    running, ports = container
    running.next_event("flags served")
    provider = FlagdProvider(host="localhost", port=ports["grpc"], deadline_ms=20_000)
    api.set_provider_and_wait(provider, domain=namespace)
    try:
        client = api.get_client(domain=namespace)
        gold = EvaluationContext(attributes={"tier": "gold"})
        answers = [client.get_boolean_value("new-basket", False, each) for each in (gold, None)]
    finally:
        provider.shutdown()
    assert answers == [True, False]
    within(lambda: [*(tmp_path / "volumes" / "flagstaff-state").glob("*.flags")])


@pytest.mark.long
def test_every_probe_is_answered_once_flags_are_served(container: tuple[Evaluator, dict[str, Any]]) -> None:
    running, ports = container
    running.next_event("flags served")
    numbers = {each["name"]: each["containerPort"] for each in sidecar()["ports"]}
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = sidecar()[name]["httpGet"]
        port = ports[PORTS[numbers[asked["port"]]]]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{asked['path']}") as answer:
            assert answer.status == 200
