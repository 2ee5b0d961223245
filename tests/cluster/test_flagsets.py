"""What a FlagSet writes, on a real API server: shards, drift, conflicts, and nothing written twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.worlds.flags import flags
from tests.worlds.objects import condition, configuration, flag_set

if TYPE_CHECKING:
    from tests.cluster.spines import Spine

LABEL = "flagstaff.dev/flagset"
ODD: dict[str, Any] = {
    "numbers": [1e16, 1e21, 1e-7, 0.1, 1.0, -0.0, 2**53 + 1, 10**30],
    "nothing": None,
    "within": {"nothing": None, "empty": {}, "none": []},
    "text": 'ünï "quoted" \u2028 </script>',
}
"""What JSON's many writers spell in different ways."""


def many(count: int, default: str = "on") -> str:
    shape = {"state": "ENABLED", "variants": {"on": "x" * 200, "off": ""}}
    made = {f"flag-{number:05}": {**shape, "defaultVariant": "off"} for number in range(count)}
    made["flag-00000"]["defaultVariant"] = default
    return json.dumps({"flags": made})


def guarded_manifest(word: str) -> str:
    return f"""
apiVersion: flagstaff.dev/v1beta1
kind: FlagSet
metadata: {{name: flags}}
spec:
  sourceRef: {{kind: FlagSource, name: flags}}
  pruneGuard: {word}
"""


GUARDED = guarded_manifest("On")


def owned_configuration(**spec: Any) -> dict[str, Any]:
    return configuration(**spec) | {"metadata": {"name": "flags", "labels": {LABEL: "flags"}}}


@pytest.mark.long
def test_ten_thousand_flags_are_delivered_in_shards_and_a_change_moves_few(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=many(10_000)))
    found = spine.wait("ffc", lambda each: each["status"].get("flags") == 10_000)
    before = {each["name"] for each in found["spec"]["shards"]}
    assert spine.wait_ready("flagset")["status"]["target"][0]["shards"] == len(before)
    spine.wait_applied(spine.push(flags__json=many(10_000, default="off")))
    after = {each["name"] for each in spine.get("ffc")["spec"]["shards"]}
    assert 0 < len(after - before) <= 3
    # A reader that still has the old list finds all of it.
    assert {each["metadata"]["name"] for each in spine.all("flagshard")} == before | after


def test_a_commit_that_removes_most_flags_waits_until_somebody_accepts_it(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=many(20)))
    spine.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=GUARDED)
    commit = spine.push(flags__json=many(2))
    held = spine.wait("flagset", lambda each: condition(each, "Ready").get("reason") == "PruneGuard")
    assert held["status"]["pendingRemovals"] == [f"flag-{number:05}" for number in range(2, 20)]
    assert len(spine.get("ffc")["spec"]["flagSpec"]["flags"]) == 20
    # What the message says, word for word.
    command = condition(held, "Stalled")["message"].partition("If the flags are to go: kubectl ")[2]
    spine.plane.kubectl(*command.split())
    found = spine.wait_applied(commit)
    assert len(spine.get("ffc")["spec"]["flagSpec"]["flags"]) == 2
    assert "pendingRemovals" not in found["status"]


def test_the_prune_guard_is_switched_off_by_off_or_false(spine: Spine) -> None:
    # kubectl reads YAML 1.1, in which Off is a boolean.
    for word in ("Off", "false"):
        spine.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=guarded_manifest(word))
        assert spine.get("flagset")["spec"]["pruneGuard"] is False


@pytest.mark.long
def test_an_edited_and_a_deleted_shard_come_back(spine: Spine) -> None:
    spine.wait_applied(spine.push(flags__json=many(5_000)))
    shards = spine.get("ffc")["spec"]["shards"]
    edited, deleted = shards[1]["name"], shards[2]["name"]
    good = spine.get("flagshard", edited)["spec"]
    spine.patch("flagshard", {"spec": {"flagSpec": {"flags": {"more": {}}}}}, edited)
    spine.wait("flagshard", lambda each: each["spec"] == good, edited)
    spine.delete("flagshard", deleted)
    spine.wait("flagshard", lambda each: each["spec"]["digest"] == shards[2]["digest"], deleted)
    spine.wait_ready("ffc")


