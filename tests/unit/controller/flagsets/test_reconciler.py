from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.flagset import KIND, SOURCE_API, manager_of
from controller.api.meta import ObjectKey, Resource
from controller.flagsets.compose import ProvenanceDetail
from controller.flagsets.stage import FLAG_SETS
from controller.runtime.cache import Change
from controller.runtime.secret_texts import Binding, SecretContent
from controller.runtime.setbacks import Failed, Stalled, Waiting
from controller.runtime.watches import keys_to_wake
from tests.statuses import find
from tests.worlds.flagsets import BROKEN, CONFIGURATION, ODD, World, document, flag
from tests.worlds.objects import NAMESPACE
from tests.worlds.stages import RecordingCluster, Turn, body_of

APPLY = f"apply {CONFIGURATION}/checkout"
DELETE = f"delete {CONFIGURATION}/checkout"
HELD_FROM = "flagstaff.dev/held-from"
REVISION = "flagstaff.dev/revision"


@pytest.fixture
async def world() -> World:
    """A FlagSet whose first revision, with the flags a and b, is applied."""
    made = World()
    made.commit("r1", document(a=flag(), b=flag()))
    made.flag_set()
    first = await made.look()
    assert first.writes == [APPLY]
    return made


async def test_a_first_revision_is_applied_and_reported() -> None:
    world = World()
    world.commit("r1", document(a=flag(), b=flag()))
    world.flag_set()
    seen = await world.look()
    assert seen.ready == ("True", "Succeeded", "Applied revision: main@sha1:r1")
    assert seen.said == ['Applied: main@sha1:r1 by Ada "Commit r1": 2 added: a, b']
    status = {key: seen.status[key] for key in seen.status if key not in {"conditions", "history"}}
    assert status == {
        "observedGeneration": 1, "lastAttemptedRevision": "main@sha1:r1",
        "lastAppliedRevision": "main@sha1:r1", "lastGoodRevision": "main@sha1:r1",
        "digest": world.document()["metadata"]["flagstaff.dev/digest"], "flagSetId": "shop/checkout",
        "bucketing": "v2", "flags": 2, "heldFlags": 0, "held": [], "problemCount": 0, "problems": [],
        "target": [{"kind": CONFIGURATION, "name": "checkout"}],
    }  # fmt: skip


async def test_the_history_names_author_subject_times_and_what_changed(world: World) -> None:
    world.commit("r2", document(a=flag("on"), c=flag()))
    seen = await world.look()
    assert [each["revision"] for each in seen.status["history"]] == ["main@sha1:r2", "main@sha1:r1"]
    assert seen.status["history"][0] == {
        "revision": "main@sha1:r2",
        "digest": seen.status["digest"],
        "author": "Ada <ada@example.com>",
        "subject": "Commit r2",
        "committedAt": "2026-01-02T03:00:00Z",
        "appliedAt": "2026-01-02T03:04:07Z",
        "changes": "1 added, 1 changed, 1 removed: a, b, c",
    }


async def test_what_is_written_carries_label_owner_provenance_and_identity(world: World) -> None:
    made = world.cluster.the(CONFIGURATION, "checkout")
    digest = world.cluster.the(KIND, "checkout").status["digest"]
    annotations = {
        "flagstaff.dev/revision": "main@sha1:r1",
        "flagstaff.dev/digest": digest,
        "flagstaff.dev/author": "Ada <ada@example.com>",
        "flagstaff.dev/committed-at": "2026-01-02T03:00:00Z",
    }
    assert made.annotations == annotations
    assert made.spec["flagSpec"]["metadata"] == annotations | {"flagSetId": "shop/checkout"}
    assert made.labels == {"flagstaff.dev/flagset": "checkout"}
    owner = world.cluster.the(KIND, "checkout")
    assert [(each["uid"], each["controller"]) for each in made.owners] == [(owner.uid, True)]
    assert world.cluster.managers == {"flagstaff-flagset/shop/checkout"}


async def test_looking_again_writes_nothing_and_reads_nothing(world: World) -> None:
    world.reads.clear()
    seen = await world.look(after=600)
    assert (seen.writes, seen.status_written, seen.said, world.reads) == ([], False, [], [])


async def test_a_restart_writes_nothing(world: World) -> None:
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.status_written, seen.said) == ([], False, [])


async def test_a_restart_with_held_flags_writes_nothing(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    await world.look()
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.status_written, seen.said) == ([], False, [])
    assert world.defaults() == {"a": "off", "b": "on"}


async def test_a_commit_that_changes_no_flag_writes_no_flags(world: World) -> None:
    before = world.cluster.the(CONFIGURATION, "checkout")
    world.commit("r2", document(b=flag(), a=flag()), README__md="changed")
    seen = await world.look()
    assert (seen.writes, seen.said) == ([], [])
    assert world.cluster.the(CONFIGURATION, "checkout") == before
    assert seen.status["lastAppliedRevision"] == "main@sha1:r2"
    assert seen.status["history"][0]["changes"] == "no flags changed"
    assert seen.message == "Applied revision: main@sha1:r2"


async def test_a_force_push_to_other_content_is_applied_as_any_revision(world: World) -> None:
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.commit("r1", document(a=flag(), b=flag()))
    seen = await world.look()
    assert (seen.writes, world.defaults()["a"]) == ([APPLY], "off")
    revisions = [each["revision"] for each in seen.status["history"]]
    assert revisions == ["main@sha1:r1", "main@sha1:r2", "main@sha1:r1"]


async def test_an_empty_flag_set_is_a_flag_set(world: World) -> None:
    world.flag_set(pruneGuard=False)
    world.commit("r2", document())
    seen = await world.look()
    assert (seen.ready[0], seen.status["flags"], world.document()["flags"]) == ("True", 0, {})


# -- files that the source could not deliver -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("symlink, not followed", "replace it with a regular file"),
        ("too large, 20 bytes of 10 that one file may have", "split it"),
    ],
)
async def test_a_definition_that_was_not_read_holds_the_set_with_its_line_in_status(
    world: World, reason: str, advice: str
) -> None:
    skipped = json.dumps([f"more.json: {reason}"])
    world.commit("r2", document(a=flag("on")), **{".flagstaff-skipped__json": skipped})
    seen = await world.look()
    assert (seen.reason, world.defaults()) == ("BuildFailed", {"a": "off", "b": "off"})
    assert seen.status["problems"] == [
        {"severity": "error", "file": "more.json", "message": f"{reason}; {advice}"}
    ]


# -- authors -------------------------------------------------------------------------------------------------


async def test_with_provenance_commit_no_author_is_written_anywhere() -> None:
    world = World(detail=ProvenanceDetail.COMMIT)
    world.commit("r1", document(a=flag()))
    world.flag_set()
    seen = await world.look()
    assert "Ada" not in json.dumps([seen.status, seen.said])
    assert "Ada" not in json.dumps(body_of(world.cluster.the(CONFIGURATION, "checkout")))
    assert "r1" in json.dumps(seen.status)


async def test_switching_to_provenance_commit_removes_the_author_from_what_is_served(world: World) -> None:
    assert "Ada" in json.dumps(world.document())
    world.detail = ProvenanceDetail.COMMIT
    world.restart()
    seen = await world.look()
    assert seen.writes == [APPLY]
    assert "Ada" not in json.dumps(world.document())


