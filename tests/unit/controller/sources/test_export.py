"""`spec.export`: an ExternalArtifact beside the FlagSource, as long as it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import SHARD_KEY, ObjectKey, Resource
from controller.runtime.setbacks import Failed
from controller.runtime.shards import Shard
from controller.sources.reconciler import Exporter
from tests.unit.controller.sources.test_reconciler import KEY, Life
from tests.worlds.stages import RecordingCluster

if TYPE_CHECKING:
    from pathlib import Path

EXPORTED = ObjectKey("ExternalArtifact", "apps", "flags")
SECOND = "b" * 40


class Writer(RecordingCluster):
    def __init__(self) -> None:
        super().__init__(namespace="apps")

    @property
    def exported(self) -> Resource | None:
        return self.objects.get(EXPORTED)

    @property
    def artifact(self) -> dict[str, Any]:
        assert self.exported is not None
        return dict(self.exported.status["artifact"])


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def life(tmp_path: Path, writer: Writer) -> Life:
    made = Life(tmp_path)
    made.spec = {**made.spec, "export": True, "serviceAccountName": "publisher"}
    made.reconciler = replace(made.reconciler, exporter=Exporter(writer.objects, writer.impersonate))
    return made


async def test_the_artifact_is_exported_and_again_only_when_it_changes(life: Life, writer: Writer) -> None:
    await life.look()
    assert writer.exported is not None
    assert writer.artifact == life.status["artifact"]
    (owner,) = writer.exported.owners
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("FlagSource", "uid", True)
    (ready,) = writer.exported.status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Succeeded")
    assert writer.accounts[-1] == "publisher"
    await life.look()
    assert writer.writes == ["apply ExternalArtifact/flags", "status ExternalArtifact/flags"]
    life.source.commit, life.source.files = SECOND, {"flags.json": "[]"}
    await life.look()
    assert writer.artifact == life.status["artifact"]
    assert writer.artifact["revision"] == f"main@sha1:{SECOND}"
    assert writer.exported.status["conditions"][0]["lastTransitionTime"] == ready["lastTransitionTime"]
    assert writer.writes == [
        "apply ExternalArtifact/flags",
        "status ExternalArtifact/flags",
        "status ExternalArtifact/flags",
    ]


async def test_the_export_has_the_label_of_the_shard_and_follows_its_source_to_another(
    life: Life, writer: Writer
) -> None:
    for shard in ("shard1", "shard2", ""):
        selector = f"{SHARD_KEY}={shard}" if shard else f"!{SHARD_KEY}"
        exporter = Exporter(writer.objects, writer.impersonate, Shard.of(selector, ()))
        life.reconciler = replace(life.reconciler, exporter=exporter)
        await life.look(labels={SHARD_KEY: shard} if shard else {})
        assert writer.exported is not None
        assert writer.exported.labels.get(SHARD_KEY, "") == shard
    assert writer.writes.count("apply ExternalArtifact/flags") == 3


async def test_a_source_that_fails_leaves_the_last_export(life: Life, writer: Writer) -> None:
    await life.look()
    life.source.resolving = Failed("Timeout", "no answer")
    await life.look()
    assert life.condition("Ready") == ("False", "Timeout")
    assert writer.artifact == life.status["artifact"]


async def test_it_goes_when_it_is_asked_for_no_more_though_the_source_fails(
    life: Life, writer: Writer
) -> None:
    await life.look()
    life.source.resolving = Failed("Timeout", "no answer")
    life.spec = {**life.spec, "export": False}
    await life.look()
    assert writer.exported is None
    await life.look()
    assert writer.writes.count("delete ExternalArtifact/flags") == 1


async def test_the_export_is_made_again_after_it_was_removed(life: Life, writer: Writer) -> None:
    await life.look()
    writer.objects.forget(EXPORTED)
    await life.look()
    assert writer.artifact == life.status["artifact"]


@pytest.mark.parametrize("export", [True, False])
async def test_an_object_of_another_writer_is_left_alone(life: Life, writer: Writer, export: bool) -> None:
    body = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact"}
    before = writer.put({**body, "metadata": {"name": "flags", "namespace": "apps"}})
    life.spec = {**life.spec, "export": export}
    await life.look()
    assert writer.exported == before
    assert not writer.writes
    assert life.condition("Ready") == (("False", "OwnershipConflict") if export else ("True", "Succeeded"))
    assert life.stored_files() == {"flags.json": b"{}"}


async def test_a_refused_export_is_reported_and_the_artifact_is_stored_all_the_same(
    life: Life, writer: Writer
) -> None:
    writer.failing["apply ExternalArtifact/flags"] = Failed("AccessDenied", "forbidden")
    after = await life.look()
    assert life.condition("Ready") == ("False", "AccessDenied")
    assert life.condition("ArtifactInStorage") == ("True", "Succeeded")
    assert life.stored_files() == {"flags.json": b"{}"}
    assert after.retry
    writer.failing["apply ExternalArtifact/flags"] = Failed(
        "ApiServerFailed", "could not find the requested resource"
    )
    after = await life.look()
    assert "Flux 2.7 or later" in after.status["conditions"][0]["message"]
    writer.failing.clear()
    await life.look()
    assert life.condition("Ready") == ("True", "Succeeded")
    assert writer.artifact == life.status["artifact"]


async def test_a_source_that_is_being_deleted_makes_nothing(life: Life, writer: Writer) -> None:
    resource = Resource(KEY, "uid", 1, "1", spec=life.spec, status=life.status, deleting=True)
    await life.reconciler.reconcile(resource, life.now)
    assert writer.exported is None
