"""Pods with standing orders: which are injected, what their evaluator asks for, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from controller.api.meta import Resource
from controller.delivery.standing_orders import ORDER, ORDERS_LABEL
from controller.pods import installation
from controller.pods.carried_flags import WorkloadOrders, write_remark
from controller.pods.changes import ObjectPatch
from controller.pods.installation import Options, PodRefused
from controller.pods.known_objects import KnownObjects
from controller.pods.pod_injection import inject, inject_manifest
from controller.pods.pod_orders import ALONE, Surroundings
from controller.runtime.cache import Cache
from tests.worlds.objects import workload
from tests.worlds.pods import pod

FFC = "FeatureFlagConfiguration"
OWNED = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}]


def known_objects(*names: str, everywhere: bool = False, **ids: str) -> KnownObjects:
    """What admission knows: flag sets of the namespace shop, some with a flagSetId."""
    objects = Cache()
    for name in (*names, *ids):
        resource = Resource.of({"kind": FFC, "metadata": {"name": name, "namespace": "shop"}})
        objects.learn(resource)
    return KnownObjects(objects, (), everywhere, lambda key: ids.get(key.name, ""))


def pod_with(annotations: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """A pod that names no flag set."""
    given = pod({})
    given["metadata"] = {"name": "web", **({"annotations": annotations} if annotations else {}), **meta}
    return given


def sources(given: dict[str, Any], around: Surroundings = ALONE) -> list[str]:
    """The selectors that the injected evaluator follows."""
    changes = inject(given, "shop", Options(), known_objects("base", "own", "checkout"), around)
    assert changes is not None
    [container] = changes.after["spec"]["initContainers"]
    words = next(word for word in container["args"] if word.startswith("--sources="))
    return [entry["selector"] for entry in json.loads(words.partition("=")[2])]


@pytest.mark.parametrize(
    ("given", "around", "selectors"),
    [
        (pod_with(), Surroundings({ORDER: "base"}), ["flagstaff.dev/orders=shop"]),
        (pod_with(), Surroundings({}), ["flagstaff.dev/orders=shop"]),
        (pod_with({ORDER: "own"}), ALONE, ["flagstaff.dev/orders=shop+shop/own"]),
        (
            pod_with(labels={ORDERS_LABEL: "true"}, ownerReferences=OWNED),
            ALONE,
            ["flagstaff.dev/orders=shop/StatefulSet/db"],
        ),
        (
            pod_with({installation.ENABLED: "true", installation.FLAG_SET: "checkout"}),
            Surroundings({ORDER: "base"}),
            ["flagstaff.dev/orders=shop", "shop/checkout"],
        ),
        (
            pod_with({installation.DIRECT_SET: "db"}, ownerReferences=OWNED),
            Surroundings({ORDER: "base"}),
            ["flagstaff.dev/orders=shop/StatefulSet/db"],
        ),
    ],
)
def test_the_evaluator_asks_for_the_orders_first(
    given: dict[str, Any], around: Surroundings, selectors: list[str]
) -> None:
    assert sources(given, around) == selectors


def test_the_pod_gets_the_label_by_which_proxies_find_it_and_a_record() -> None:
    changes = inject(pod_with(), "shop", Options(), known_objects("base"), Surroundings({ORDER: "base"}))
    assert changes is not None
    meta = changes.after["metadata"]
    record = json.loads(meta["annotations"][installation.INJECTED])
    assert meta["labels"] == {ORDERS_LABEL: "true"}
    assert (record["flagSet"], record["from"]) == ("flagstaff.dev/orders=shop", "standing orders")
    again = inject(changes.after, "shop", Options(), known_objects("base"), Surroundings({ORDER: "base"}))
    assert again is not None
    assert again.patch == []


def test_a_pod_that_was_injected_before_the_label_was_known_stays_as_it_is() -> None:
    given = pod_with({installation.ENABLED: "true", installation.FLAG_SET: "checkout"})
    changes = inject(given, "shop", Options(), known_objects("checkout"))
    assert changes is not None
    again = inject(changes.after, "shop", Options(), known_objects("checkout"), Surroundings({}))
    assert again is not None
    assert again.patch == []


def test_a_pod_that_refuses_and_one_without_orders_are_left_alone() -> None:
    refusing = pod_with({installation.ENABLED: "false"})
    assert inject(refusing, "shop", Options(), known_objects(), Surroundings({ORDER: "base"})) is None
    assert inject(pod_with(), "shop", Options(), known_objects()) is None


@pytest.mark.parametrize(
    ("annotations", "labels", "message"),
    [
        (
            {ORDER: "bas"},
            None,
            f"annotation {ORDER}: namespace shop has no FlagSet, {FFC} or FeatureFlag bas; "
            "create it, or correct the name .did you mean base..",
        ),
        ({ORDER: "B"}, None, f"annotation {ORDER}: 'B' is no object's name"),
        (None, {ORDER: "bas"}, f"label {ORDER} of Namespace shop: namespace shop has no FlagSet"),
        (
            {ORDER: "base", f"{ORDER}-namespace": "platform"},
            None,
            "no FlagGrant lets pods of shop refer to it",
        ),
        ({ORDER: "twin"}, {ORDER: "one"}, "have the flagSetId 'kills' both; give one of them another"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_followed_refuses_the_pod(
    annotations: dict[str, str] | None, labels: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(PodRefused, match=message):
        inject(
            pod_with(annotations), "shop", Options(), known_objects("base", one="kills", twin="kills"),
            Surroundings(labels),
        )  # fmt: skip


def test_open_references_of_the_operators_kind_open_no_orders() -> None:
    given = pod_with({ORDER: "base", f"{ORDER}-namespace": "platform"})
    with pytest.raises(PodRefused, match="but not of standing orders, which the proxy checks by itself"):
        inject(given, "shop", Options(), known_objects(everywhere=True))


def test_a_manifest_with_an_order_is_injected_without_a_cluster() -> None:
    manifest = yaml.safe_load(
        """
        kind: Deployment
        metadata: {name: web, annotations: {openfeature.dev/standing-orders: base}}
        spec: {template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: app:1}]}}}
        """
    )
    made = inject_manifest(manifest, "shop", Options(), known_objects("base"))
    assert made["metadata"]["labels"] == {ORDERS_LABEL: "true"}
    [evaluator] = made["spec"]["template"]["spec"]["initContainers"]
    assert any("flagstaff.dev/orders=shop/Deployment/web" in word for word in evaluator["args"])


def ordering(order: str = "", kind: str = "Deployment") -> dict[str, Any]:
    """A workload with a standing order, if one is given."""
    return workload(kind, {ORDER: order} if order else {}, name="web", labels={})


def mark_workload(
    given: dict[str, Any], before: dict[str, Any] | None = None, labels: dict[str, str] | None = None
) -> ObjectPatch:
    changes = ObjectPatch(given)
    orders = WorkloadOrders(
        known_objects("base", "special", one="kills", twin="kills"), lambda _namespace: labels
    )
    orders.mark(changes, before, "shop")
    write_remark(changes, None)
    return changes


def test_a_workload_and_its_pods_are_labelled_while_it_has_an_order() -> None:
    made = mark_workload(ordering("base")).after
    template = made["spec"]["template"]["metadata"]["labels"]
    assert (made["metadata"]["labels"], template) == (
        {ORDERS_LABEL: "true"}, {"app": "web", ORDERS_LABEL: "true"},
    )  # fmt: skip
    assert mark_workload(made, made).patch == []
    without = {**made, "metadata": {**made["metadata"], "annotations": {}}}
    removed = mark_workload(without, made).after
    assert removed["metadata"]["labels"] == {}
    assert removed["spec"]["template"]["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize(
    ("annotation", "remarks"),
    [
        (ORDER, [installation.REMARKS]),
        ("openfeature.agent/standing-orders-resource", [installation.REMARKS, installation.PROPOSED_REMARKS]),
        ("openfeature.io/standingorder", [installation.REMARKS, installation.PROPOSED_REMARKS]),
    ],
)
def test_a_remark_on_the_workload_names_the_order_as_its_author_wrote_it(
    annotation: str, remarks: list[str]
) -> None:
    given = ordering()
    given["metadata"]["annotations"] = {annotation: "base"}
    annotations = mark_workload(given).after["metadata"]["annotations"]
    written = {name: text for name, text in annotations.items() if name != annotation}
    assert written == dict.fromkeys(remarks, f"its pods follow base, which annotation {annotation} orders")


def test_the_jobs_of_a_cron_job_are_labelled_too() -> None:
    made = mark_workload(ordering("base", "CronJob")).after["spec"]["jobTemplate"]
    assert made["metadata"]["labels"] == {ORDERS_LABEL: "true"}
    assert made["spec"]["template"]["metadata"]["labels"][ORDERS_LABEL] == "true"


def test_a_workload_that_gets_an_order_later_is_warned_that_its_pods_are_replaced() -> None:
    assert "its pods are replaced" in mark_workload(ordering("base"), ordering()).warnings[0]
    job = mark_workload(ordering("base", "Job"), ordering(kind="Job"))
    assert "delete the Job and create it again" in job.warnings[0]
    assert ORDERS_LABEL not in job.after["spec"]["template"]["metadata"]["labels"]


def test_where_the_namespace_has_an_order_no_pod_is_replaced() -> None:
    changes = mark_workload(ordering("special"), ordering(), {ORDER: "base"})
    assert changes.warnings == ()
    assert ORDERS_LABEL not in changes.after["spec"]["template"]["metadata"]["labels"]
    assert changes.after["metadata"]["labels"] == {ORDERS_LABEL: "true"}


def test_a_new_order_is_judged_and_a_stored_one_keeps_the_workload_changeable() -> None:
    with pytest.raises(PodRefused, match="has no FlagSet"):
        mark_workload(ordering("nothing"))
    with pytest.raises(PodRefused, match="flagSetId 'kills' both"):
        mark_workload(ordering("twin"), ordering("base"), {ORDER: "one"})
    stored = ordering("nothing")
    assert mark_workload(ordering("nothing"), stored).after["metadata"]["labels"] == {ORDERS_LABEL: "true"}
