"""deploy/components/rights-policies on a real API server: the controller's requests pass, and no others."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster.patience import within
from tests.cluster.plugin import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.plane import Plane

TEMPLATE: Final = {
    "metadata": {"labels": {"app": "shop"}},
    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
}
OURS: Final = {"app.kubernetes.io/managed-by": "flagstaff"}
NOBODYS: Final = {"namespaceSelector": {"matchLabels": {"nobody": "has-this"}}}


class Policed:
    """A service account that may do everything but what the policies deny it."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self._who = (
            f"--as=system:serviceaccount:{namespace}:flagstaff-controller",
            "--as-user-extra=authentication.kubernetes.io/pod-name=own",
        )

    def give(self, kind: str, name: str, **body: Any) -> None:
        """An object of somebody else's."""
        versions = {
            "Deployment": "apps/v1",
            "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
            "FlagSet": "flagstaff.dev/v1beta1",
        }
        meta = {"name": name, "namespace": self.namespace, **body.pop("metadata", {})}
        made = {"apiVersion": versions.get(kind, "v1"), "kind": kind, "metadata": meta, **body}
        self.plane.kubectl("apply", "-f", "-", given=json.dumps(made))

    def patch(self, kind: str, name: str, patch: dict[str, Any], form: str = "merge") -> str:
        """What kubectl says of it, as the controller."""
        words = ("patch", kind, name, "-n", self.namespace, "--dry-run=server", f"--type={form}")
        return self.plane.kubectl(*words, "-p", json.dumps(patch), *self._who, check=False)

    def passes(self, kind: str, name: str, patch: dict[str, Any], form: str = "merge") -> bool:
        return "patched" in self.patch(kind, name, patch, form)

    def is_denied(
        self, message: str, kind: str, name: str, patch: dict[str, Any], form: str = "merge"
    ) -> bool:
        return message in self.patch(kind, name, patch, form)

    def does(self, *words: str, given: str | None = None) -> str:
        """Any other command, as the controller."""
        return self.plane.kubectl(*words, "--dry-run=server", *self._who, check=False, given=given)


@pytest.fixture
def policed(cluster: Plane, namespace: str) -> Iterator[Policed]:
    text = (ROOT / "deploy/components/rights-policies/rights-policies.yaml").read_text()
    text = text.replace("flagstaff-system", namespace)
    for name in ("pods", "webhooks", "configmaps", "workloads", "flagsets"):
        text = text.replace(f"flagstaff-controller-{name}", f"{name}-{namespace}")
    cluster.kubectl("apply", "-f", "-", given=text)
    admin = f"--serviceaccount={namespace}:flagstaff-controller"
    cluster.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin", admin)
    yield Policed(cluster, namespace)
    cluster.kubectl("delete", "clusterrolebinding", namespace)
    cluster.kubectl("delete", "-f", "-", given=text)


