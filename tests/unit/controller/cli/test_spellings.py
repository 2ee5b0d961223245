"""Commands as users of Flux and kubectl type them, and what is printed where a part cannot be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.kind import PrinterColumn
from controller.cli import VERB_GROUPS, VERBS, main
from controller.cli.version import running_text
from controller.runtime.clock import now
from controller.runtime.shards import LEASE_LABELS
from evaluator.host.times import timestamp
from tests.stub_api import StubApi, stub_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Print = Callable[..., tuple[int, str, str]]


def ready(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status, "reason": "Applied", "message": "applied"}]}


def deployment(name: str) -> dict[str, Any]:
    spec = {"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "flagstaff:0.1.0"}]}}}
    labels = {"app.kubernetes.io/part-of": "flagstaff"}
    return {
        "kind": "Deployment", "metadata": {"name": name, "namespace": "flagstaff-system", "labels": labels},
        "spec": spec, "status": {"readyReplicas": 1},
    }  # fmt: skip


def pod(name: str) -> tuple[str, dict[str, Any]]:
    """The path and the body of a pod of the installation."""
    labels = {"app.kubernetes.io/part-of": "flagstaff"}
    body = {"kind": "Pod", "metadata": {"name": name, "namespace": "flagstaff-system", "labels": labels}}
    return StubApi.path_of(body), body


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubApi]:
    """An API server with a source, two flag sets and the controller's Deployment."""
    with stub_api(tmp_path) as made:
        for namespace in ("shop", "default"):
            body = {"kind": "Namespace", "metadata": {"name": namespace}}
            made.put(f"/api/v1/namespaces/{namespace}", body)
        for kind, name, team, status in (
            ("FlagSource", "flags", "a", "True"),
            ("FlagSet", "checkout", "a", "True"),
            ("FlagSet", "search", "b", "False"),
        ):
            meta = {"name": name, "namespace": "shop", "labels": {"team": team}}
            body = {"kind": kind, "metadata": meta, "spec": {}, "status": ready(status)}
            made.put(made.path_of(body), body)
        controller = deployment("flagstaff-controller")
        made.put(made.path_of(controller), controller)
        yield made


@pytest.fixture
def run(stub: StubApi, capsys: pytest.CaptureFixture[str]) -> Print:
    """Runs a verb in the namespace `shop`: (exit code, what it prints, what it says on standard error)."""

    def call(words: str, *, namespaced: bool = True) -> tuple[int, str, str]:
        place = ["-n", "shop"] if namespaced else []
        code = main([*words.split(), *place, "--kubeconfig", str(stub.kubeconfig)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    "words", ["set checkout", "set/checkout", "flagset/checkout", "sets checkout", "fset/checkout"]
)
def test_objects_are_named_with_any_word_for_their_kind(words: str, run: Print) -> None:
    code, out, _ = run(f"get {words} -o name")
    assert (code, out) == (0, "FlagSet/checkout\n")
    assert run(f"describe {words}")[0] == 0


def test_objects_of_one_kind_are_named_together(run: Print) -> None:
    assert run("get set/search set/checkout -o name")[1] == "FlagSet/checkout\nFlagSet/search\n"


def test_names_of_several_kinds_are_refused_with_the_form_to_write(run: Print) -> None:
    code, _, err = run("get set/checkout source/flags")
    assert code == 2
    assert "write KIND NAME..., or KIND/NAME... of one kind" in err


def test_object_that_is_missing_does_not_hide_the_others(run: Print) -> None:
    code, out, err = run("get sets checkout serach -o name")
    assert (code, out) == (1, "FlagSet/checkout\n")
    assert "there is no FlagSet serach in namespace shop; did you mean 'search'?" in err


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("-l team=a", "FlagSet/checkout\n"),
        ("--selector team=b", "FlagSet/search\n"),
        ("--status-selector ready=false", "FlagSet/search\n"),
        ("--status-selector Ready=True", "FlagSet/checkout\n"),
    ],
)
def test_objects_are_selected_by_labels_and_by_conditions(options: str, names: str, run: Print) -> None:
    assert run(f"get sets {options} -o name")[:2] == (0, names)


