"""What admission makes of workloads with flags, as a JSON patch, and of workloads that had some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controller.pods import installation
from controller.pods.carried_flags import (
    KINDS,
    WorkloadAuthor,
    carried_flags,
    is_run_of_cron_job,
    mark,
    record_in,
    unmark,
    write_remark,
)
from controller.pods.installation import PodRefused
from tests.worlds.objects import workload
from tests.worlds.pods import apply_patch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.pods.changes import ObjectPatch

ALICE = WorkloadAuthor("alice", "2026-01-01T00:00:00Z")
BOB = WorkloadAuthor("bob", "2026-02-02T00:00:00Z")
TEXT = '{"flags": {}}'
CARRIES = {installation.FLAGS: TEXT}


def carrying(
    kind: str = "Deployment", above: Mapping[str, str] = CARRIES, below: Any = None, **metadata: Any
) -> dict[str, Any]:
    """A workload with flags."""
    return workload(kind, above, below, **metadata)


def mark_workload(
    given: Mapping[str, Any], before: Mapping[str, Any] | None = None, by: WorkloadAuthor = ALICE
) -> ObjectPatch:
    carried = carried_flags(given)
    assert carried is not None
    changes = mark(given, before, carried, by)
    write_remark(changes, carried)
    assert apply_patch(given, changes.patch) == changes.after
    return changes


def unmark_workload(given: Mapping[str, Any], before: Mapping[str, Any]) -> ObjectPatch:
    changes = unmark(given, before)
    assert apply_patch(given, changes.patch) == changes.after
    return changes


def template_of(body: Mapping[str, Any]) -> dict[str, Any]:
    spec = body["spec"]["jobTemplate"]["spec"] if body["kind"] == "CronJob" else body["spec"]
    annotations: dict[str, Any] = spec["template"].get("metadata", {}).get("annotations", {})
    return annotations


@pytest.mark.parametrize("kind", KINDS)
def test_template_asks_and_workload_is_labelled(kind: str) -> None:
    after = mark_workload(carrying(kind)).after
    assert template_of(after) == {installation.ENABLED: "true", installation.DIRECT_SET: "checkout"}
    assert after["metadata"]["labels"] == {installation.DIRECT_SET: "true"}
    assert record_in(after) == {"by": "alice", "at": ALICE.at, "added": [installation.ENABLED]}
    remark = after["metadata"]["annotations"][installation.REMARKS]
    assert remark == "namespaced, scoped, refreshable; flags of its own in FeatureFlagConfiguration checkout"


def test_marked_workload_stays_as_it_is() -> None:
    after = mark_workload(carrying()).after
    assert mark_workload(after, after, BOB).patch == []


def test_whoever_applies_the_same_flags_again_is_not_recorded() -> None:
    before = mark_workload(carrying()).after
    after = mark_workload(carrying(labels={"team": "shop"}), before, BOB).after
    assert record_in(after) == record_in(before)
    assert template_of(after) == template_of(before)


def test_whoever_changes_the_flags_is_recorded() -> None:
    before = mark_workload(carrying()).after
    after = mark_workload(carrying(above={installation.FLAGS: '{"flags":{} }'}), before, BOB).after
    assert (record_in(after)["by"], record_in(after)["at"]) == ("bob", BOB.at)


def test_record_that_a_user_writes_is_replaced() -> None:
    forged = {**CARRIES, installation.APPLIED: '{"by":"root","at":"","added":[]}'}
    assert record_in(mark_workload(carrying(above=forged), by=BOB).after)["by"] == "bob"


def test_user_name_is_recorded_in_one_line() -> None:
    record = record_in(mark_workload(carrying(), by=WorkloadAuthor("a\nb" + "c" * 500, "")).after)
    assert record["by"].isprintable()
    assert len(record["by"]) == 253


def test_flags_of_the_template_are_found() -> None:
    given = workload(below=CARRIES)
    carried = carried_flags(given)
    assert carried is not None
    assert carried.where == "annotation openfeature.dev/flags of the pods' template"
    assert template_of(mark_workload(given).after)[installation.DIRECT_SET] == "checkout"


def test_flags_in_both_places_are_refused() -> None:
    with pytest.raises(PodRefused, match="is on the Deployment and on its pods' template; keep it on"):
        carried_flags(carrying(below=CARRIES))


def test_workload_without_a_name_is_refused() -> None:
    given = carrying("Job", name=None, generateName="migrate-")
    with pytest.raises(PodRefused, match=r"write metadata\.name"):
        carried_flags(given)


@pytest.mark.parametrize(
    "given",
    [
        workload(),
        {"kind": "Deployment", "metadata": {"annotations": []}, "spec": {"template": 3}},
        {"kind": "CronJob", "metadata": {}, "spec": {"jobTemplate": None}},
    ],
)
def test_workload_without_flags_carries_none(given: dict[str, Any]) -> None:
    assert carried_flags(given) is None


def test_enabled_that_is_false_stays_and_is_warned_of() -> None:
    changes = mark_workload(carrying(below={installation.ENABLED: "false"}))
    assert template_of(changes.after)[installation.ENABLED] == "false"
    assert "so the pods get no evaluator; remove it" in changes.warnings[0]


def test_template_of_a_job_that_is_stored_stays_and_is_warned_of() -> None:
    before = workload("Job", {})
    changes = mark_workload(carrying("Job"), before)
    assert template_of(changes.after) == {}
    assert "delete the Job and create it again" in changes.warnings[0]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Job"])
def test_removed_annotation_removes_what_was_added(kind: str) -> None:
    before = mark_workload(carrying(kind)).after
    above = {
        name: text for name, text in before["metadata"]["annotations"].items() if name != installation.FLAGS
    }
    given = workload(kind, above, template_of(before), labels=before["metadata"]["labels"])
    changes = unmark_workload(given, before)
    assert changes.after == workload(kind, {}, {}, labels={})
    assert "FeatureFlagConfiguration checkout is deleted" in changes.warnings[0]


def test_enabled_that_the_user_wrote_stays_when_the_flags_go() -> None:
    before = mark_workload(carrying(below={installation.ENABLED: "true"})).after
    changes = unmark_workload(workload(below=template_of(before)), before)
    assert template_of(changes.after) == {installation.ENABLED: "true"}


@pytest.mark.parametrize("annotation", installation.FOLLOWED)
def test_template_that_names_other_flags_still_asks_when_the_flags_go(annotation: str) -> None:
    before = mark_workload(carrying()).after
    given = workload(below={**template_of(before), annotation: "checkout-production"})
    changes = unmark_workload(given, before)
    assert template_of(changes.after) == {installation.ENABLED: "true", annotation: "checkout-production"}


def test_template_of_a_job_keeps_what_was_added_when_the_flags_go() -> None:
    before = mark_workload(carrying("Job")).after
    changes = unmark_workload(workload("Job", below=template_of(before)), before)
    assert template_of(changes.after) == template_of(before)


def test_run_of_a_cron_job_carries_a_copy() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u"}
    assert is_run_of_cron_job(carrying("Job", ownerReferences=[owner]))
    assert not is_run_of_cron_job(carrying("Job", ownerReferences=[{"kind": "Shop"}, 3]))


def owned_fields(operation: str, *path: str) -> dict[str, Any]:
    fields: Any = {f"f:{installation.FLAGS}": {}}
    for step in reversed((*path, "metadata", "annotations")):
        fields = {f"f:{step}": fields}
    return {"manager": "kubectl", "operation": operation, "fieldsV1": fields}


@pytest.mark.parametrize(
    ("given", "by_server"),
    [
        (carrying(managedFields=[owned_fields("Apply")]), True),
        (carrying(managedFields=[owned_fields("Update")]), False),
        (carrying(managedFields=[owned_fields("Apply", "spec", "template")]), False),
        (workload(below=CARRIES, managedFields=[owned_fields("Apply", "spec", "template")]), True),
        (carrying(managedFields=[3, {"operation": "Apply"}]), False),
        (carrying(), False),
    ],
)
def test_server_side_apply_is_known_by_its_fields(given: dict[str, Any], by_server: bool) -> None:
    carried = carried_flags(given)
    assert carried is not None
    assert carried.by_server is by_server
