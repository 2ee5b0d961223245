"""Standing orders on the real API server: the evaluator that admission injected follows what is ordered for
its pod, and what changes of that reaches it without a restart.
"""

from __future__ import annotations

import contextlib
import json
import signal
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.runtime.clock import now
from evaluator.host.times import timestamp
from tests.clients.evaluator import evaluator
from tests.cluster.admission import AdmissionProcess, install_rights, install_webhooks
from tests.cluster.api import Refused, path_of
from tests.cluster.controllers import controller
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.replica import run_replica
from tests.cluster.test_injection import Service, pod, sidecar_of, started_as_a_kubelet_would
from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, manifest, reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

ORDER = "openfeature.dev/standing-orders"
ORDER_NAMESPACE = "openfeature.dev/standing-orders-namespace"
ORIGIN = "flagstaff.dev/flag-set"


@dataclass(frozen=True, slots=True)
class Installed:
    """What runs."""

    plane: Plane
    proxy: ProxyProcess
    admission: AdmissionProcess
    address: Service


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("orders")
    # With `enforce`, though no account of these tests has a right: the order is the right.
    with proxy(spare, folder / "proxy", "--auth", "enforce") as delivering:
        words = "--evaluator-image", "example/evaluator:1", "--proxy-address", delivering.target
        with controller(spare, folder / "controller", "--lease-name", "orders", *words) as leader:
            install_rights(spare)
            leader.wait_leads()
            with (
                run_replica(AdmissionProcess(spare, folder / "a", *words)) as answering,
                contextlib.closing(Service(answering.admission)) as address,
            ):
                install_webhooks(spare, address.port)
                yield Installed(spare, delivering, answering, address)


@pytest.fixture
def shop(installed: Installed, spare_namespace: str) -> Namespace:
    """A namespace with two flag sets."""
    space = Namespace(installed.plane, spare_namespace)
    within(lambda: space.get("serviceaccount", "default"))
    for name in ("base", "special"):
        space.apply(configuration(name, flagSpec=json.loads(flags(banner="on" if name == "base" else "off"))))
        space.wait_ready("ffc", name)
    return space


@pytest.fixture
def platform(shop: Namespace) -> Iterator[Namespace]:
    """Another namespace, with kill switches."""
    space = Namespace(shop.plane, f"{shop.name}-platform")
    shop.plane.kubectl("create", "namespace", space.name)
    space.apply(configuration("kill", flagSpec=json.loads(flags(kill="on"))))
    space.wait_ready("ffc", "kill")
    yield space
    shop.plane.kubectl("delete", "namespace", space.name, "--wait=false")


def override(flag_set: str, flag: str) -> dict[str, Any]:
    """A FlagOverride that switches a flag on for an hour, with the name of the set."""
    spec = {
        "flagSetRef": {"name": flag_set}, "flag": flag, "variant": "on", "reason": "INC-1",
        "expiresAt": timestamp(now() + timedelta(hours=1)),
    }  # fmt: skip
    return manifest("FlagOverride", flag_set, spec)


def label(space: Namespace, order: str) -> None:
    """Order for all pods of the namespace; `…-` removes the label."""
    words = f"{ORDER}{order}" if order == "-" else f"{ORDER}={order}"
    space.plane.kubectl("label", "namespace", space.name, words, "--overwrite")


def create(space: Namespace, annotations: dict[str, str], name: str = "web", **meta: Any) -> dict[str, Any]:
    given = pod(name, annotations)
    given["metadata"] |= meta
    return space.api.ask("POST", path_of("pod", space.name), given)


def create_injected(space: Namespace, annotations: dict[str, str], name: str = "web") -> dict[str, Any]:
    """The pod that was created, once admission knows what it names."""
    pods: list[dict[str, Any]] = []

    def is_made() -> bool:
        with contextlib.suppress(Refused):
            found = create(space, annotations, name)
            if "initContainers" in found["spec"]:
                pods.append(found)
                return True
            path = path_of("pod", space.name, name)
            space.api.ask("DELETE", path, {"gracePeriodSeconds": 0})
        return False

    within(is_made)
    return pods[0]


@contextlib.contextmanager
def run_evaluator(
    space: Namespace, found: dict[str, Any], folder: Path
) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """The evaluator of a pod; the function returns the value of a flag and the set that it is of."""
    with run_container(*started_as_a_kubelet_would(space, found, folder), folder) as ask:
        yield ask