def test_export_takes_labels(run: Print) -> None:
    assert "name: search" not in run("export sets -l team=a")[1]


@pytest.mark.parametrize("option", ["--no-header", "--no-headers"])
def test_table_is_printed_without_headings_on_request(option: str, run: Print) -> None:
    assert run("get sets")[1].startswith("NAME")
    assert run(f"get sets {option}")[1].startswith("checkout")


def test_empty_list_names_the_namespace_and_the_option_for_all(run: Print) -> None:
    assert run("get alerts")[1] == "no FlagAlerts in namespace shop; -A lists all namespaces\n"
    assert run("get alerts -A", namespaced=False)[1] == "no FlagAlerts in any namespace\n"


@pytest.mark.parametrize("verb", ["get all -o name", "tree"])
def test_kind_without_rights_is_reported_and_the_others_are_shown(
    verb: str, run: Print, stub: StubApi
) -> None:
    stub.denied.add("flagsources")
    code, out, err = run(verb)
    assert code == 1
    assert "FlagSet/checkout" in out
    assert "flagsources is forbidden" in err


def test_check_goes_on_where_a_part_cannot_be_read(run: Print, stub: StubApi) -> None:
    stub.denied |= {"deployments", "leases"}
    _, out, _ = run("check -o json", namespaced=False)
    results = {result["check"]: result for result in json.loads(out)}
    assert "is forbidden" in results["processes"]["message"]
    assert results["processes"]["result"] == results["leader"]["result"] == "warning"
    assert "evaluators" in results or "Kubernetes" in results


def test_check_names_the_leader_of_each_shard_and_the_shard_without_one(run: Print, stub: StubApi) -> None:
    space = "/apis/coordination.k8s.io/v1/namespaces/flagstaff-system/leases"
    renewed = {
        "flagstaff-controller": timestamp(now()),
        "flagstaff-controller-shard1": "2026-01-01T00:00:00Z",
    }
    for name, moment in renewed.items():
        meta = {"name": name, "namespace": "flagstaff-system", "labels": LEASE_LABELS}
        spec = {"holderIdentity": f"{name}-0", "renewTime": moment}
        stub.put(
            f"{space}/{name}",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec},
        )
    _, out, _ = run("check -o json", namespaced=False)
    found = {result["check"]: (result["result"], result["message"]) for result in json.loads(out)}
    assert found["leader"] == ("ok", "flagstaff-controller-0")
    assert found["leader by Lease flagstaff-controller-shard1"] == (
        "failed",
        "flagstaff-controller-shard1-0 has not renewed the Lease since 2026-01-01T00:00:00Z",
    )


def test_pod_without_a_log_does_not_hide_the_others(run: Print, stub: StubApi) -> None:
    for name in ("controller-1", "controller-2"):
        stub.put(*pod(name))
    stub.denied.add("controller-2")
    code, out, err = run("logs --since 1h30m")
    assert code == 1
    assert "controller-1" in out
    assert "flagstaff logs: controller-2: " in err


def test_pod_that_no_node_runs_has_no_log_yet(run: Print, stub: StubApi) -> None:
    stub.put(*pod("pending-1"))
    code, _, err = run("logs")
    assert (code, err) == (
        1,
        "flagstaff logs: pending-1: there is no log yet: a pod has one once a node runs it\n",
    )


def test_object_of_another_namespace_is_found_there(run: Print) -> None:
    code, _, err = run("describe set checkout -n default", namespaced=False)
    assert code == 1
    assert "there is no FlagSet checkout in namespace default; there is one in namespace shop: see -n" in err


@pytest.mark.parametrize("pods", [0, 1])
def test_logs_of_a_cluster_without_nodes_are_elsewhere(pods: int, run: Print, stub: StubApi) -> None:
    stub.nodes = []
    for number in range(pods):
        stub.put(*pod(f"pending-{number}"))
    code, _, err = run("logs")
    assert code == 1
    assert err.splitlines()[pods:] == [
        "flagstaff logs: the cluster has no nodes, so it runs no pods; read the logs of processes beside it "
        "where you started them"
    ]


