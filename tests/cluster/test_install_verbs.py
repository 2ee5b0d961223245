"""`flagstaff install` and `flagstaff uninstall` on a control plane of their own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from controller.api.flagset import FINALIZER
from tests.cluster.assets import find
from tests.cluster.controllers import FLAGSTAFF
from tests.cluster.objects import Namespace
from tests.worlds.objects import configuration, flag_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.plane import Plane


@pytest.fixture
def verb(spare: Plane) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a verb with the plane's kubectl."""
    assets = find()
    assert assets is not None
    path = f"{assets}{os.pathsep}{os.environ['PATH']}"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FLAGSTAFF, *words, "--kubeconfig", str(spare.kubeconfig)],
            env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    return run


def test_export_has_kinds_and_processes_with_the_images_of_a_registry(
    verb: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = verb("install", "--export", "--registry", "images.example.com/flags")
    bodies = [body for body in yaml.safe_load_all(done.stdout) if body]
    assert {"CustomResourceDefinition", "Deployment", "ClusterRole"} <= {body["kind"] for body in bodies}
    assert "images.example.com/flags/flagstaff-controller:" in done.stdout
    assert "registry.example/" not in done.stdout


def test_installation_is_applied_checked_and_removed_without_the_flags(
    verb: Callable[..., subprocess.CompletedProcess[str]], spare: Plane, spare_namespace: str
) -> None:
    refused = verb("install")
    assert (refused.returncode, "name the registry that has the images" in refused.stderr) == (2, True)
    assert verb("install", "--registry", "images.example.com/flags").returncode == 0
    results = {result["check"]: result for result in json.loads(verb("check", "-o", "json").stdout)}
    # No kubelet runs the pods here.
    assert results["flagstaff-controller"]["message"].startswith("0 of 2 replicas are ready")
    assert results["flagstaff-injection"]["result"] == "failed"
    space = Namespace(spare, spare_namespace)
    elsewhere = flag_set(kubeConfig={"secretRef": {"name": "eu"}})
    elsewhere["metadata"]["finalizers"] = ["example.com/other", FINALIZER]
    space.apply(configuration(flagSpec={"flags": {}}), elsewhere)
    refused = verb("uninstall")
    assert (refused.returncode, refused.stderr) == (2, "flagstaff uninstall: write --yes to confirm\n")
    shown = verb("uninstall", "--dry-run").stdout.splitlines()
    assert "Deployment/flagstaff-controller in flagstaff-system" in shown
    # Of a webhook that nobody answers any more, the API server would refuse pods.
    assert [name.partition("/")[0] for name in shown[:2]] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]
    done = verb("uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    assert "kept: the CustomResourceDefinitions" in done.stdout
    assert spare.kubectl("get", "deployments", "-n", "flagstaff-system", "-o", "name") == ""
    assert space.get("ffc")["spec"] == {"flagSpec": {"flags": {}}}
    assert space.get("flagset")["metadata"]["finalizers"] == ["example.com/other"]
    space.patch("flagset", {"metadata": {"finalizers": []}})