@contextlib.contextmanager
def run_container(
    words: list[str], environ: dict[str, str], folder: Path
) -> Iterator[Callable[[str], tuple[Any, Any]]]:
    """The same, by the container's arguments and variables; its volumes stay in `folder`."""
    with evaluator(*words, cwd=folder, environ=environ, leading=()) as process:
        ports = process.next_event("listening")
        within(lambda: any("flags served" in event["message"] for event in process.log))

        def ask(flag: str) -> tuple[Any, Any]:
            url = f"http://127.0.0.1:{ports['ofrep']}/ofrep/v1/evaluate/flags/{flag}"
            asked = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(asked) as answer:
                body = json.load(answer)
                return body["value"], body["metadata"].get(ORIGIN)
            return None, None

        yield ask
        assert process.process.poll() is None


def test_a_pods_own_order_is_served_by_its_evaluator(
    shop: Namespace, installed: Installed, tmp_path: Path
) -> None:
    found = create_injected(shop, {"openfeature.agent/standing-orders-resource": "base"})
    assert f'"selector":"flagstaff.dev/orders={shop.name}+{shop.name}/base"' in sidecar_of(found)["args"][1]
    assert found["metadata"]["labels"]["flagstaff.dev/orders"] == "true"
    with run_evaluator(shop, found, tmp_path) as ask:
        assert ask("banner") == (True, "FeatureFlagConfiguration/base")
        within(lambda: shop.get("ffc", "base")["status"].get("served") == "1/1", installed.proxy.log_text)


def test_the_label_of_a_namespace_orders_for_all_its_pods_and_a_change_needs_no_restart(
    shop: Namespace, installed: Installed, tmp_path: Path
) -> None:
    label(shop, "base")
    found = create_injected(shop, {})
    with run_evaluator(shop, found, tmp_path) as ask:
        assert ask("banner") == (True, "FeatureFlagConfiguration/base")
        label(shop, "special")
        within(lambda: ask("banner") == (False, "FeatureFlagConfiguration/special"), installed.proxy.log_text)
        # It is counted where it is now, and not where it was.
        within(lambda: shop.get("ffc", "special")["status"].get("served") == "1/1", installed.proxy.log_text)
        within(lambda: shop.get("ffc", "base")["status"].get("served") in {None, "", "0/0"})
        # What cannot be followed changes nothing, and is reported.
        label(shop, "nothing")
        namespace_events = ("get", "events", "-n", "default", "-o", "json",
                            "--field-selector", f"involvedObject.name={shop.name}")  # fmt: skip
        within(lambda: "has no flags of" in shop.plane.kubectl(*namespace_events), installed.proxy.log_text)
        assert ask("banner") == (False, "FeatureFlagConfiguration/special")


def test_a_pod_that_asks_for_a_flag_set_follows_it_beside_the_order(shop: Namespace, tmp_path: Path) -> None:
    label(shop, "base")
    asks = {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "special"}
    found = create_injected(shop, asks)
    shop.apply(*reader("default"))
    if "flagstaff.dev/orders" not in found["metadata"].get("labels", {}):
        # Admission did not know of the label yet.
        found = create_injected(shop, asks, "later")
    with run_evaluator(shop, found, tmp_path) as ask:
        within(lambda: ask("banner")[0] is False)


def test_pods_of_other_namespaces_and_pods_that_refuse_are_never_sent_to_us(
    shop: Namespace, platform: Namespace, installed: Installed
) -> None:
    within(lambda: platform.get("serviceaccount", "default"))
    label(shop, "base")
    create_injected(shop, {})
    connections, reviews = installed.address.accepted, installed.admission.metrics()
    assert "initContainers" not in create(platform, {})["spec"]
    assert "initContainers" not in create(shop, {"openfeature.dev/enabled": "false"}, "refusing")["spec"]
    counted = [line for line in reviews.splitlines() if line.startswith("flagstaff_admission_reviews_total")]
    after = installed.admission.metrics()
    assert all(line in after for line in counted)
    assert installed.address.accepted == connections


