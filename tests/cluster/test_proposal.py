"""The proposal that OpenFeature's integration grew out of: its manifest and annotations, applied as it prints
them, and the manifests of docs/project/proposal.md.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.clients.asking import ask_flag
from tests.clients.evaluator import evaluator
from tests.cluster.admission import run_installation
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.test_injection import started_as_a_kubelet_would
from tests.proposal import manifest
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, reader, workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

SAMPLE: Final = "featureflagconfiguration-sample"
REMARKS: Final = ("openfeature.dev/operator-remarks", "openfeature.io/operator-remarks")

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A cluster with the usual installation."""
    folder, words = tmp_path_factory.mktemp("proposal"), ("--evaluator-image", "example/evaluator:0.4.0")
    with run_installation(spare, folder, *words, "--direct-sets"):
        yield spare


@pytest.fixture
def shop(installed: Plane, spare_namespace: str) -> Namespace:
    """A namespace with the manifest of the first demonstration, as printed."""
    space = Namespace(installed, spare_namespace)
    within(lambda: space.get("serviceaccount", "default"))
    space.apply(*reader("default"))
    assert "created" in space.kubectl("apply", "-f", "-", given=manifest())
    space.wait_ready("ffc", SAMPLE)
    return space


@contextlib.contextmanager
def run_evaluator(
    space: Namespace, manifest: dict[str, Any], folder: Path
) -> Iterator[tuple[dict[str, Any], Callable[..., Any]]]:
    """(the pod that the API server has of a Deployment, a function that asks its evaluator for a value)."""
    name = manifest["metadata"]["name"]

    def apply_and_inject() -> dict[str, Any] | None:
        space.kubectl("apply", "-f", "-", given=json.dumps(manifest), check=False)
        pods = [pod for pod in space.all("pod") if pod["metadata"]["labels"].get("app") == name]
        return next((pod for pod in pods if "initContainers" in pod["spec"]), None)

    pod = within(apply_and_inject, lambda: json.dumps(space.all("event"))[-2000:])
    assert pod is not None
    words, environ = started_as_a_kubelet_would(space, pod, folder)
    with evaluator(*words, cwd=folder, environ=environ, leading=()) as process:
        ports = process.next_event("listening")
        process.next_event("flags served")

        def ask(flag: str, **context: str) -> Any:
            return ask_flag(ports["ofrep"], flag, **context).get("value")

        yield pod, ask


def test_the_first_manifest_is_served_to_the_proposals_subscribers_and_its_change_follows(
    shop: Namespace, tmp_path: Path
) -> None:
    subscriber = workload(annotations={"openfeature.io/standingorder": SAMPLE}, name="subscriber")
    with run_evaluator(shop, subscriber, tmp_path) as (pod, ask):
        assert ask("fibAlgo", email="x@faas.com") == "binet"
        assert ask("fibAlgo", email="x@example.com") == "recursive"
        assert ask("hexColor") == "0000CC"
        assert ask("newWelcomeMessage") is None
        assert "namespaced, scoped, refreshable" in pod["metadata"]["annotations"][REMARKS[0]]
        changed = manifest().replace('"defaultVariant": "blue"', '"defaultVariant": "red"')
        shop.kubectl("apply", "-f", "-", given=changed)
        within(lambda: ask("hexColor") == "CC0000", lambda: str(ask("hexColor")))


def test_the_proposals_subscription_names_object_and_namespace(shop: Namespace, tmp_path: Path) -> None:
    subscription = {
        "openfeature.agent/standing-orders-resource": SAMPLE,
        "openfeature.agent/standing-orders-resource-namespace": shop.name,
    }
    subscriber = workload(below=subscription, name="subscriber")
    with run_evaluator(shop, subscriber, tmp_path) as (pod, ask):
        assert ask("hexColor") == "0000CC"
        first, second = (pod["metadata"]["annotations"][name] for name in REMARKS)
        assert first == second
        assert first.startswith("namespaced, scoped, refreshable; flags of ")
        assert first.endswith("evaluator 0.4.0")


def test_direct_set_and_standing_order_live_beside_each_other(shop: Namespace, tmp_path: Path) -> None:
    own = json.loads(flags(banner="on"))
    own["flags"]["hexColor"] = {"state": "ENABLED", "variants": {"own": "own"}, "defaultVariant": "own"}
    annotations = {"openfeature.io/standingorder": SAMPLE, "openfeature.dev/flags": json.dumps(own)}
    both = workload(annotations=annotations, name="both")
    with run_evaluator(shop, both, tmp_path) as (_, ask):
        within(lambda: (ask("banner"), ask("hexColor")) == (True, "own"), lambda: str(ask("hexColor")))
        assert ask("fibAlgo", email="x@faas.com") == "binet"
        remarks = shop.get("deployment", "both")["metadata"]["annotations"]
        assert remarks[REMARKS[0]] == remarks[REMARKS[1]]


def page_manifests() -> list[dict[str, Any]]:
    """The whole manifests of the page about the proposal."""
    blocks = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs" / "project" / "proposal.md").read_text(), re.DOTALL
    )
    parsed = [yaml.safe_load(block) for block in blocks]
    return [document for document in parsed if "kind" in document]


def test_every_manifest_of_the_page_is_taken(shop: Namespace) -> None:
    shop.apply(configuration("kill-switches", flagSpec=json.loads(flags(kill="off"))))
    documents = page_manifests()
    assert {document["kind"] for document in documents} == {"Deployment", "FeatureFlagConfiguration"}
    for document in documents:
        assert "created" in shop.kubectl("apply", "-f", "-", given=json.dumps(document))