# -- sources that bring nothing new --------------------------------------------------------------------------


async def test_a_source_that_fails_or_is_suspended_shows_on_the_flag_set(world: World) -> None:
    def concern(seen: Turn) -> tuple[str, str] | None:
        found = find(seen.status, "SourceReady")
        return None if found is None else (found["reason"], found["message"])

    good = dict(world.cluster.the("FlagSource", "flags").status)
    failing = {"type": "Ready", "status": "False", "reason": "GitOperationFailed", "message": "no route"}
    world.source("FlagSource", good | {"conditions": [failing]})
    seen = await world.look()
    assert concern(seen) == ("SourceFailed", "FlagSource flags is not ready: no route")
    assert seen.ready[0] == "True"
    assert seen.said == ["SourceStale: FlagSource flags is not ready: no route; main@sha1:r1 stays served"]
    other = {**failing, "message": "no route, try 2"}
    world.source("FlagSource", good | {"conditions": [other]})
    assert (await world.look()).said == []
    world.source("FlagSource", good, suspend=True)
    seen = await world.look()
    assert concern(seen) == (
        "SourceSuspended", "FlagSource flags is suspended; nothing new is read from it"
    )  # fmt: skip
    assert [each.partition(":")[0] for each in seen.said] == ["SourceStale"]
    world.source("FlagSource", good)
    seen = await world.look()
    assert concern(seen) is None
    assert seen.said == ["SourceRecovered: the source is not stale any more"]


async def test_another_object_with_the_same_flag_set_id_shows_on_the_flag_set(world: World) -> None:
    written = world.cluster.the(CONFIGURATION, "checkout")
    taken = {"type": "NameConflict", "status": "True", "reason": "FlagSetIdTaken", "message": "not served"}
    world.cluster.put(body_of(written) | {"status": {"conditions": [taken]}})
    seen = await world.look()
    found = find(seen.status, "NameConflict")
    assert found is not None
    assert (found["reason"], found["message"]) == (
        "FlagSetIdTaken", "FeatureFlagConfiguration checkout: not served",
    )  # fmt: skip


async def test_an_override_of_the_written_object_is_a_condition_and_events_of_the_flag_set(
    world: World,
) -> None:
    written = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    active = {"type": "OverrideActive", "status": "True", "reason": "FlagsOverridden", "message": "a is off"}
    world.cluster.put(written | {"status": {"conditions": [active]}})
    overridden = await world.look()
    condition = find(overridden.status, "OverrideActive")
    assert condition is not None
    assert (condition["reason"], condition["message"]) == ("FlagsOverridden", "a is off")
    assert overridden.said == ["OverrideActive: a is off"]
    world.cluster.put(written | {"status": {}})
    ended = await world.look()
    assert find(ended.status, "OverrideActive") is None
    assert ended.said == ["OverrideEnded: not in force any more: a is off"]


async def test_an_image_s_annotations_give_author_commit_and_time() -> None:
    world = World()
    world.commit("r1", document(a=flag()), kind="OCIRepository")
    found = world.cluster.the("OCIRepository", "flags")
    annotations = {
        "org.opencontainers.image.revision": "main@sha1:abc",
        "org.opencontainers.image.source": "https://git.example/shop/flags",
        "org.opencontainers.image.created": "2026-01-02T00:00:00Z",
        "org.opencontainers.image.authors": "Ada",
    }
    world.source("OCIRepository", {"artifact": {**found.status["artifact"], "metadata": annotations}})
    world.flag_set(sourceRef={"kind": "OCIRepository", "name": "flags"})
    seen = await world.look()
    entry = seen.status["history"][0]
    assert (entry["author"], entry["committedAt"]) == ("Ada", "2026-01-02T00:00:00Z")
    assert entry["origin"] == "main@sha1:abc of https://git.example/shop/flags"
    assert world.document()["metadata"]["flagstaff.dev/author"] == "Ada"


async def test_the_signer_of_a_revision_is_named_wherever_its_flags_are() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    artifact = world.cluster.the("FlagSource", "flags").status["artifact"]
    metadata = artifact["metadata"] | {"flagstaff.dev/verified-by": "Bob (SSH SHA256:x)"}
    world.source("FlagSource", {"artifact": artifact | {"metadata": metadata}})
    world.flag_set()
    seen = await world.look()
    assert seen.status["history"][0]["verifiedBy"] == "Bob (SSH SHA256:x)"
    assert ", signed by Bob (SSH SHA256:x): " in json.dumps(seen.said)
    assert world.document()["metadata"]["flagstaff.dev/verified-by"] == "Bob (SSH SHA256:x)"
    written = world.cluster.the(CONFIGURATION, "checkout")
    assert written.annotations["flagstaff.dev/verified-by"] == "Bob (SSH SHA256:x)"
    world.detail = ProvenanceDetail.COMMIT
    world.restart()
    await world.look()
    assert "Bob" not in json.dumps(world.document())


async def test_an_image_s_annotations_give_no_signer() -> None:
    world = World()
    world.commit("r1", document(a=flag()), kind="OCIRepository")
    artifact = world.cluster.the("OCIRepository", "flags").status["artifact"]
    world.source(
        "OCIRepository", {"artifact": artifact | {"metadata": {"flagstaff.dev/verified-by": "the boss"}}}
    )
    world.flag_set(sourceRef={"kind": "OCIRepository", "name": "flags"})
    seen = await world.look()
    assert "the boss" not in json.dumps([seen.status, seen.said, world.document()])


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("FlagSource", "push a correction, or revert the commit"),
        ("GitRepository", "push a correction, or revert the commit"),
        ("OCIRepository", "push a corrected artifact, or move the tag back"),
        ("Bucket", "upload corrected files"),
        ("ExternalArtifact", "publish a corrected artifact"),
    ],
)
async def test_the_advice_about_a_bad_revision_fits_its_source(kind: str, advice: str) -> None:
    world = World()
    world.commit("r1", "{", kind=kind)
    world.flag_set(sourceRef={"kind": kind, "name": "flags"})
    assert (await world.look()).message.endswith(f"; {advice}")


async def test_what_is_written_is_written_as_the_account_that_is_named(world: World) -> None:
    assert world.cluster.accounts == [None]
    world.flag_set(serviceAccountName="flags")
    await world.look()
    assert world.cluster.accounts == [None, "flags"]


# -- removals in bulk ----------------------------------------------------------------------------------------


def many(count: int) -> dict[str, Any]:
    """So many flags, the two of the first commit among them."""
    return {"a": flag(), "b": flag()} | {f"f{number}": flag() for number in range(count - 2)}