@pytest.mark.parametrize(("nodes", "warned"), [([], True), ([{}], False), (None, False)])
def test_check_says_that_a_cluster_has_no_nodes(
    nodes: list[object] | None, warned: bool, run: Print, stub: StubApi
) -> None:
    stub.nodes = nodes
    admission = deployment("flagstaff-admission") | {"status": {}}
    stub.put(stub.path_of(admission), admission)
    _, out, _ = run("check -o json", namespaced=False)
    results = {result["check"]: result for result in json.loads(out)}
    assert results["flagstaff-admission"]["message"].startswith("0 of 1 replicas are ready")
    assert ("nodes" in results) is warned


def test_deletion_asks_unless_told_to_be_silent(run: Print, stub: StubApi) -> None:
    stub.deletes = True
    code, _, err = run("delete set/search")
    assert code == 2
    assert "write --silent to confirm" in err
    assert run("delete set/search -s")[:2] == (0, "FlagSet/search: deleted\n")
    assert not stub.get("/apis/flagstaff.dev/v1beta1/namespaces/shop/flagsets/search")


def test_version_prints_this_program_and_what_the_cluster_runs(run: Print, stub: StubApi) -> None:
    code, out, _ = run("version", namespaced=False)
    assert code == 0
    assert "flagstaff-controller: flagstaff:0.1.0" in out
    stub.refuse("reset")
    code, out, err = run("version", namespaced=False)
    assert (code, out.splitlines()[0].partition(":")[0]) == (3, "flagstaff")
    assert "--client asks no cluster" in err


def test_version_of_the_program_alone_needs_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client"]) == 0
    assert capsys.readouterr().out.startswith("flagstaff: flagstaff ")


def test_help_lists_every_verb_in_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(f"{title}:\n" in printed for title in VERB_GROUPS)
    assert all(f"  {verb} " in printed for verb in VERBS)


def test_misspelt_option_is_named_before_a_word_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["eval", "--contxt", "a=b"])
    assert "did you mean '--context'?" in capsys.readouterr().err


def test_table_of_a_kind_has_the_columns_of_kubectl(run: Print, stub: StubApi) -> None:
    override = {
        "kind": "FlagOverride",
        "metadata": {"name": "stop", "namespace": "shop", "annotations": {"flagstaff.dev/set-by": "ada"}},
        "spec": {"flagSetRef": {"name": "checkout"}, "flag": "pay", "variant": "off", "reason": "incident 7"},
        "status": {"state": "Active", **ready("True")},
    }  # fmt: skip
    stub.put("/apis/flagstaff.dev/v1beta1/namespaces/shop/flagoverrides/stop", override)
    heading, line = (" ".join(text.split()) for text in run("get overrides -o wide")[1].splitlines())
    assert heading == "NAME SET FLAG VARIANT REASON EXPIRES STATE BY READY STATUS"
    assert line == "stop checkout pay off incident 7 - Active ada True applied"


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        (".spec.name", ["a"]),
        (".spec.absent", []),
        (".spec.list[0].name", ["b"]),
        (".spec.list[*].name", ["b", "c"]),
        ('.spec.list[?(@.name=="c")].on', ["true"]),
        (r".spec.example\.com/x", ["y"]),
        (".spec.name.deeper", []),
        (".spec.list[7].name", []),
    ],
)
def test_paths_of_columns_are_read_as_kubectl_reads_them(path: str, texts: list[str]) -> None:
    spec = {"name": "a", "list": [{"name": "b"}, {"name": "c", "on": True}], "example.com/x": "y"}
    assert PrinterColumn("Column", path).texts({"spec": spec}) == texts


@pytest.mark.parametrize(("replicas", "shown"), [(2, "flagstaff:1"), (0, "flagstaff:1 (0 replicas)")])
def test_the_version_of_a_deployment_without_replicas_says_so(replicas: int, shown: str) -> None:
    template = {"spec": {"containers": [{"image": "flagstaff:1"}]}}
    assert running_text({"spec": {"replicas": replicas, "template": template}}) == shown
