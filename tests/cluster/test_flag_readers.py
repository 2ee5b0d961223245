"""What pods bring with them on a real API server: stock flagd's right to read FeatureFlags, which ends at the
namespace and outlives no controller, and the proxy's replicas.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import Resource
from controller.pods.installation import Options
from controller.pods.known_objects import KnownObjects
from controller.pods.pod_injection import inject_manifest
from controller.runtime.cache import Cache
from tests.cluster.controllers import controller
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.worlds.flags import flags
from tests.worlds.objects import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.plane import Plane

pytestmark = pytest.mark.long

ASKS = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "source"}
WORDS = ("--flag-readers", "--compat", "openfeature-operator", "--lease-name", "readers")


def pod(space: Namespace) -> dict[str, Any]:
    """As the webhook makes it."""
    sources = {"sources": [{"source": "flags", "provider": "kubernetes"}]}
    source = manifest("FeatureFlagSource", "source", sources)
    flag = manifest("FeatureFlag", "flags", {"flagSpec": json.loads(flags(banner="on"))})
    space.apply(source, flag)
    objects = Cache()
    for each in (source, flag):
        objects.learn(Resource.of({**each, "metadata": {**each["metadata"], "namespace": space.name}}))
    given = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "checkout", "annotations": ASKS},
        "spec": {"serviceAccountName": "till", "containers": [{"name": "app", "image": "app:1"}]},
    }
    options = Options(image="ghcr.io/open-feature/flagd:v0.15.4", compat=True, flag_readers=True)
    found: dict[str, Any] = inject_manifest(given, space.name, options, KnownObjects(objects, ()))
    return found


def may(plane: Plane, verb: str, space: Namespace, namespace: str) -> bool:
    """Whether the pod's account may, by the API server's own word."""
    account = f"--as=system:serviceaccount:{space.name}:till"
    words = ("auth", "can-i", verb, "featureflags.core.openfeature.dev", account, "-n", namespace)
    return plane.kubectl(*words, check=False).strip() == "yes"


def test_it_comes_with_the_pod_and_goes_after_it(spare: Plane, spare_namespace: str, tmp_path: Path) -> None:
    space = Namespace(spare, spare_namespace)
    spare.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/components/flag-readers/binding.yaml"))
    space.kubectl("create", "serviceaccount", "till")
    with controller(spare, tmp_path / "a", *WORDS, name="a") as first:
        space.apply(pod(space))
        within(lambda: may(spare, "watch", space, space.name), first.log_text)
        assert may(spare, "list", space, space.name)
        assert not may(spare, "list", space, "default")
        assert not may(spare, "update", space, space.name)
    # It goes while no controller is there; the next one finds what was left.
    space.api.ask("DELETE", f"/api/v1/namespaces/{space.name}/pods/checkout", {"gracePeriodSeconds": 0})
    with controller(spare, tmp_path / "b", *WORDS, name="b") as second:
        within(lambda: not space.get("rolebinding", "flagstaff-flag-readers"), second.log_text)
        assert space.get("role", "flagstaff-flag-readers") == {}


def test_the_proxy_comes_with_the_first_pod(spare: Plane, spare_namespace: str, tmp_path: Path) -> None:
    space, system = Namespace(spare, spare_namespace), Namespace(spare, "flagstaff-system")
    spare.kubectl(
        "apply", "--server-side", "-f", str(ROOT / "deploy/components/proxy-on-demand/binding.yaml")
    )
    template = {
        "metadata": {"labels": {"app": "proxy"}},
        "spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "proxy"}}, "template": template}
    meta = {"name": "flagstaff-proxy"}
    system.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    labels = {"flagstaff.dev/proxied": "true"}
    words = ("--proxy-replicas", "2", "--lease-name", "on-demand")
    with controller(spare, tmp_path / "a", *words, name="a") as process:
        process.wait_leads()
        assert system.get("deployment", "flagstaff-proxy")["spec"]["replicas"] == 0
        containers = [{"name": "app", "image": "app:1"}]
        within(lambda: space.get("serviceaccount", "default"))
        space.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "checkout", "labels": labels},
                "spec": {"containers": containers},
            }
        )
        system.wait("deployment", lambda found: found["spec"]["replicas"] == 2, "flagstaff-proxy")
    system.delete("deployment", "flagstaff-proxy")