async def test_a_commit_that_removes_many_flags_is_held_and_lists_them(world: World) -> None:
    world.commit("r2", document(**many(10)))
    await world.look()
    world.commit("r3", document(**many(2)))
    seen = await world.look()
    assert (seen.result, seen.reason, seen.writes) == ("Stalled", "PruneGuard", [])
    assert seen.message == (
        "main@sha1:r3 by Ada is held: it removes 8 of 10 flags: f0, f1, f2, f3, f4, …. "
        "main@sha1:r2 stays served. If the flags are to go: "
        "kubectl -n shop annotate flagset checkout --overwrite flagstaff.dev/accept-revision=main@sha1:r3"
    )
    assert seen.status["pendingRemovals"] == [f"f{number}" for number in range(8)]
    guard = "removes 8 of 10 flags: f0, f1, f2, f3, f4, …"
    assert seen.status["problems"] == [{"severity": "error", "message": guard}]
    assert len(world.document()["flags"]) == 10


@pytest.mark.parametrize("named", ["main@sha1:r3", "sha1:r3", "r3"])
async def test_a_held_revision_is_applied_once_the_annotation_names_it(world: World, named: str) -> None:
    world.commit("r2", document(**many(10)))
    await world.look()
    world.commit("r3", document(**many(2)))
    await world.look()
    world.annotate("flagstaff.dev/accept-revision", named)
    seen = await world.look()
    assert (seen.ready[0], len(world.document()["flags"])) == ("True", 2)
    assert "pendingRemovals" not in seen.status


async def test_an_annotation_for_another_revision_accepts_nothing(world: World) -> None:
    world.commit("r2", document(**many(10)))
    await world.look()
    world.annotate("flagstaff.dev/accept-revision", "main@sha1:r3")
    world.commit("r4", document(**many(2)))
    assert (await world.look()).reason == "PruneGuard"


async def test_changed_paths_that_remove_many_flags_are_held(world: World) -> None:
    world.commit("r2", document(**many(10)), other__json=document(a=flag()))
    await world.look()
    world.flag_set(paths=["other.json"])
    assert (await world.look()).reason == "PruneGuard"
    assert len(world.document()["flags"]) == 10


async def test_a_removal_in_bulk_is_held_after_a_restart_too(world: World) -> None:
    world.commit("r2", document(**many(10)))
    await world.look()
    world.commit("r3", document(**many(2)))
    world.restart()
    seen = await world.look()
    assert (seen.reason, seen.writes) == ("PruneGuard", [])
    assert len(world.document()["flags"]) == 10


async def test_a_commit_after_the_held_one_is_compared_with_what_is_served(world: World) -> None:
    world.commit("r2", document(**many(10)))
    await world.look()
    world.commit("r3", document(**many(2)))
    await world.look()
    world.commit("r4", document(**many(9)))
    seen = await world.look()
    assert (seen.ready[0], len(world.document()["flags"])) == ("True", 9)
    assert "pendingRemovals" not in seen.status


async def test_without_the_prune_guard_any_commit_removes_flags(world: World) -> None:
    world.flag_set(pruneGuard=False)
    world.commit("r2", document(**many(10)))
    await world.look()
    world.commit("r3", document())
    seen = await world.look()
    assert (seen.ready[0], world.document()["flags"]) == ("True", {})


async def test_a_first_flag_set_without_flags_says_that_it_has_none() -> None:
    world = World()
    world.commit("r1", document())
    world.flag_set()
    assert (await world.look()).said == ['Applied: main@sha1:r1 by Ada "Commit r1": the set has no flags']


# -- sources -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(SOURCE_API))
async def test_any_kind_of_source_will_do(kind: str) -> None:
    world = World()
    world.flag_set(sourceRef={"kind": kind, "name": "flags"})
    seen = await world.look()
    assert (seen.result, seen.message) == (
        "Waiting",
        f"{kind} flags does not exist; create it, or correct spec.sourceRef",
    )
    world.commit("r1", document(a=flag()), kind=kind)
    assert (await world.look()).ready[0] == "True"


async def test_a_source_of_flux_gives_no_author_and_none_is_made_up() -> None:
    world = World()
    world.commit("r1", document(a=flag()), kind="GitRepository")
    artifact = dict(world.cluster.the("GitRepository", "flags").status["artifact"])
    world.source("GitRepository", {"artifact": artifact | {"metadata": {}}})
    world.flag_set(sourceRef={"kind": "GitRepository", "name": "flags"})
    seen = await world.look()
    assert seen.said == ["Applied: main@sha1:r1: 1 added: a"]
    annotations = world.cluster.the(CONFIGURATION, "checkout").annotations
    assert set(annotations) == {REVISION, "flagstaff.dev/digest"}


async def test_layers_are_laid_over_each_other_in_order() -> None:
    world = World()
    overlay = json.dumps({"flags": {"a": {"defaultVariant": "on"}}})
    world.commit("r1", **{"base/f__json": document(a=flag(), b=flag()), "prod/f__json": overlay})
    world.flag_set(paths=["base", "prod"])
    await world.look()
    assert world.defaults() == {"a": "on", "b": "off"}


async def test_options_of_the_spec_reach_the_set() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set(flagSetId="mine", bucketing="v3", target={"name": "other"})
    seen = await world.look()
    assert (seen.status["flagSetId"], seen.status["bucketing"]) == ("mine", "v3")
    metadata = world.document("other")["metadata"]
    assert (metadata["flagSetId"], metadata["flagstaff.dev/bucketing"]) == ("mine", "v3")


async def test_the_status_shows_what_the_definitions_pin() -> None:
    world = World()
    pinned = {"flags": {"a": flag()}, "metadata": {"flagstaff.dev/bucketing": "v3"}}
    world.commit("r1", json.dumps(pinned))
    world.flag_set(bucketing="v2")
    assert (await world.look()).status["bucketing"] == "v3"


async def test_a_changed_spec_makes_another_set_of_the_same_revision() -> None:
    world = World()
    world.commit("r1", **{"x/f__json": document(a=flag()), "y/f__json": document(a=flag("on"))})
    world.flag_set(paths=["x"])
    await world.look()
    world.flag_set(paths=["y"])
    seen = await world.look()
    assert (seen.writes, world.defaults()) == ([APPLY], {"a": "on"})
    assert seen.status["history"][0]["digest"] == seen.status["digest"]
    assert seen.status["history"][0]["changes"] == "1 changed: a"


async def test_a_spec_that_cannot_be_read_names_the_field_and_changes_nothing(world: World) -> None:
    world.flag_set(interval="soon")
    seen = await world.look()
    assert (seen.result, seen.reason, seen.writes) == ("Stalled", "InvalidSpec", [])
    assert seen.message.startswith("spec.interval: must be a duration")
    assert seen.status["lastAppliedRevision"] == "main@sha1:r1"


# -- bad revisions -------------------------------------------------------------------------------------------


