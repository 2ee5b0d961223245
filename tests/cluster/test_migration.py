"""OpenFeature Operator's objects on a cluster, a subscriber of its proxy, the cut-over while flags change."""

from __future__ import annotations

import json
import subprocess
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.asking import served_value
from tests.clients.evaluator import FLAGSTAFF, evaluator
from tests.clients.test_plain_server import Plain, run_server
from tests.clients.upstreams import free_port
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.proxies import apply, manifest, proxy
from tests.cluster.relay import relay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

SYSTEM = "open-feature-operator-system"
OPERATOR = "open-feature-operator-controller-manager"
HELM = {"meta.helm.sh/release-name": "open-feature-operator"}


def migrate(plane: Plane, *words: str) -> tuple[int, str]:
    command = [FLAGSTAFF, "migrate", *words, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def hook(kind: str, name: str) -> dict[str, Any]:
    """One that asks nobody: its rules match no object that is."""
    rule = {
        "apiGroups": ["core.openfeature.dev"],
        "apiVersions": ["v1beta1"],
        "resources": ["flagds"],
        "operations": ["CREATE"],
    }
    webhook = {
        "name": "x.openfeature.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [rule], "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore",
    }  # fmt: skip
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [webhook],
    }  # fmt: skip


@pytest.fixture
def operator(spare: Plane, spare_namespace: str) -> Iterator[str]:
    """What OpenFeature Operator leaves on a cluster, as far as the cut-over touches it."""
    spare.kubectl("create", "namespace", SYSTEM)
    spare.kubectl(
        "annotate", "crd", "featureflags.core.openfeature.dev", *(f"{k}={v}" for k, v in HELM.items())
    )
    spare.kubectl("create", "deployment", OPERATOR, "-n", SYSTEM, "--image=operator:1")
    owner = json.loads(spare.kubectl("get", "deployment", OPERATOR, "-n", SYSTEM, "-o", "json"))["metadata"][
        "uid"
    ]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": OPERATOR, "uid": owner}
    service = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "flagd-proxy-svc", "namespace": SYSTEM, "ownerReferences": [reference]},
        "spec": {"selector": {"app": "flagd-proxy"}, "ports": [{"name": "flagd-proxy", "port": 8015}]},
    }  # fmt: skip
    apply(spare, service)
    prefix = "open-feature-operator"
    for kind in ("Mutating", "Validating"):
        made = hook(f"{kind}WebhookConfiguration", f"{prefix}-{kind.lower()}-webhook-configuration")
        spare.kubectl("create", "-f", "-", given=json.dumps(made))
    yield spare_namespace
    spare.kubectl("delete", "namespace", SYSTEM, "--wait=false")
    for kind in ("mutating", "validating"):
        name = f"{prefix}-{kind}-webhook-configuration"
        spare.kubectl("delete", f"{kind}webhookconfiguration", "--ignore-not-found", name)
    gone = [f"{name}-" for name in (*HELM, "helm.sh/resource-policy")]
    spare.kubectl("annotate", "crd", "featureflags.core.openfeature.dev", *gone)


class Watcher:
    """Asks a running evaluator for its flag, again and again; `seen` are the answers, in order."""

    def __init__(self, port: int) -> None:
        self.seen: list[int] = []
        self._port = port
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                self.seen.append(int(str(served_value(self._port, "banner"))))
            except KeyError:
                self.seen.append(-1)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.slow
def test_the_cut_over_loses_no_update_and_restarts_no_pod(
    spare: Plane, operator: str, tmp_path: Path
) -> None:
    theirs, port = Plain(), free_port()

    def put(value: int) -> None:
        theirs.put(str(value))
        apply(spare, manifest(operator, "checkout", json.loads(theirs.document), "FeatureFlag"))

    put(0)
    with (
        proxy(spare, tmp_path / "proxy") as ours,
        run_server(port, theirs),
        # Under this address running evaluators know the Service flagd-proxy-svc.
        relay(port) as service,
    ):
        selector = f"core.openfeature.dev/{operator}/checkout"
        source = {"uri": f"127.0.0.1:{service.port}", "provider": "grpc", "selector": selector}
        with evaluator("--sources", json.dumps([source]), cwd=tmp_path) as running:
            ports = running.next_event("listening")
            running.next_event("flags served")
            watcher = Watcher(ports["ofrep"])
            try:
                put(1)
                within(lambda: 1 in watcher.seen, lambda: running.log)
                cut_over(spare)
                service.cut()
                put(2)
                service.target = ours.sync
                service.mend()
                for value in (2, 3):
                    put(value)
                    within(partial(watcher.seen.__contains__, value), lambda: running.log)
            finally:
                watcher.end()
            assert sorted(set(watcher.seen)) == [0, 1, 2, 3]
            assert watcher.seen == sorted(watcher.seen)
            assert running.process.poll() is None


def cut_over(plane: Plane) -> None:
    """By the commands that are printed, tried first."""
    code, output = migrate(plane, "apply", "--dry-run", "-f", "crds", "-f", "deploy/base/rbac.yaml")
    assert code == 0, output
    assert "apply CustomResourceDefinition /featureflags.core.openfeature.dev: unchanged" in output
    assert output.count("would be taken") == 5
    wanted = ("Keep the definitions", "Change webhooks", "Hand over")
    _, output = migrate(plane, "check", "-o", "json")
    steps = [each for each in json.loads(output)["steps"] if each["text"].startswith(wanted)]
    assert len(steps) == len(wanted)
    for step in steps:
        for command in step["commands"]:
            # The service that the webhook asks, and what the operator deploys, are not there.
            if "admission.yaml" not in command and "deployment flagd-proxy" not in command:
                as_pasted(plane, command)
    plane.kubectl("delete", "deployment", "-n", SYSTEM, OPERATOR)
    service = json.loads(plane.kubectl("get", "service", "-n", SYSTEM, "flagd-proxy-svc", "-o", "json"))
    assert service["spec"]["externalName"] == "flagstaff-proxy.flagstaff-system.svc.cluster.local"
    assert "ownerReferences" not in service["metadata"]
    _, output = migrate(plane, "check")
    assert not any(text in output for text in wanted)


def as_pasted(plane: Plane, command: str) -> None:
    """Run it in a shell, as a person does who copies it."""
    own = {"KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.folder)}
    environ = {**own, "PATH": f"{plane.assets}:/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, env=environ, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
