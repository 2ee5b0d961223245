"""What admission and `flagstaff inject` make of workloads with flags, or that had some."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.pods import installation
from controller.pods.carried_flags import (
    KINDS,
    MOST_APPLIED,
    MOST_BYTES,
    WorkloadAuthor,
    carried_flags,
    is_run_of_cron_job,
    mark,
    mark_manifest,
    read_flags,
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


WHERE = "annotation openfeature.dev/flags"
YAML = """\
flags:
  banner:
    state: ENABLED
    variants:
      on: true
      off: false
    defaultVariant: on
"""
JSON = json.dumps(
    {"flags": {"banner": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}}, indent=2
)


def refusal(text: str, most: int = MOST_BYTES) -> str:
    with pytest.raises(PodRefused) as refused:
        read_flags(text, WHERE, most)
    return str(refused.value)


@pytest.mark.parametrize("text", [JSON, f"\n {JSON}", YAML, "{flags: {}}", '{"flags": {}}'])
def test_json_and_yaml_are_read(text: str) -> None:
    flags, warnings = read_flags(text, WHERE)
    assert warnings == ()
    assert ("banner" in flags.flags) == ("banner" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            JSON.replace('"on"\n', '"of"\n'),
            f'{WHERE}: line 8: $.flags.banner.defaultVariant: `variants` has no "of"',
        ),
        (JSON.removesuffix("}"), f"{WHERE}: line 1: `{{` is opened here and not closed"),
        (YAML.replace("variants:", "variant:"), f"{WHERE}: line 2: $.flags.banner: "),
        ("", f"{WHERE}: the document is empty"),
        ("[]", f"{WHERE}: line 1: "),
        ("flags: [", f"{WHERE}: line 1: "),
        (YAML.replace("ENABLED", "enabled"), f"{WHERE}: line 3: $.flags.banner.state: "),
    ],
)
def test_mistake_is_refused_with_its_line_and_path(text: str, message: str) -> None:
    assert refusal(text).startswith(message)
    assert refusal(text).endswith("correct it and apply again")


def test_flag_without_variants_is_refused() -> None:
    assert "$.flags.banner" in refusal('{"flags": {"banner": {"state": "ENABLED"}}}')


def test_control_characters_of_the_text_are_not_repeated() -> None:
    assert refusal('{"flags": {"a\\u001b[31m\\n": {}}}').isprintable()


def test_more_than_64_kib_are_pointed_to_server_side_apply_and_a_flag_set() -> None:
    message = refusal("#" * (MOST_BYTES + 1))
    assert f"has {MOST_BYTES + 1} bytes, more than {MOST_BYTES}" in message
    assert "kubectl apply --server-side, which allows 128 KiB" in message
    assert "FlagSet" in message


@pytest.mark.parametrize("most", [MOST_BYTES, MOST_APPLIED])
def test_more_than_128_kib_are_pointed_to_a_flag_set_alone(most: int) -> None:
    message = refusal("#" * (MOST_APPLIED + 1), most)
    assert "--server-side" not in message
    assert "keep the flags in a FlagSet and name it with flagstaff.dev/flagset" in message


def test_problem_that_refuses_nothing_is_a_warning() -> None:
    _, warnings = read_flags(JSON.replace('"flags"', '"flagz": 1, "flags"', 1), WHERE)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{WHERE}: line 2: ")


def test_manifest_with_flags_is_marked() -> None:
    given = workload(annotations={installation.FLAGS: '{"flags": {}}'})
    (made,) = mark_manifest({"kind": "List", "items": [given]})["items"]
    assert made["metadata"]["labels"] == {installation.DIRECT_SET: "true"}
    assert made["spec"]["template"]["metadata"]["annotations"] == {
        installation.ENABLED: "true",
        installation.DIRECT_SET: "checkout",
    }
    assert mark_manifest(made) == made


@pytest.mark.parametrize("manifest", [workload(), {"kind": "Service"}, {"kind": ["List"]}, 3, None])
def test_any_other_manifest_stays_as_it_is(manifest: object) -> None:
    assert mark_manifest(manifest) == manifest


def test_refusal_names_the_workload() -> None:
    with pytest.raises(
        PodRefused, match=r"^Deployment checkout: annotation openfeature\.dev/flags: line 1: "
    ):
        mark_manifest(workload(annotations={installation.FLAGS: "{"}))