async def test_a_bad_flag_is_held_while_its_siblings_move_on(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    seen = await world.look()
    assert world.defaults() == {"a": "off", "b": "on"}
    assert world.document()["flags"]["a"]["metadata"] == {HELD_FROM: "main@sha1:r1"}
    assert (seen.result, seen.reason) == ("Stalled", "PartiallyApplied")
    assert seen.status["held"] == [{"name": "a", "revision": "main@sha1:r1"}]
    assert (seen.status["heldFlags"], seen.status["flags"]) == (1, 2)
    assert seen.status["lastAppliedRevision"] == "main@sha1:r2"
    assert seen.status["lastGoodRevision"] == "main@sha1:r1"


@pytest.mark.parametrize(
    ("document", "held"),
    [
        pytest.param(document(a=BROKEN, b=flag()), 1, id="a held flag"),
        pytest.param(document(a=flag(), b=flag(), c=BROKEN), 1, id="one that is left out"),
        pytest.param(document(a=flag("on"), b=flag()), None, id="none"),
    ],
)
async def test_the_history_says_how_many_flags_of_a_revision_are_not_served_as_it_has_them(
    world: World, document: str, held: int | None
) -> None:
    world.commit("r2", document)
    newest = (await world.look()).status["history"][0]
    assert (newest["revision"], newest.get("held")) == ("main@sha1:r2", held)


async def test_a_held_flag_is_shown_with_commit_place_and_what_to_do(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    seen = await world.look()
    assert seen.message.startswith("main@sha1:r2 by Ada is applied, except 1 of 2 flags: flags.json:")
    assert seen.message.endswith(
        ". Still serving the previous definition of: a; push a correction, or revert the commit"
    )
    problem = seen.status["problems"][0]
    assert (problem["file"], problem["severity"]) == ("flags.json", "error")
    assert {"line", "column", "path", "message"} <= problem.keys()
    assert [each.partition(":")[0] for each in seen.said] == ["PartiallyApplied", "Applied"]


async def test_a_new_flag_that_is_bad_is_not_served_and_not_called_ready(world: World) -> None:
    world.commit("r2", document(a=flag(), b=flag(), c=BROKEN))
    seen = await world.look()
    assert seen.ready[:2] == ("False", "PartiallyApplied")
    assert (
        ". Not served, since they never were valid: c; push a correction, or revert the commit"
        in seen.message
    )
    assert set(world.defaults()) == {"a", "b"}
    assert seen.status["lastGoodRevision"] == "main@sha1:r1"


async def test_a_correction_makes_it_ready_again_and_says_so(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag()))
    await world.look()
    world.commit("r3", document(a=flag("on"), b=flag()))
    seen = await world.look()
    assert seen.said == [
        "Recovered: Applied revision: main@sha1:r3",
        'Applied: main@sha1:r3 by Ada "Commit r3": 1 changed: a',
    ]
    assert (seen.status["heldFlags"], seen.status["held"], seen.status["problems"]) == (0, [], [])
    assert seen.status["lastGoodRevision"] == "main@sha1:r3"


async def test_atomic_holds_the_whole_revision(world: World) -> None:
    world.flag_set(failurePolicy="Atomic")
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    seen = await world.look()
    assert (seen.writes, seen.result, seen.reason) == ([], "Stalled", "BuildFailed")
    assert seen.message.startswith("main@sha1:r2 by Ada is refused: flags.json:")
    assert seen.message.endswith("main@sha1:r1 stays served; push a correction, or revert the commit")
    shown = [seen.status[key] for key in ("lastAttemptedRevision", "lastAppliedRevision", "digest")]
    assert shown == ["main@sha1:r2", "main@sha1:r1", world.document()["metadata"]["flagstaff.dev/digest"]]


@pytest.mark.parametrize(
    ("text", "paths"),
    [("{", ["."]), ("", ["nowhere"]), ('{"flags": 7}', ["."])],
    ids=["no document", "no such path", "no flags"],
)
async def test_what_cannot_be_read_holds_the_whole_set(text: str, paths: list[str]) -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set()
    await world.look()
    world.commit("r2", text, README__md="x")
    world.flag_set(paths=paths)
    seen = await world.look()
    assert (seen.writes, seen.reason, world.defaults()) == ([], "BuildFailed", {"a": "off"})


async def test_a_first_revision_that_is_refused_writes_nothing() -> None:
    world = World()
    world.commit("r1", "{")
    world.flag_set()
    seen = await world.look()
    assert (seen.writes, seen.reason) == ([], "BuildFailed")
    assert "Nothing has been applied yet" in seen.message
    assert seen.status["lastAttemptedRevision"] == "main@sha1:r1"
    assert "lastAppliedRevision" not in seen.status


@pytest.mark.parametrize(
    ("validation", "ready", "a"), [("Strict", "False", "off"), ("Lenient", "True", "on")]
)
async def test_a_warning_is_a_failure_unless_lenient(
    world: World, validation: str, ready: str, a: str
) -> None:
    world.flag_set(validation=validation)
    world.commit("r2", document(a=ODD | {"defaultVariant": "on"}, b=flag()))
    seen = await world.look()
    assert (seen.ready[0], world.defaults()["a"]) == (ready, a)
    assert seen.status["problems"][0]["severity"] == "warning"


async def test_warnings_of_a_lenient_set_are_counted_where_it_is_called_ready(world: World) -> None:
    world.flag_set(validation="Lenient")
    world.commit("r2", document(a=ODD, b=flag()))
    assert (await world.look()).message == ("Applied revision: main@sha1:r2; 1 warning, see status.problems")


async def test_the_same_failure_again_makes_no_event_and_no_write(world: World) -> None:
    world.commit("r2", "{")
    await world.look()
    seen = await world.look(after=600)
    assert (seen.said, seen.status_written, seen.writes) == ([], False, [])


async def test_problems_held_flags_and_history_are_bounded(world: World) -> None:
    many = {f"f{number}": flag() for number in range(150)}
    world.flag_set(pruneGuard=False)
    world.commit("r2", document(**many))
    await world.look()
    world.commit("r3", document(**dict.fromkeys(many, BROKEN)))
    seen = await world.look()
    status = seen.status
    assert (status["problemCount"], len(status["problems"])) == (150, 50)
    assert (status["heldFlags"], len(status["held"])) == (150, 100)
    for number in range(12):
        world.commit(f"n{number}", document(a=flag("on" if number % 2 else "off")))
        seen = await world.look()
    assert [each["revision"] for each in seen.status["history"]] == [
        f"main@sha1:n{number}" for number in range(11, 1, -1)
    ]
    assert len(seen.message) < 1000


# -- drift ---------------------------------------------------------------------------------------------------


async def test_a_hand_s_edit_is_overwritten_and_its_author_named(world: World) -> None:
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={"flags": {}})
    seen = await world.look()
    assert (seen.writes, world.defaults()) == ([APPLY], {"a": "off", "b": "off"})
    assert seen.said == [
        "DriftCorrected: FeatureFlagConfiguration checkout was changed by kubectl-edit; "
        "restored to the source's state"
    ]
    assert not seen.status_written


async def test_an_object_that_is_deleted_by_hand_is_written_again(world: World) -> None:
    world.cluster.remove(CONFIGURATION, "checkout")
    seen = await world.look()
    assert seen.writes == [APPLY]
    assert seen.said[0].startswith("DriftCorrected: FeatureFlagConfiguration checkout was removed;")


def dispute_message(seen: Turn) -> str | None:
    """The message of the dispute that the status shows."""
    found = find(seen.status, "DriftContested")
    return None if found is None else found["message"]


async def fought(world: World, seconds: float) -> list[Turn]:
    """Somebody overwrites what is delivered at each of the seconds."""
    seen = []
    for _ in range(int(seconds)):
        world.cluster.edit(CONFIGURATION, "checkout", who="other-operator", flagSpec={"flags": {}})
        seen.append(await world.look())
    return seen