def meta(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def test_of_pods_it_labels_its_own_and_annotates_others_for_changed_flags(policed: Policed) -> None:
    for name in ("own", "other"):
        policed.give("Pod", name, **TEMPLATE)
    leader, changed = {"flagstaff.dev/leader": "flagstaff-controller"}, {"flagstaff.dev/flags-changed": "2"}
    label = "changes no label of a pod but"
    within(partial(policed.is_denied, label, "pod", "other", meta(labels=leader)))
    assert policed.is_denied(label, "pod", "own", meta(labels={"app": None}))
    assert policed.is_denied("no annotation of a pod but", "pod", "other", meta(annotations={"a": "b"}))
    image = {"spec": {"containers": [{"name": "app", "image": "evil:1"}]}}
    assert policed.is_denied("changes no spec", "pod", "other", image, "strategic")
    assert policed.is_denied("changes no spec", "pod", "own", meta(finalizers=["example.com/held"]))
    assert policed.passes("pod", "own", meta(labels=leader))
    assert policed.passes("pod", "other", meta(annotations=changed))


def test_of_flag_sets_it_changes_its_finalizer_alone(policed: Policed) -> None:
    policed.give("FlagSet", "flags", spec={"sourceRef": {"kind": "FlagSource", "name": "flags"}})
    denied = "changes nothing of a FlagSet but its own finalizer"
    within(partial(policed.is_denied, denied, "flagset", "flags", {"spec": {"prune": False}}))
    assert policed.is_denied(denied, "flagset", "flags", meta(labels={"a": "b"}))
    assert policed.is_denied(denied, "flagset", "flags", meta(finalizers=["example.com/held"]))
    assert policed.passes("flagset", "flags", meta(finalizers=["flagstaff.dev/remote-objects"]))


def test_of_webhooks_it_changes_ca_bundle_alone(policed: Policed) -> None:
    name = f"w-{policed.namespace}.example.com"
    client: dict[str, Any] = {
        "service": {"namespace": policed.namespace, "name": "admission", "path": "/inject"}
    }
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook: dict[str, Any] = {
        "name": name, "clientConfig": client, "rules": [rule], "admissionReviewVersions": ["v1"],
        "sideEffects": "None", **NOBODYS,
    }  # fmt: skip
    policed.give("MutatingWebhookConfiguration", name, webhooks=[hook])
    kind = "mutatingwebhookconfiguration"
    try:
        elsewhere = {"service": {**client["service"], "name": "evil"}}
        changes: list[dict[str, Any]] = [
            {"clientConfig": elsewhere}, {"namespaceSelector": {}}, {"rules": [rule, rule]},
        ]  # fmt: skip
        for change in changes:
            wanted = {"webhooks": [{**hook, **change}]}
            within(partial(policed.is_denied, "nothing of a webhook but caBundle", kind, name, wanted))
        more = {"webhooks": [hook, {**hook, "name": f"x.{name}"}]}
        assert policed.is_denied("nothing of a webhook but caBundle", kind, name, more)
        trusting = {"webhooks": [{**hook, "clientConfig": {**client, "caBundle": "Cg=="}}]}
        assert policed.passes(kind, name, trusting)
    finally:
        policed.plane.kubectl("delete", kind, name)


def test_of_config_maps_it_changes_those_with_flags_and_authorities(policed: Policed) -> None:
    for name, more in (
        ("others", {}), ("ours", meta(labels=OURS)), ("flagstaff-ca", {}),
        ("operators", meta(annotations={"openfeature.dev/featureflag": "x"})),
    ):  # fmt: skip
        policed.give("ConfigMap", name, **more)
    adopted, data = meta(labels=OURS), {"data": {"a": "b"}}
    within(partial(policed.is_denied, "changes no ConfigMap but", "configmap", "others", adopted))
    assert policed.is_denied("changes no ConfigMap but", "configmap", "others", data)
    assert "changes no ConfigMap" in policed.does("delete", "configmap", "others", "-n", policed.namespace)
    assert "changes no ConfigMap" in policed.does("create", "configmap", "new", "-n", policed.namespace)
    for name in ("ours", "flagstaff-ca"):
        assert policed.passes("configmap", name, data)
    assert policed.passes("configmap", "operators", adopted)


def test_of_workloads_it_restarts_others_and_changes_those_of_flagds(policed: Policed) -> None:
    spec = {"selector": {"matchLabels": {"app": "shop"}}, "template": TEMPLATE, "replicas": 0}
    policed.give("Deployment", "others", spec=spec)
    policed.give("Deployment", "flagd", spec=spec, **meta(labels=OURS))

    def template(**fields: Any) -> dict[str, Any]:
        return {"spec": {"template": fields}}

    image = template(spec={"containers": [{"name": "app", "image": "evil:1"}]})
    denied = partial(policed.is_denied, "changes no workload but", "deployment", "others")
    within(partial(denied, image, "strategic"))
    for patch in (
        template(metadata={"annotations": {"a": "b"}}), template(metadata={"labels": {"a": "b"}}),
        {"spec": {"replicas": 5}}, meta(labels=OURS),
    ):  # fmt: skip
        assert denied(patch)
    assert "changes no workload" in policed.does("delete", "deployment", "others", "-n", policed.namespace)
    marks = {"flagstaff.dev/restarted-at": "2026-01-01T00:00:00Z", "flagstaff.dev/restarted-for": "x"}
    assert policed.passes("deployment", "others", template(metadata={"annotations": marks}))
    assert policed.passes("deployment", "flagd", image, "strategic")