def test_a_workloads_order_is_followed_as_its_annotation_changes_and_the_direct_set_wins(
    shop: Namespace, installed: Installed, tmp_path: Path
) -> None:
    label(shop, "base")
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
                 "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod("", {})["spec"]}},
    }  # fmt: skip
    shop.kubectl("apply", "-f", "-", given=json.dumps(deployment))
    found = within(lambda: shop.all("pod"), lambda: json.dumps(shop.all("event"))[-2000:])[0]
    assert f"flagstaff.dev/orders={shop.name}/Deployment/web" in sidecar_of(found)["args"][1]
    with run_evaluator(shop, found, tmp_path) as ask:
        assert ask("banner") == (True, "FeatureFlagConfiguration/base")
        template = shop.get("deployment", "web")["spec"]["template"]
        shop.kubectl("annotate", "deployment", "web", f"{ORDER}=special")
        within(lambda: ask("banner") == (False, "FeatureFlagConfiguration/special"), installed.proxy.log_text)
        annotated = shop.get("deployment", "web")
        assert annotated["metadata"]["labels"]["flagstaff.dev/orders"] == "true"
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                 "uid": annotated["metadata"]["uid"]}  # fmt: skip
        direct = configuration("web", flagSpec=json.loads(flags(banner="on", own="on")))
        direct["metadata"]["ownerReferences"] = [owner]
        shop.apply(direct)
        within(lambda: ask("banner") == (True, "FeatureFlagConfiguration/web"), installed.proxy.log_text)
        assert ask("own") == (True, "FeatureFlagConfiguration/web")
        shop.kubectl("annotate", "deployment", "web", f"{ORDER}=nothing", "--overwrite", check=False)
        assert shop.get("deployment", "web")["metadata"]["annotations"][ORDER] == "special"
        # So no pod was replaced.
        assert shop.get("deployment", "web")["spec"]["template"] == template


def test_across_namespaces_a_flag_grant_is_needed(
    shop: Namespace, platform: Namespace, installed: Installed, tmp_path: Path
) -> None:
    asks = {ORDER: "kill", ORDER_NAMESPACE: platform.name}
    with pytest.raises(Refused) as refusal:
        create(shop, asks)
    text = json.loads(str(refusal.value).partition(" ")[2])["message"]
    assert (
        f"annotation {ORDER}: FlagSet kill is in namespace {platform.name}, where no FlagGrant lets" in text
    )
    platform.kubectl("apply", "-f", "-", given=text.partition("may apply: ")[2])
    found = create_injected(shop, asks)
    with run_evaluator(shop, found, tmp_path) as ask:
        assert ask("kill") == (True, f"FeatureFlagConfiguration/{platform.name}/kill")


def grant(reader: str) -> dict[str, Any]:
    """A FlagGrant for the pods of a namespace."""
    to = [{"group": "core.openfeature.dev", "kind": "FeatureFlagConfiguration"}]
    return manifest(
        "FlagGrant", "pods", {"from": [{"group": "", "kind": "Pod", "namespace": reader}], "to": to}
    )


def served_text(space: Namespace, name: str) -> str | None:
    """`n/m` of a FeatureFlagConfiguration."""
    text: str | None = space.get("ffc", name)["status"].get("served")
    return text


def is_kept(platform: Namespace, pod_name: str) -> bool:
    """Whether the status of `kill` counts the pod as one that keeps it without a grant, and nobody else."""
    found = platform.get("ffc", "kill")
    laggards = [(laggard["name"], laggard.get("reason")) for laggard in found["status"].get("laggards", ())]
    propagated = condition(found, "Propagated")
    return (
        served_text(platform, "kill") == "0/1"
        and laggards == [(pod_name, "OrderNotGranted")]
        and (propagated["status"], propagated["reason"]) == ("False", "Lagging")
        and "OrderNotGranted" in propagated["message"]
    )