async def test_an_endless_overwriter_is_answered_with_pauses_and_named_once(world: World) -> None:
    seen = await fought(world, 600)
    written = [each for each in seen if each.writes]
    assert seen[:3] == written[:3]
    assert 10 <= len(written) <= 20
    said = [text for each in seen for text in each.said]
    assert [each.partition(":")[0] for each in said] == ["DriftCorrected"] * 3 + ["DriftContested"]
    assert "was changed by other-operator repeatedly" in said[-1]
    assert said[-1].endswith(dispute_message(seen[-1]) or "no dispute")
    assert sum(each.status_written for each in seen) == 1


async def test_a_dispute_is_over_once_nothing_was_changed_for_a_minute(world: World) -> None:
    seen = (await fought(world, 3))[-1]
    assert dispute_message(seen)
    again = seen.settled.requeue_after
    assert again is not None
    assert 60 <= again <= 70
    assert dispute_message(await world.look(after=again)) is None
    assert (await fought(world, 1))[0].said[0].startswith("DriftCorrected")


@pytest.mark.parametrize("text", ["{", document(a=BROKEN, b=flag())], ids=["refused", "held"])
async def test_a_dispute_is_over_then_though_the_newest_commit_is_bad(world: World, text: str) -> None:
    await fought(world, 3)
    world.commit("r2", text)
    assert dispute_message(await world.look())
    assert dispute_message(await world.look(after=70)) is None


async def test_what_was_not_put_right_at_once_is_after_the_pause(world: World) -> None:
    seen = (await fought(world, 4))[-1]
    assert (seen.writes, seen.settled.requeue_after) == ([], 4.0)
    assert (await world.look(after=4.0)).writes == [APPLY]


async def test_a_new_revision_waits_for_no_dispute(world: World) -> None:
    await fought(world, 4)
    world.commit("r2", document(a=flag("on"), b=flag()))
    assert (await world.look()).writes == [APPLY]
    assert (await fought(world, 1))[0].writes == []


@pytest.mark.parametrize("text", ["{", document(a=BROKEN, b=flag())], ids=["refused", "held"])
async def test_drift_is_corrected_while_the_newest_commit_is_bad(world: World, text: str) -> None:
    world.commit("r2", text)
    await world.look()
    before = world.document()
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={"flags": {"a": flag("on")}})
    seen = await world.look()
    assert (seen.writes, world.document()) == ([APPLY], before)
    assert seen.said[0].startswith("DriftCorrected")


@pytest.mark.parametrize("gone", ["artifact", "source", "readable artifact"])
async def test_drift_is_corrected_while_the_source_fails(world: World, gone: str) -> None:
    if gone == "source":
        world.cluster.remove("FlagSource", "flags")
    elif gone == "artifact":
        world.source("FlagSource", {})
    else:
        world.commit("r2", document(a=flag("on")))
        world.archives.clear()
    world.cluster.remove(CONFIGURATION, "checkout")
    seen = await world.look()
    assert (seen.writes, world.defaults()) == ([APPLY], {"a": "off", "b": "off"})
    assert (seen.reason, seen.said[-1].partition(":")[0]) == ("ArtifactFailed", "DriftCorrected")


def kept_message(seen: Turn) -> str | None:
    """The message of a change by hand that stays."""
    found = find(seen.status, "DriftKept")
    return None if found is None else found["message"]


@pytest.fixture
async def warned(world: World) -> World:
    """The same with `driftPolicy: Warn`, and a hand's edit that was seen."""
    world.flag_set(driftPolicy="Warn")
    assert (await world.look()).writes == []
    world.before = world.document()
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={"flags": {"a": flag("on")}})
    seen = await world.look()
    assert (seen.writes, world.defaults(), seen.ready[0]) == ([], {"a": "on"}, "True")
    assert seen.said == [f"DriftKept: {kept_message(seen)}"]
    assert (kept_message(seen) or "").startswith(
        "FeatureFlagConfiguration checkout was changed by hand; it stays so"
    )
    return world


@pytest.mark.parametrize("meanwhile", ["nothing", "restart", "interval", "commit"])
async def test_with_warn_a_manual_edit_stays_and_is_reported_once_until_it_is_undone(
    warned: World, meanwhile: str
) -> None:
    if meanwhile == "restart":
        warned.restart()
    elif meanwhile == "interval":
        warned.flag_set(driftPolicy="Warn", interval="1h")
    elif meanwhile == "commit":
        # It changes no flag.
        warned.commit("r2", document(a=flag(), b=flag()), other__md="")
        warned.restart()
    seen = await warned.look()
    assert (seen.writes, seen.said, bool(kept_message(seen))) == ([], [], True)
    warned.cluster.edit(CONFIGURATION, "checkout", flagSpec=warned.before)
    seen = await warned.look()
    assert (seen.writes, kept_message(seen)) == ([], None)


async def test_with_warn_a_removal_stays(world: World) -> None:
    world.flag_set(driftPolicy="Warn")
    await world.look()
    world.cluster.remove(CONFIGURATION, "checkout")
    seen = await world.look()
    assert seen.writes == []
    assert (kept_message(seen) or "").startswith("FeatureFlagConfiguration checkout was removed;")


async def test_with_warn_a_revision_with_other_flags_is_written(warned: World) -> None:
    warned.commit("r2", document(a=flag(), b=flag("on")))
    seen = await warned.look()
    assert (seen.writes, warned.defaults(), kept_message(seen)) == ([APPLY], {"a": "off", "b": "on"}, None)


async def test_once_correct_is_chosen_the_edit_is_undone(warned: World) -> None:
    warned.flag_set(driftPolicy="Correct")
    seen = await warned.look()
    assert (seen.writes, warned.defaults(), kept_message(seen)) == ([APPLY], {"a": "off", "b": "off"}, None)
    assert [each.partition(":")[0] for each in seen.said] == ["DriftCorrected"]


async def test_a_spec_that_changed_meanwhile_is_not_answered_with_the_old_one(world: World) -> None:
    world.cluster.remove("FlagSource", "flags")
    world.flag_set(target={"name": "other"})
    assert (await world.look()).writes == []


async def test_a_label_that_was_taken_away_comes_back(world: World) -> None:
    made = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    made["metadata"]["labels"] = {}
    world.cluster.put(made)
    assert (await world.look()).writes == [APPLY]
    assert world.cluster.the(CONFIGURATION, "checkout").labels


async def test_other_people_s_labels_are_let_be(world: World) -> None:
    made = body_of(world.cluster.the(CONFIGURATION, "checkout"))
    made["metadata"]["labels"]["team"] = "shop"
    world.cluster.put(made)
    assert (await world.look()).writes == []


async def test_a_field_that_the_api_server_drops_is_not_written_for_ever() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.cluster.prunes = frozenset({"flagSpec"})
    world.flag_set()
    assert (await world.look()).writes == [APPLY]
    assert (await world.look()).writes == []


# -- ownership -----------------------------------------------------------------------------------------------


