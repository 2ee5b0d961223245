"""The controller's process: replicas, their Lease, kopf's own way of running it, and what it may do."""

from __future__ import annotations

import json
import signal
import socket
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.api import Api, path_of
from tests.cluster.controllers import SYSTEM, ControllerProcess, KopfProcess, controller
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.plugin import ROOT
from tests.cluster.replica import run_replica
from tests.cluster.spines import spine_in
from tests.worlds.flags import flags
from tests.worlds.objects import flag_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

TAKEOVER_SECONDS = 15.0
"""Promised: that long after a leader was killed, a standby acts."""


def holder(plane: Plane, name: str) -> str | None:
    """Who has the Lease."""
    lease = Api(plane).find(path_of("lease", SYSTEM, name))
    found: str | None = lease["spec"].get("holderIdentity")
    return found


def fresh(name: str) -> str:
    """A name that nothing on the plane has yet, also when a test is run again."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.mark.long
def test_a_standby_acts_within_seconds_once_the_leader_is_killed(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        controller(spare, tmp_path / "a", "--lease-name", "killed", name="a") as leader,
    ):
        spine.wait_ready("flagset")
        with controller(spare, tmp_path / "b", "--lease-name", "killed", name="b") as standby:
            assert leader.leads
            assert not standby.leads
            commit = spine.repository.commit("banner off", flags__json=flags(banner="off"))
            leader.end(signal.SIGKILL)
            died = time.monotonic()
            spine.poke("flagsource")
            spine.wait_applied(commit)
            # Of the promise and not of the machine's speed: the lease itself takes ten seconds.
            assert time.monotonic() - died < TAKEOVER_SECONDS
            assert holder(spare, "killed") == "b"


@pytest.mark.slow
def test_a_leader_that_is_asked_to_go_lets_the_standby_act_at_once(
    spare: Plane, spare_namespace: str, tmp_path: Path
) -> None:
    with (
        spine_in(spare, spare_namespace, tmp_path) as spine,
        controller(spare, tmp_path / "a", "--lease-name", "asked", name="a") as leader,
    ):
        spine.wait_ready("flagset")
        with controller(spare, tmp_path / "b", "--lease-name", "asked", name="b") as standby:
            assert leader.end(signal.SIGTERM) == 0
            assert holder(spare, "asked") != "a"
            standby.wait_leads()
            assert holder(spare, "asked") == "b"
            commit = spine.push(flags__json=flags(banner="off"))
            spine.wait_applied(commit)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.mark.slow
def test_a_controller_that_waits_for_git_goes_at_the_signal(
    spare: Plane, spare_namespace: str, tmp_path: Path, silent: socket.socket
) -> None:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/flags"
    # Longer than anybody waits here for the process to end.
    Namespace(spare, spare_namespace).apply(flag_source(url, timeout="10m"))
    with controller(spare, tmp_path, "--lease-name", fresh("hung")) as process, silent.accept()[0]:
        assert process.end(signal.SIGTERM) == 0, process.log_text()[-4000:]


@pytest.mark.slow
def test_git_that_fails_while_the_controller_goes_is_no_failure_of_the_controller(
    spare: Plane, spare_namespace: str, tmp_path: Path, silent: socket.socket
) -> None:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/flags"
    Namespace(spare, spare_namespace).apply(flag_source(url, timeout="10m"))
    with controller(spare, tmp_path, "--lease-name", fresh("failing")) as process:
        with silent.accept()[0]:
            process.send(signal.SIGTERM)
            # kopf waits some seconds for whatever still runs, and looks at how that ended.
            time.sleep(1.0)
        assert process.wait() == 0, process.log_text()[-4000:]


@pytest.mark.slow
def test_kopf_run_starts_the_same_controller(spare: Plane, spare_namespace: str, tmp_path: Path) -> None:
    process = KopfProcess(spare, tmp_path / "kopf")
    with spine_in(spare, spare_namespace, tmp_path) as spine, run_replica(process):
        spine.wait_ready("flagset")
        assert spine.served_variants() == {"banner": "on"}
        page = json.loads(process.ask("/readyz")[1])
        assert (page["ready"], page["leader"]) == (True, True)
        for kind in ("flagsource", "flagset", "ffc"):
            assert "kopf" not in json.dumps(spine.get(kind)["metadata"].get("annotations", {}))
        assert process.end(signal.SIGTERM) == 0, process.log_text()[-4000:]
        assert holder(spare, "flagstaff-controller") is None


def deployed_pod() -> dict[str, Any]:
    """The spec of the controller's pods, which its namespace takes under pod security `restricted`."""
    documents = yaml.safe_load_all((ROOT / "deploy/base/controller.yaml").read_text())
    [deployment] = [each for each in documents if each["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


@pytest.mark.slow
def test_the_leader_alone_bears_the_label_that_its_services_select(spare: Plane, tmp_path: Path) -> None:
    api, name = Api(spare), fresh("flagstaff-controller")
    api.ask("POST", path_of("pod", SYSTEM), {"metadata": {"name": name}, "spec": deployed_pod()})
    process = ControllerProcess(spare, tmp_path, "--lease-name", "labels")
    process.command = ["env", f"POD_NAME={name}", *process.command]

    def label() -> object:
        found = api.find(path_of("pod", SYSTEM, name))["metadata"].get("labels", {})
        return found.get("flagstaff.dev/leader")

    with run_replica(process):
        process.wait_leads()
        within(lambda: label() == "labels")
        assert process.end(signal.SIGTERM) == 0, process.log_text()[-4000:]
    assert label() is None


@pytest.mark.slow
def test_a_standby_loses_the_label_that_a_killed_leader_left_on_its_pod(spare: Plane, tmp_path: Path) -> None:
    api, name = Api(spare), fresh("flagstaff-controller")
    meta = {"name": name, "labels": {"flagstaff.dev/leader": "left"}}
    api.ask("POST", path_of("pod", SYSTEM), {"metadata": meta, "spec": deployed_pod()})
    standby = ControllerProcess(spare, tmp_path / "b", "--lease-name", "left", name=name)
    standby.command = ["env", f"POD_NAME={name}", *standby.command]
    with controller(spare, tmp_path / "a", "--lease-name", "left", name="a") as leader:
        leader.wait_leads()
        with run_replica(standby):
            pod = path_of("pod", SYSTEM, name)
            within(lambda: not api.find(pod)["metadata"].get("labels"))


def test_what_is_deployed_is_taken_by_the_api_server(spare: Plane) -> None:
    output = spare.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/base/controller.yaml"))
    assert output.count("serverside-applied") == 4
    services = json.loads(spare.kubectl("get", "services", "-n", SYSTEM, "-o", "json"))["items"]
    wanted = {
        "flagstaff.dev/leader": "flagstaff-controller",
        "app.kubernetes.io/name": "flagstaff-controller",
    }
    assert [each["spec"]["selector"] for each in services] == [wanted, wanted]


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace"),
    [
        ("create", "", "pods", "default"),
        ("get", "", "pods", "default"),
        ("get", "", "pods", SYSTEM),
        ("list", "", "pods", SYSTEM),
        ("patch", "", "configmaps", SYSTEM),
        ("patch", "", "secrets", "default"),
        ("create", "", "secrets", SYSTEM),
        ("update", "", "secrets", SYSTEM),
        ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
        ("update", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""),
        ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
        ("update", "admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
        ("delete", "", "events", "default"),
        ("patch", "", "events", "default"),
        ("delete", "", "namespaces", ""),
        ("create", "", "serviceaccounts/token", SYSTEM),
        ("impersonate", "", "users", ""),
        ("update", "flagstaff.dev", "flagsets", "default"),
        ("patch", "flagstaff.dev", "flagsets", "default"),
        ("patch", "flagstaff.dev", "flagsources", "default"),
        ("delete", "flagstaff.dev", "flagsources", "default"),
        ("patch", "source.toolkit.fluxcd.io", "gitrepositories", "default"),
        ("get", "coordination.k8s.io", "leases", "default"),
        ("create", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ],
)
def test_the_service_account_may_not(
    spare: Plane, verb: str, group: str, resource: str, namespace: str
) -> None:
    name, _, part = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": name, "subresource": part}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{SYSTEM}:flagstaff-controller",
            "resourceAttributes": {**asked, "namespace": namespace},
        },
    }
    answer = Api(spare).ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is False
