"""A workload that carries flags: judged as it is applied, served to its pods, and followed as it changes."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.evaluator import evaluator
from tests.cluster import golden
from tests.cluster.admission import AdmissionProcess, run_installation
from tests.cluster.objects import Namespace
from tests.cluster.patience import within
from tests.cluster.test_injection import sidecar_of, started_as_a_kubelet_would
from tests.worlds.flags import flags
from tests.worlds.objects import configuration, flag_set, reader, workload

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.plane import Plane

FLAGS = "openfeature.dev/flags"
ENABLED = "openfeature.dev/enabled"
DIRECT_SET = "flagstaff.dev/direct-set"


@pytest.fixture(scope="module")
def installed(spare: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdmissionProcess]:
    folder, words = tmp_path_factory.mktemp("direct"), ("--evaluator-image", "example/evaluator:0.4.0")
    with run_installation(spare, folder, *words, "--direct-sets") as found:
        within(lambda: reaches_admission(spare))
        yield found.admission


def reaches_admission(plane: Plane) -> bool:
    """Whether the API server reaches admission."""
    given = json.dumps(workload(annotations={FLAGS: flags(banner="on")}))
    shown = plane.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", given=given, check=False)
    return DIRECT_SET in shown


@pytest.fixture
def shop(installed: AdmissionProcess, spare: Plane, spare_namespace: str) -> Namespace:
    assert installed.admission
    space = Namespace(spare, spare_namespace)
    within(lambda: space.get("serviceaccount", "default"))
    return space


def apply(space: Namespace, manifest: dict[str, Any], *words: str) -> str:
    return space.kubectl("apply", *words, "-f", "-", given=json.dumps(manifest), check=False)


def annotate(space: Namespace, text: str | None, kind: str = "Deployment") -> None:
    """Change the annotation of the workload alone."""
    space.patch(kind, {"metadata": {"annotations": {FLAGS: text}}}, "checkout")


def defaults(space: Namespace, name: str = "checkout") -> dict[str, str]:
    """The default variant of each flag of a FeatureFlagConfiguration; empty where there is none."""
    found = space.get("ffc", name)
    served = found["spec"]["flagSpec"]["flags"] if found else {}
    return {key: flag["defaultVariant"] for key, flag in served.items()}


def events(space: Namespace, reason: str) -> list[str]:
    return [event["message"] for event in space.all("event") if event["reason"] == reason]


def template_of(found: dict[str, Any]) -> dict[str, Any]:
    spec = found["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    annotations: dict[str, Any] = spec["template"]["metadata"].get("annotations", {})
    return annotations


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_flags_of_a_workload_become_a_configuration_of_its_name(shop: Namespace, kind: str) -> None:
    shown = apply(shop, workload(kind, annotations={FLAGS: flags(banner="on")}))
    found = shop.get(kind, "checkout")
    assert found, shown
    assert template_of(found) == {ENABLED: "true", DIRECT_SET: "checkout"}
    assert found["metadata"]["labels"][DIRECT_SET] == "true"
    made = shop.wait_ready("ffc", "checkout")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (kind, found["metadata"]["uid"])
    annotations = made["metadata"]["annotations"]
    record = json.loads(found["metadata"]["annotations"]["flagstaff.dev/direct-set-applied"])
    assert annotations["flagstaff.dev/author"] == record["by"] != ""
    assert annotations["flagstaff.dev/committed-at"] == record["at"]
    assert annotations["flagstaff.dev/revision"].startswith(f"{kind}/checkout@sha256:")
    assert int(annotations["flagstaff.dev/workload-generation"]) >= 1
    fields = made["metadata"]["managedFields"]
    managers = {entry["manager"] for entry in fields if "subresource" not in entry}
    assert managers == {"flagstaff-direct-sets"}


def test_running_pods_follow_the_annotation_of_their_workload(shop: Namespace, tmp_path: Path) -> None:
    shop.apply(*reader("default"))
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    (found,) = within(lambda: shop.all("pod"), lambda: json.dumps(shop.all("event"))[-3000:])
    remark = "namespaced, scoped, refreshable; flags of FeatureFlagConfiguration checkout; evaluator 0.4.0"
    assert found["metadata"]["annotations"]["openfeature.dev/operator-remarks"] == remark
    words, environ = started_as_a_kubelet_would(shop, found, tmp_path)
    with evaluator(*words, cwd=tmp_path, environ=environ, leading=()) as running:
        ports = running.next_event("listening")
        running.next_event("flags served")
        url = f"http://127.0.0.1:{ports['ofrep']}/ofrep/v1/evaluate/flags/banner"

        def answer() -> dict[str, Any]:
            request = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
            with urllib.request.urlopen(request) as response:
                body: dict[str, Any] = json.load(response)
            return body

        assert answer()["value"] is True
        annotate(shop, flags(banner="off"))
        within(lambda: answer()["value"] is False, lambda: json.dumps(answer()))
        assert answer()["metadata"]["flagstaff.dev/revision"].startswith("Deployment/checkout@sha256:")
        annotate(shop, None)
        shop.wait_gone("ffc", "checkout")
        # What is served is not taken away: the evaluator keeps the flags of the deleted object.
        assert answer()["value"] is False


def test_annotation_of_the_workload_restarts_no_pod(shop: Namespace) -> None:
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    before = within(lambda: shop.all("replicaset"))
    annotate(shop, flags(banner="off"))
    within(lambda: defaults(shop) == {"banner": "off"})
    shop.wait("deployment", is_observed, "checkout")
    after = shop.all("replicaset")
    assert [one["metadata"]["uid"] for one in after] == [one["metadata"]["uid"] for one in before]


def is_observed(found: dict[str, Any]) -> bool:
    """Whether the controller of Deployments has seen the newest state."""
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])


def test_annotation_of_the_template_is_a_change_of_the_template(shop: Namespace) -> None:
    apply(shop, workload(below={FLAGS: flags(banner="on")}))
    within(lambda: defaults(shop) == {"banner": "on"})
    within(lambda: len(shop.all("replicaset")) == 1)
    apply(shop, workload(below={FLAGS: flags(banner="off")}))
    within(lambda: defaults(shop) == {"banner": "off"})
    within(lambda: len(shop.all("replicaset")) == 2)


def test_runs_of_a_cron_job_follow_its_flags(shop: Namespace) -> None:
    apply(shop, workload("CronJob", below={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    shop.kubectl("create", "job", "run", "--from=cronjob/checkout")
    (found,) = within(lambda: shop.all("pod"), lambda: json.dumps(shop.all("event"))[-3000:])
    sources = next(word for word in sidecar_of(found)["args"] if word.startswith("--sources="))
    assert f'"selector":"{shop.name}/checkout"' in sources
    assert [made["metadata"]["name"] for made in shop.all("ffc")] == ["checkout"]


def test_flags_in_yaml_are_read(shop: Namespace) -> None:
    text = "flags:\n  banner: {state: ENABLED, variants: {a: 1, b: 2}, defaultVariant: b}\n"
    apply(shop, workload(annotations={FLAGS: text}))
    within(lambda: defaults(shop) == {"banner": "b"})


def large(size: int) -> str:
    """Flags of so many bytes."""
    text = flags(banner="on")
    return text + " " * (size - len(text))


def test_refusals_are_as_they_were_agreed(shop: Namespace) -> None:
    shop.apply(
        configuration("by-hand", flagSpec=json.loads(flags(banner="on"))), flag_set(name="of-flag-set")
    )
    apply(shop, workload("StatefulSet", name="twice", annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "twice")
    text = json.dumps(json.loads(flags(banner="on")), indent=2)
    mistaken = text.replace('"defaultVariant": "on"', '"defaultVariant": "onn"')
    without = '{"flags": {"banner": {"state": "ENABLED"}}}'
    both = workload(annotations={FLAGS: text}, below={FLAGS: text})
    cases = {
        "broken JSON": workload(annotations={FLAGS: text[:-2]}),
        "a variant that is not there": workload(annotations={FLAGS: mistaken}),
        "a flag without variants": workload(below={FLAGS: without}),
        "100 KiB": workload(annotations={FLAGS: large(100 * 1024)}),
        "the annotation in both places": both,
        "the name of a FeatureFlagConfiguration": workload("Job", name="by-hand", annotations={FLAGS: text}),
        "the name of a FlagSet": workload("CronJob", name="of-flag-set", annotations={FLAGS: text}),
        "the name of another workload with flags": workload(
            "DaemonSet", name="twice", annotations={FLAGS: text}
        ),
    }

    def show() -> str:
        shown = (f"# {name}\n{apply(shop, manifest)}" for name, manifest in cases.items())
        return golden.mask("".join(shown), shop.name)

    golden.check("direct-sets", show)
    assert not shop.all("deployment")


def test_128_kib_are_taken_from_server_side_apply(shop: Namespace) -> None:
    manifest = workload(annotations={FLAGS: large(100 * 1024)})
    apply(shop, manifest, "--server-side")
    within(lambda: defaults(shop) == {"banner": "on"})
    manifest["metadata"]["annotations"][FLAGS] = large(129 * 1024)
    assert "more than 131072; keep the flags in a FlagSet" in apply(shop, manifest, "--server-side")


def test_dry_run_writes_nothing(shop: Namespace) -> None:
    shown = apply(shop, workload(annotations={FLAGS: flags(banner="on")}), "--dry-run=server", "-o", "json")
    assert template_of(json.loads(shown))[DIRECT_SET] == "checkout"
    apply(shop, workload(name="other", annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "other")
    assert [made["metadata"]["name"] for made in shop.all("ffc")] == ["other"]


def test_removed_annotation_removes_the_flags_and_what_was_added(shop: Namespace) -> None:
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    shown = apply(shop, workload())
    assert "Warning: Deployment checkout no longer carries flags" in shown
    shop.wait_gone("ffc", "checkout")
    found = shop.get("deployment", "checkout")
    assert template_of(found) == {}
    assert DIRECT_SET not in found["metadata"].get("labels", {})
    within(lambda: events(shop, "FlagsRemoved"))


def test_flags_go_with_their_workload_unless_its_user_keeps_them(shop: Namespace) -> None:
    for name in ("checkout", "kept"):
        apply(shop, workload(name=name, annotations={FLAGS: flags(banner="on")}))
        shop.wait_ready("ffc", name)
    shop.kubectl("delete", "deployment", "checkout")
    # Before the garbage collector follows a new kind, it would take the flags of `kept` for those of nobody.
    shop.wait_gone("ffc", "checkout")
    shop.kubectl("delete", "deployment", "kept", "--cascade=orphan")
    within(lambda: "ownerReferences" not in shop.get("ffc", "kept")["metadata"])
    apply(shop, workload(name="kept", annotations={FLAGS: flags(banner="off")}))
    within(lambda: defaults(shop, "kept") == {"banner": "off"})
    assert shop.get("ffc", "kept")["metadata"]["ownerReferences"]


@pytest.mark.long
def test_workload_that_is_deleted_while_its_flags_are_written_leaves_none(shop: Namespace) -> None:
    manifest = workload(annotations={FLAGS: flags(banner="on")})
    for _ in range(5):
        apply(shop, manifest)
        shop.kubectl("delete", "deployment", "checkout", "--wait=false")
        shop.wait_gone("deployment", "checkout")
    shop.wait_gone("ffc", "checkout")
    apply(shop, manifest)
    shop.wait_ready("ffc", "checkout")


def test_of_two_workloads_of_one_name_one_has_its_flags_and_the_other_is_told(shop: Namespace) -> None:
    pair = [
        workload(kind, annotations={FLAGS: flags(banner=default)})
        for kind, default in (("Deployment", "on"), ("StatefulSet", "off"))
    ]
    refusal = apply(shop, {"apiVersion": "v1", "kind": "List", "items": pair})
    made = shop.wait_ready("ffc", "checkout")
    (owner,) = made["metadata"]["ownerReferences"]
    why = "are served under its name, which"
    within(lambda: why in refusal or any(why in message for message in events(shop, "FlagsNotWritten")))
    assert defaults(shop) == {"banner": "on" if owner["kind"] == "Deployment" else "off"}


def test_flags_that_others_change_are_restored(shop: Namespace) -> None:
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    shop.patch("ffc", {"spec": {"flagSpec": json.loads(flags(banner="off"))}}, "checkout")
    within(lambda: defaults(shop) == {"banner": "on"})
    uid = shop.get("ffc", "checkout")["metadata"]["uid"]
    shop.delete("ffc", "checkout")
    shop.wait("ffc", lambda found: found["metadata"]["uid"] != uid, "checkout")


def test_configuration_that_stands_in_the_way_is_not_overwritten(shop: Namespace) -> None:
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    labels = {DIRECT_SET: None}
    shop.patch("ffc", {"metadata": {"labels": labels, "ownerReferences": None}}, "checkout")
    within(lambda: events(shop, "FlagsNotWritten"))
    annotate(shop, flags(banner="on"))
    assert "which another FeatureFlagConfiguration has already" in events(shop, "FlagsNotWritten")[0]
    shop.delete("ffc", "checkout")
    shop.wait("ffc", lambda found: found["metadata"].get("ownerReferences"), "checkout")


def test_the_label_of_a_direct_set_gives_no_workload_what_another_wrote(shop: Namespace) -> None:
    mine = configuration("checkout", flagSpec=json.loads(flags(mine="on")))
    mine["metadata"]["labels"] = {DIRECT_SET: "Deployment"}
    shop.kubectl("create", "-f", "-", given=json.dumps(mine))
    assert "has already" in apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    apply(shop, workload())
    apply(shop, workload(name="next", annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "next")
    assert defaults(shop) == {"mine": "on"}


def test_what_is_applied_or_replaced_again_changes_nothing(shop: Namespace) -> None:
    manifest = workload(annotations={FLAGS: flags(banner="on")})
    words = ("--server-side", "--field-manager=argocd-controller")
    apply(shop, manifest, *words)
    shop.wait_ready("ffc", "checkout")
    shop.wait("deployment", is_observed, "checkout")
    within(lambda: len(shop.all("replicaset")) == 1)
    before = shop.get("deployment", "checkout")
    for _ in range(3):
        apply(shop, manifest, *words)
    after = shop.get("deployment", "checkout")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    shop.kubectl("replace", "-f", "-", given=json.dumps(manifest))
    replaced = shop.get("deployment", "checkout")
    # A replacement leaves out what was added: it is added again, and no pod is restarted.
    assert replaced["spec"]["template"] == before["spec"]["template"]
    assert replaced["metadata"]["labels"] == before["metadata"]["labels"]
    record = "flagstaff.dev/direct-set-applied"
    assert replaced["metadata"]["annotations"][record] == before["metadata"]["annotations"][record]


def test_workload_moves_to_a_flag_set_in_one_change(shop: Namespace) -> None:
    shop.apply(configuration("base", flagSpec=json.loads(flags(base="on"))))
    shop.wait_ready("ffc", "base")
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    follows = {ENABLED: "true", "flagstaff.dev/flagset": "base"}
    apply(shop, workload(below=follows))
    assert template_of(shop.get("deployment", "checkout")) == follows
    shop.wait_gone("ffc", "checkout")


def test_other_workloads_are_never_sent_to_us(shop: Namespace, installed: AdmissionProcess) -> None:
    def reviews() -> list[str]:
        kinds = ('kind="Deployment"', 'kind="Job"')
        return [line for line in installed.metrics().splitlines() if any(kind in line for kind in kinds)]

    before = reviews()
    apply(shop, workload())
    apply(shop, workload("Job", name="migrate"))
    shop.kubectl("scale", "deployment/checkout", "--replicas=0")
    assert reviews() == before


def test_workload_that_is_refused_later_can_still_be_deleted_and_scaled(shop: Namespace) -> None:
    apply(shop, workload(annotations={FLAGS: flags(banner="on")}))
    shop.wait_ready("ffc", "checkout")
    shop.kubectl("scale", "deployment/checkout", "--replicas=2")
    shop.kubectl("delete", "deployment", "checkout", "--cascade=foreground")
    shop.wait_gone("deployment", "checkout")


def test_sidecar_of_both_follows_a_named_set_and_its_own(shop: Namespace) -> None:
    shop.apply(configuration("base", flagSpec=json.loads(flags(base="on"))))
    shop.wait_ready("ffc", "base")
    manifest = workload(annotations={FLAGS: flags(banner="on")}, below={"flagstaff.dev/flagset": "base"})
    apply(shop, manifest)
    (found,) = within(lambda: shop.all("pod"), lambda: json.dumps(shop.all("event"))[-3000:])
    sources = next(word for word in sidecar_of(found)["args"] if word.startswith("--sources="))
    selectors = [source["selector"] for source in json.loads(sources.removeprefix("--sources="))]
    # The last one wins for each flag.
    assert selectors == [f"{shop.name}/base", f"{shop.name}/checkout"]