async def test_of_two_flag_sets_with_one_target_the_first_has_it(world: World) -> None:
    world.flag_set("other", target={"name": "checkout"}, flagSetId="other")
    seen = await world.look("other")
    assert (seen.writes, seen.result, seen.reason) == ([], "Stalled", "OwnershipConflict")
    assert seen.message == (
        "FeatureFlagConfiguration checkout belongs to FlagSet checkout; "
        "give one of the two another spec.target.name"
    )
    assert seen.status["lastAttemptedRevision"] == "main@sha1:r1"
    assert "lastAppliedRevision" not in seen.status


async def test_a_conflict_over_one_object_writes_none_of_the_others(world: World) -> None:
    kinds = ["FeatureFlag", CONFIGURATION]
    world.flag_set("other", target={"name": "checkout", "kinds": kinds})
    assert (await world.look("other")).writes == []


async def test_one_that_was_made_again_takes_nothing_from_the_one_before(world: World) -> None:
    world.cluster.remove(KIND, "checkout")
    world.cluster.remove(CONFIGURATION, "checkout")
    world.flag_set()
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    seen = await world.look()
    assert seen.reason == "PartiallyApplied"
    assert world.defaults() == {"b": "on"}


async def test_what_a_flag_set_that_is_gone_left_behind_may_be_taken(world: World) -> None:
    world.cluster.remove(KIND, "checkout")
    world.flag_set("other", target={"name": "checkout"})
    assert (await world.look("other")).writes == [APPLY]


async def test_a_conflict_that_the_api_server_finds_names_the_owner_and_keeps_what_is_applied(
    world: World,
) -> None:
    conflict = Stalled("OwnershipConflict", 'belongs to another: conflict with "argocd"')
    world.cluster.failing[APPLY] = conflict
    world.commit("r2", document(a=flag("on")))
    seen = await world.look()
    assert (seen.result, seen.reason) == ("Stalled", "OwnershipConflict")
    assert "argocd" in seen.message
    shown = [seen.status[key] for key in ("lastAttemptedRevision", "lastAppliedRevision")]
    assert shown == ["main@sha1:r2", "main@sha1:r1"]


async def test_a_failed_write_is_tried_again_and_reported_once(world: World) -> None:
    world.cluster.failing[APPLY] = Failed("ApiServerFailed", "it is away")
    world.commit("r2", document(a=flag("on")))
    seen = await world.look()
    assert (seen.result, seen.settled.retry) == ("Failed", True)
    assert seen.status["lastAppliedRevision"] == "main@sha1:r1"
    world.cluster.failing.clear()
    seen = await world.look()
    assert (seen.writes, seen.ready[0]) == ([APPLY], "True")
    assert seen.said[-1] == 'Applied: main@sha1:r2 by Ada "Commit r2": 1 changed, 1 removed: a, b'


async def test_a_process_killed_between_write_and_status_says_what_it_finds(world: World) -> None:
    before = body_of(world.cluster.the(KIND, "checkout"))["status"]
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.cluster.put(body_of(world.cluster.the(KIND, "checkout")) | {"status": before})
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.ready[0]) == ([], "True")
    summary = "2 flags, found as an earlier run wrote them"
    assert (seen.status["history"][0]["changes"], seen.said[0].endswith(summary)) == (summary, True)


# -- last good -----------------------------------------------------------------------------------------------


async def test_last_good_is_read_back_from_the_cluster(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    await world.look()
    world.restart()
    world.archives.clear()
    world.commit("r3", document(a=BROKEN, b=flag()))
    seen = await world.look()
    assert world.defaults() == {"a": "off", "b": "off"}
    assert seen.status["held"] == [{"name": "a", "revision": "main@sha1:r1"}]
    assert seen.status["lastGoodRevision"] == "main@sha1:r1"


async def test_after_a_restart_what_is_served_stays_while_the_artifact_cannot_be_read(world: World) -> None:
    world.restart()
    world.archives.clear()
    seen = await world.look()
    assert (seen.writes, seen.reason, seen.said) == ([], "Succeeded", [])
    assert find(seen.status, "Reconciling") is not None
    assert seen.settled.requeue_after == 2
    assert (await world.look(after=59)).reason == "Succeeded"
    seen = await world.look(after=1)
    assert (seen.writes, seen.result, seen.reason) == ([], "Failed", "ArtifactFailed")
    assert seen.said == ["ArtifactFailed: the artifact server is down"]
    assert world.defaults() == {"a": "off", "b": "off"}


async def test_after_a_restart_a_failure_is_not_reported_again(world: World) -> None:
    world.commit("r2", "{")
    await world.look()
    world.restart()
    archives, world.archives = world.archives, {}
    seen = await world.look()
    assert (seen.reason, seen.said) == ("BuildFailed", [])
    world.archives = archives
    seen = await world.look()
    assert (seen.reason, seen.said) == ("BuildFailed", [])
    world.commit("r3", document(a=flag("on")))
    assert (await world.look()).said[0].startswith("Recovered")


async def test_after_a_restart_a_refused_revision_leaves_the_last_good_one(world: World) -> None:
    world.commit("r2", "{")
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.reason) == ([], "BuildFailed")
    world.cluster.remove(CONFIGURATION, "checkout")
    assert (await world.look()).writes == [APPLY]
    assert world.defaults() == {"a": "off", "b": "off"}


async def test_a_renamed_target_keeps_its_held_flags_over_a_restart(world: World) -> None:
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    world.flag_set(target={"name": "other"})
    world.restart()
    await world.look()
    assert world.document("other")["flags"]["a"]["defaultVariant"] == "off"


async def test_a_leader_of_before_forgets_what_it_knew(world: World) -> None:
    former = world.reconciler
    world.restart()
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.reconciler = former
    world.commit("r3", document(a=BROKEN, b=flag("on")))
    await world.look()
    assert world.defaults() == {"a": "on", "b": "on"}


async def test_a_leader_of_before_does_not_bring_back_what_was_while_the_source_fails(world: World) -> None:
    former = world.reconciler
    world.restart()
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.reconciler = former
    world.cluster.remove("FlagSource", "flags")
    assert (await world.look()).writes == []
    assert world.defaults()["a"] == "on"


async def test_a_revision_that_could_not_be_written_is_not_used_as_last_good(world: World) -> None:
    world.cluster.failing[APPLY] = Failed("ApiServerFailed", "it is away")
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.cluster.failing.clear()
    world.commit("r3", document(a=BROKEN, b=flag("on")))
    seen = await world.look()
    assert world.defaults() == {"a": "off", "b": "on"}
    assert seen.status["held"] == [{"name": "a", "revision": "main@sha1:r1"}]


async def test_what_could_not_be_written_is_tried_again_without_its_source(world: World) -> None:
    world.cluster.failing[APPLY] = Failed("ApiServerFailed", "it is away")
    world.commit("r2", document(a=flag("on"), b=flag()))
    await world.look()
    world.cluster.failing.clear()
    world.cluster.remove("FlagSource", "flags")
    assert (await world.look()).writes == [APPLY]
    assert world.defaults()["a"] == "on"


EDITED = {"flags": {"a": flag("on", metadata={"by": "hand"}), "b": flag()}}