def test_what_json_spells_in_many_ways_is_written_once(spine: Spine) -> None:
    flag = {"state": "ENABLED", "variants": {"v": ODD}, "defaultVariant": "v", "targeting": {}}
    spine.wait_applied(spine.push(flags__json=json.dumps({"flags": {"odd": flag}})))
    before = spine.wait_ready("ffc")
    spine.poke_and_wait("flagset")
    assert spine.get("ffc")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert [each for each in spine.events() if each["reason"] == "DriftCorrected"] == []


def test_a_label_that_is_taken_away_comes_back(spine: Spine) -> None:
    spine.wait_ready("flagset")
    spine.patch("ffc", {"metadata": {"labels": {LABEL: None, "team": "shop"}}})
    found = spine.wait("ffc", lambda each: LABEL in each["metadata"]["labels"])
    assert found["metadata"]["labels"]["team"] == "shop"


def test_somebody_else_s_object_is_not_taken_until_it_is_handed_over(spine: Spine) -> None:
    mine = configuration("mine", flagSpec=json.loads(flags(mine="on")))
    spine.kubectl("create", "-f", "-", given=json.dumps(mine))
    spine.apply(flag_set(name="mine"))
    refused = spine.wait_reason("flagset", "OwnershipConflict", "mine")
    assert "kubectl-create" in condition(refused, "Ready")["message"]
    assert spine.served_variants("mine") == {"mine": "on"}
    spine.kubectl("label", "ffc", "mine", f"{LABEL}=mine")
    spine.wait_ready("flagset", "mine")
    assert spine.served_variants("mine") == {"banner": "on"}


def test_the_label_of_a_flag_set_on_an_object_written_by_hand_has_it_neither_changed_nor_deleted(
    spine: Spine,
) -> None:
    spine.wait_ready("flagset")
    mine = configuration("mine", flagSpec=json.loads(flags(mine="on")))
    mine["metadata"]["labels"] = {LABEL: "flags"}
    spine.kubectl("create", "-f", "-", given=json.dumps(mine))
    before = spine.wait_ready("ffc", "mine")
    spine.wait_applied(spine.push(flags__json=flags(banner="off")))
    after = spine.get("ffc", "mine")
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert spine.served_variants("mine") == {"mine": "on"}
    spine.delete("flagset")
    spine.wait_gone("flagset")
    assert spine.served_variants("mine") == {"mine": "on"}


def test_an_object_that_another_applies_is_a_conflict_that_names_it(spine: Spine) -> None:
    spine.wait_ready("flagset")
    theirs = json.dumps(owned_configuration(flagSpec=json.loads(flags(theirs="on"))))
    arguments = ("apply", "--server-side", "--force-conflicts", "--field-manager=argocd", "-f", "-")
    spine.kubectl(*arguments, given=theirs)
    refused = spine.wait_reason("flagset", "OwnershipConflict")
    assert "argocd" in condition(refused, "Ready")["message"]
    assert spine.served_variants() == {"theirs": "on"}


def test_without_prune_what_was_written_outlives_its_flag_set(spine: Spine) -> None:
    spine.patch("flagset", {"spec": {"prune": False}})
    spine.wait("ffc", lambda each: "ownerReferences" not in each["metadata"])
    spine.delete("flagset")
    spine.wait_gone("flagset")
    assert spine.served_variants() == {"banner": "on"}


def test_a_name_that_is_no_label_is_refused_at_once(spine: Spine) -> None:
    long = json.dumps(flag_set(name="x" * 64))
    spine.kubectl("create", "-f", "-", given=long, check=False)
    assert spine.get("flagset", "x" * 64) == {}