def prepare(
    shop: Namespace, name: str, annotations: dict[str, str], folder: Path
) -> tuple[list[str], dict[str, str], Path]:
    """A pod's container: its arguments, its variables and the folder of its volumes."""
    (folder / name).mkdir()
    found = create_injected(shop, annotations, name)
    return (*started_as_a_kubelet_would(shop, found, folder / name), folder / name)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_withdrawn_grant_freezes_its_set_and_the_other_sets_of_the_pod_go_on(
    shop: Namespace, platform: Namespace, installed: Installed, tmp_path: Path
) -> None:
    delivering, kept = installed.proxy, (True, f"FeatureFlagConfiguration/{platform.name}/kill")
    label(shop, "base")
    platform.apply(grant(shop.name))
    container = prepare(shop, "both", {ORDER: "kill", ORDER_NAMESPACE: platform.name}, tmp_path)

    def goes_on(*pods: Callable[[str], tuple[Any, Any]], banner: bool) -> None:
        """`base` reaches all pods and counts them; `kill` stays, and counts the pod that keeps it."""
        within(lambda: all(ask("banner")[0] is banner for ask in pods), delivering.log_text)
        assert pods[0]("kill") == kept
        within(lambda: served_text(shop, "base") == "2/2", delivering.log_text)
        within(lambda: is_kept(platform, f"{shop.name}/both"), delivering.log_text)

    with run_container(*prepare(shop, "alone", {}, tmp_path)) as alone:
        with run_container(*container) as both:
            assert both("kill") == kept
            within(lambda: (served_text(shop, "base"), served_text(platform, "kill")) == ("2/2", "1/1"))
            platform.delete("flaggrant", "pods")
            platform.apply(configuration("kill", flagSpec=json.loads(flags(kill="off"))))
            shop.apply(configuration("base", flagSpec=json.loads(flags(banner="off"))))
            goes_on(both, alone, banner=False)
            shop.apply(override("base", "banner"))
            goes_on(both, alone, banner=True)
            # It forgets what it has sent.
            delivering.end(signal.SIGKILL)
            delivering.start_again()
            shop.delete("flagoverride", "base")
            goes_on(both, alone, banner=False)
        with run_container(*container) as both:
            shop.apply(configuration("base", flagSpec=json.loads(flags(banner="on"))))
            goes_on(both, alone, banner=True)
            platform.apply(grant(shop.name))
            within(lambda: both("kill") == (False, kept[1]), delivering.log_text)
            within(lambda: (served_text(shop, "base"), served_text(platform, "kill")) == ("2/2", "1/1"))


@pytest.mark.long
def test_an_override_that_the_pods_own_set_hides_is_reported_with_that_set(
    shop: Namespace, installed: Installed, tmp_path: Path
) -> None:
    label(shop, "base")
    shop.apply(*reader("default"))
    found = create_injected(shop, {"openfeature.dev/enabled": "true", "flagstaff.dev/flagset": "special"})
    with run_evaluator(shop, found, tmp_path) as ask:
        within(lambda: ask("banner")[0] is False)
        shop.apply(override("base", "banner"))

        def hidden_flags() -> list[dict[str, Any]]:
            receipts = [r for r in shop.all("flagreceipt") if r["spec"]["configuration"] == "base"]
            return [entry for receipt in receipts for entry in receipt["status"].get("hidden", ())]

        by = f"FeatureFlagConfiguration/{shop.name}/special"
        within(lambda: hidden_flags() == [{"flag": "banner", "by": by, "count": 1}], installed.proxy.log_text)
        assert ask("banner")[0] is False


@pytest.mark.long
@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            "bas",
            "has no FlagSet, FeatureFlagConfiguration or FeatureFlag bas; create it, or correct the name",
        ),
        ("Base!", "'Base!' is no object's name; write that of a FlagSet"),
    ],
)
def test_a_workload_with_an_order_that_cannot_be_followed_is_refused(
    shop: Namespace, order: str, message: str
) -> None:
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": shop.name, "annotations": {ORDER: order}},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
                 "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod("", {})["spec"]}},
    }  # fmt: skip
    refusal = shop.kubectl("apply", "-f", "-", given=json.dumps(deployment), check=False)
    assert message in refusal
    with pytest.raises(Refused, match=message.partition(";")[0].replace("(", r"\(")):
        create(shop, {ORDER: order})


def test_two_orders_of_one_flag_set_id_are_refused(shop: Namespace) -> None:
    for name in ("one", "two"):
        document = json.loads(flags(banner="on")) | {"metadata": {"flagSetId": "kills"}}
        shop.apply(configuration(name, flagSpec=document))
    label(shop, "one")

    def is_refused() -> bool:
        try:
            create(shop, {ORDER: "two"}, "twice")
        except Refused as refusal:
            return "have the flagSetId 'kills' both; give one of them another" in str(refusal)
        shop.api.ask("DELETE", path_of("pod", shop.name, "twice"), {"gracePeriodSeconds": 0})
        return False

    within(partial(is_refused))