async def test_an_edit_before_a_restart_is_overwritten_by_a_good_revision(world: World) -> None:
    metadata = world.document()["metadata"]
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={**EDITED, "metadata": metadata})
    world.restart()
    seen = await world.look()
    assert (seen.writes, world.defaults()["a"]) == ([APPLY], "off")
    assert seen.said == [
        "DriftCorrected: FeatureFlagConfiguration checkout was changed by kubectl-edit; "
        "restored to the source's state"
    ]
    assert len(seen.status["history"]) == 1


@pytest.mark.parametrize("text", [document(a=BROKEN, b=flag("on")), "{"], ids=["held", "refused"])
async def test_an_edit_before_a_restart_is_not_used_as_last_good(world: World, text: str) -> None:
    metadata = world.document()["metadata"]
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec={**EDITED, "metadata": metadata})
    world.commit("r2", text)
    world.restart()
    seen = await world.look()
    assert (seen.writes, seen.result, seen.reason) == ([], "Stalled", "LastGoodUnknown")
    assert "FeatureFlagConfiguration checkout was changed by hand" in seen.message
    assert seen.status["lastAppliedRevision"] == "main@sha1:r1"


async def test_deleting_what_was_edited_brings_all_other_flags(world: World) -> None:
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec=EDITED)
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    world.restart()
    await world.look()
    world.cluster.remove(CONFIGURATION, "checkout")
    seen = await world.look()
    assert (seen.reason, world.defaults()) == ("PartiallyApplied", {"b": "on"})


async def test_an_edit_while_we_watched_is_no_last_good_either(world: World) -> None:
    world.cluster.edit(CONFIGURATION, "checkout", flagSpec=EDITED)
    world.commit("r2", document(a=BROKEN, b=flag("on")))
    await world.look()
    assert world.defaults() == {"a": "off", "b": "on"}


# -- target, prune, deletion ---------------------------------------------------------------------------------


async def test_a_renamed_target_moves(world: World) -> None:
    world.flag_set(target={"name": "other"})
    seen = await world.look()
    assert seen.writes == [f"apply {CONFIGURATION}/other", DELETE]
    assert seen.status["target"] == [{"kind": CONFIGURATION, "name": "other"}]


async def test_a_renamed_target_is_left_without_prune(world: World) -> None:
    world.flag_set(target={"name": "other"}, prune=False)
    seen = await world.look()
    assert seen.writes == [f"apply {CONFIGURATION}/other"]
    assert world.cluster.names(CONFIGURATION) == ["checkout", "other"]


async def test_a_kind_that_is_asked_for_no_more_goes(world: World) -> None:
    world.flag_set(target={"kinds": [CONFIGURATION, "FeatureFlag"]})
    assert (await world.look()).writes == ["apply FeatureFlag/checkout"]
    assert world.document(kind="FeatureFlag") == world.document()
    world.flag_set()
    assert (await world.look()).writes == ["delete FeatureFlag/checkout"]


async def test_without_prune_what_is_written_has_no_owner_and_so_outlives_the_flag_set(world: World) -> None:
    world.flag_set(prune=False)
    assert (await world.look()).writes == [APPLY]
    assert world.cluster.the(CONFIGURATION, "checkout").owners == ()
    assert (await world.look()).writes == []
    world.flag_set(prune=True)
    assert (await world.look()).writes == [APPLY]
    assert len(world.cluster.the(CONFIGURATION, "checkout").owners) == 1


async def test_a_flag_set_made_anew_owns_what_the_old_one_left(world: World) -> None:
    world.cluster.remove(KIND, "checkout")
    world.reconciler.forget(world.cluster.the(CONFIGURATION, "checkout").key)
    world.flag_set()
    seen = await world.look()
    made = world.cluster.the(CONFIGURATION, "checkout")
    assert (seen.writes, made.owners[0]["uid"]) == ([APPLY], world.cluster.the(KIND, "checkout").uid)


@pytest.mark.parametrize("how", ["gone", "going", "made anew"])
async def test_a_flag_set_that_goes_while_it_is_looked_at_writes_nothing(how: str) -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set()
    resource = world.cluster.the(KIND, "checkout")
    if how != "going":
        world.cluster.remove(KIND, "checkout")
    if how == "made anew":
        world.flag_set()
    if how == "going":
        world.cluster.objects.learn(replace(resource, deleting=True))
    outcome = (await world.reconciler.reconcile(resource, world.now)).outcome
    assert isinstance(outcome, Waiting)
    assert outcome.message == "the FlagSet is being deleted"
    assert world.cluster.take_writes() == []


def test_a_field_manager_s_name_is_short_and_one_s_own() -> None:
    names = [manager_of(ObjectKey(KIND, "n" * 63, "x" * 62 + end)) for end in "ab"]
    assert all(len(name) == 128 for name in names)
    assert len(set(names)) == 2
    assert manager_of(ObjectKey(KIND, "shop", "flags")) == "flagstaff-flagset/shop/flags"


async def test_what_was_forgotten_is_read_back(world: World) -> None:
    world.reconciler.forget(world.cluster.the(KIND, "checkout").key)
    world.reads.clear()
    seen = await world.look()
    assert (seen.writes, world.reads) == ([], ["main@sha1:r1"])


# -- when the next look is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 570.0), (0.5, 600.0), (1.0, 630.0)])
async def test_the_next_look_is_after_the_interval_give_or_take(random: float, seconds: float) -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    world.flag_set(interval="10m")
    object.__setattr__(world.reconciler, "random", lambda: random)
    assert (await world.look()).settled.requeue_after == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["{", document(a=BROKEN)], ids=["refused", "missing"])
async def test_a_stalled_set_is_looked_at_again_too(text: str) -> None:
    world = World()
    world.commit("r1", text)
    world.flag_set(interval="5m")
    assert (await world.look()).settled.requeue_after == pytest.approx(300.0)


# -- dependencies --------------------------------------------------------------------------------------------


async def test_a_flag_set_waits_for_what_it_depends_on(world: World) -> None:
    world.flag_set("late", dependsOn=[{"name": "early"}])
    seen = await world.look("late")
    assert (seen.result, seen.message) == (
        "Waiting",
        "FlagSet early does not exist; create it, or correct spec.dependsOn",
    )
    world.flag_set("early", paths=["nowhere"])
    await world.look("early")
    seen = await world.look("late")
    assert seen.message.startswith("FlagSet early is not ready: main@sha1:r1 by Ada is refused: ")
    world.flag_set("early")
    await world.look("early")
    assert (await world.look("late")).ready[0] == "True"


async def test_of_one_source_the_dependency_takes_a_revision_first(world: World) -> None:
    world.flag_set("late", dependsOn=[{"name": "checkout"}])
    assert (await world.look("late")).ready[0] == "True"
    world.commit("r2", document(a=flag("on")))
    seen = await world.look("late")
    assert seen.message == "FlagSet checkout has not applied main@sha1:r2 yet"
    await world.look("checkout")
    assert (await world.look("late")).status["lastAppliedRevision"] == "main@sha1:r2"


async def test_flag_sets_that_wait_for_each_other_show_the_cycle() -> None:
    world = World()
    world.commit("r1", document(a=flag()))
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        world.flag_set(name, dependsOn=[{"name": other}])
    seen = await world.look("a")
    assert (seen.result, seen.reason) == ("Stalled", "DependencyCycle")
    assert seen.message == "these FlagSets wait for each other: a → b → c → a"


async def test_messages_quote_only_names_and_places_of_the_definitions(world: World) -> None:
    secret: Any = {"on": "hunter2", "off": "hunter3"}
    world.commit("r2", document(a=flag("no", variants=secret), b=flag()))
    seen = await world.look()
    assert "hunter" not in json.dumps(seen.status)
    assert "hunter" not in " ".join(seen.said)


# -- substitution --------------------------------------------------------------------------------------------


def coloured_document(value: str = "${COLOUR}") -> str:
    return document(a=flag(variants={"on": value, "off": "grey"}), b=flag())


async def test_variables_come_from_the_spec_config_maps_and_secrets_the_last_beating_the_first() -> None:
    world = World()
    world.commit("r1", coloured_document("${COLOUR} ${SIZE} ${SHAPE}"))
    world.values["ConfigMap", "colours"] = {"COLOUR": b"red\n", "SIZE": b"big", "not.a-name": b"\xff"}
    world.values["Secret", "tokens"] = {"SIZE": b"small", "SHAPE": b"round"}
    world.flag_set(
        substitute={"SHAPE": "square"},
        substituteFrom=[
            {"kind": "ConfigMap", "name": "colours"},
            {"kind": "Secret", "name": "tokens"},
            {"kind": "Secret", "name": "none", "optional": True},
        ],
    )
    seen = await world.look()
    a, b = (world.document()["flags"][key] for key in "ab")
    assert (seen.reason, a["variants"]["on"]) == ("Succeeded", "red small square")
    assert (a["metadata"], "metadata" in b) == ({"flagstaff.dev/secret": True}, False)
    assert (await world.look()).writes == []
    assert len(world.reads) == 1


async def test_variables_are_read_with_the_rights_of_the_service_account_that_the_spec_names(
    world: World,
) -> None:
    world.values["Secret", "tokens"] = {}
    world.flag_set(serviceAccountName="flags", substituteFrom=[{"kind": "Secret", "name": "tokens"}])
    await world.look()
    assert set(world.readers) == {"flags"}


async def test_a_secret_that_is_bound_to_hosts_is_not_substituted(world: World) -> None:
    world.values["Secret", "tokens"] = SecretContent({"COLOUR": b"x"}, Binding("shop", "tokens", ("h",)))
    world.flag_set(substituteFrom=[{"kind": "Secret", "name": "tokens"}])
    seen = await world.look()
    assert (seen.result, seen.reason, seen.writes) == ("Stalled", "SecretHostDenied", [])


async def test_a_missing_object_is_awaited_and_what_was_served_stays(world: World) -> None:
    world.flag_set(substituteFrom=[{"kind": "Secret", "name": "tokens"}])
    seen = await world.look()
    assert seen.writes == []
    assert seen.ready == (
        "False",
        "SubstitutionFailed",
        "Secret shop/tokens does not exist; create it, or correct spec.substituteFrom",
    )
    world.values["Secret", "tokens"] = {}
    assert (await world.look()).reason == "Succeeded"


async def test_a_changed_secret_changes_the_flag_and_its_value_is_shown_nowhere() -> None:
    world = World()
    world.commit("r1", coloured_document())
    world.values["Secret", "tokens"] = {"COLOUR": b"s3cr3t-1"}
    world.flag_set(substituteFrom=[{"kind": "Secret", "name": "tokens"}])
    first = await world.look()
    world.values["Secret", "tokens"] = {"COLOUR": b"s3cr3t-2"}
    second = await world.look()
    assert world.document()["flags"]["a"]["variants"]["on"] == "s3cr3t-2"
    (changes,) = (each.metadata["flagstaff.dev/changes"] for each in second.settled.events)
    assert re.fullmatch(r"~ a: secret sha256:[0-9a-f]{12} → sha256:[0-9a-f]{12}", changes)
    for seen in (first, second):
        assert "s3cr3t" not in repr((seen.status, seen.settled.events))


def test_a_changed_secret_or_config_map_wakes_the_flag_sets_that_name_it() -> None:
    objects = RecordingCluster((FLAG_SETS,)).objects
    woken_by = {}
    for kind in ("Secret", "ConfigMap"):
        spec = {"substituteFrom": [{"kind": kind, "name": "values"}]}
        body = {"apiVersion": "flagstaff.dev/v1beta1", "kind": KIND, "spec": spec}
        objects.learn(Resource.of({**body, "metadata": {"name": kind.lower(), "namespace": NAMESPACE}}))
    for kind in ("Secret", "ConfigMap"):
        body = {"kind": kind, "metadata": {"name": "values", "namespace": NAMESPACE, "resourceVersion": "2"}}
        found = keys_to_wake((FLAG_SETS,), objects, Change(None, Resource.of(body)))
        woken_by[kind] = [each.name for each in found]
    assert woken_by == {"Secret": ["secret"], "ConfigMap": ["configmap"]}


def texts(value: Any) -> list[str]:
    """Every text in a value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [each for key, item in value.items() for each in (key, *texts(item))]
    return [each for item in value for each in texts(item)] if isinstance(value, list) else []


async def test_what_cannot_be_seen_reaches_neither_status_nor_events(world: World) -> None:
    hostile = "\x1b[31m\u202e\u2066\r\n"
    files = {f"x{hostile}.json": document(**{f"k{hostile}": BROKEN}), "y.json": document(**{hostile: flag()})}
    world.commit("r2", document(a=flag()), **files)
    artifact = world.cluster.the("FlagSource", "flags").status["artifact"]
    strangers = {f"flagstaff.dev/{name}": f"x{hostile}" for name in ("author", "subject")}
    world.source("FlagSource", {"artifact": artifact | {"metadata": strangers}})
    seen = await world.look()
    assert seen.status["problems"]
    said = [text for event in seen.settled.events for text in (event.message, *event.metadata.values())]
    assert said
    assert [each for each in (*texts(seen.status), *said) if not each.isprintable()] == []


async def test_flags_past_their_date_are_a_condition_and_one_event_and_stay_served(world: World) -> None:
    world.commit("r2", document(a=flag(metadata={"expires": "2026-01-02"}), b=flag()))
    world.now = datetime(2026, 1, 2, 23, 59, 50, tzinfo=UTC)
    before = await world.look()
    assert find(before.status, "FlagsExpired") is None
    assert before.settled.requeue_after == 9.0
    past = await world.look(after=9.0)
    condition = find(past.status, "FlagsExpired")
    assert condition is not None
    assert condition["message"] == "past metadata.expires and served as before: a"
    assert past.said == ["FlagsExpired: past metadata.expires and served as before: a"]
    assert (past.ready[0], past.writes) == ("True", [])
    world.restart()
    assert (await world.look()).said == []
    world.commit("r3", document(a=flag(metadata={"expires": "2027-01-02"}), b=flag()))
    renewed = await world.look()
    assert find(renewed.status, "FlagsExpired") is None
    assert renewed.said[-1] == "FlagsRenewed: no flag is past its date any more"
