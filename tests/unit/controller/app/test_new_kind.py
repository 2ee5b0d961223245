"""A kind that is not there yet: its record and its reconciler are all that whatever names kinds needs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

from controller.api.fields import Model
from controller.api.kind import PAGE, RECONCILED, SHOWN_BY_PAGE, Kind, PrinterColumn
from controller.api.kinds import KINDS, watched_by
from controller.api.manifests_writer import (
    custom_resource_definition,
    field_table,
    quotas,
    role_rules,
    webhook_rules,
)
from controller.api.meta import API_VERSION
from controller.api.status import READY, Status
from controller.cli.published import reason_reference
from controller.runtime.loop import Loop, Outputs
from controller.runtime.queue import KeyedQueue
from controller.runtime.result import Done, Result
from controller.runtime.watches import Dispatcher, Reconciles
from evaluator.host.backoff import Backoff
from tests.waiting import run_beside, until
from tests.worlds.stages import RecordingCluster

if TYPE_CHECKING:
    from pathlib import Path

    from controller.api.meta import ObjectKey, Resource


class FlagNoteSpec(Model):
    """What the user asks for."""

    text: str
    """What is noted."""
    suspend: bool = False
    """Note nothing."""


FLAG_NOTE: Final = Kind(
    API_VERSION,
    "FlagNote",
    "flagnotes",
    short_name="fnote",
    description="FlagNote notes something about flags.",
    spec=FlagNoteSpec,
    columns=(PrinterColumn("Text", ".spec.text"),),
    rights=(*RECONCILED, SHOWN_BY_PAGE),
    modules="notes",
    quota=7,
)
WITH_IT: Final = (*KINDS, FLAG_NOTE)
RECONCILER: Final = """
def reconcile(resource, now):
    if not resource.spec["text"]:
        raise Waiting("NothingNoted", "there is no text yet")
"""


class FlagNoteReconciler:
    """Says what is noted."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        return Result(Done(resource.spec["text"]))

    def forget(self, key: ObjectKey) -> None:
        """Keeps nothing."""


def resources_of(rules: list[dict[str, Any]], verb: str) -> set[str]:
    return {name for rule in rules if verb in rule["verbs"] for name in rule["resources"]}


def test_it_has_a_definition_with_its_names_fields_and_columns() -> None:
    definition = custom_resource_definition(FLAG_NOTE)["spec"]
    assert definition["names"]["shortNames"] == ["fnote"]
    (version,) = definition["versions"]
    assert version["additionalPrinterColumns"][0]["jsonPath"] == ".spec.text"
    assert list(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]) == [
        "text",
        "suspend",
    ]


def test_roles_let_their_processes_do_what_the_record_says() -> None:
    controller = role_rules("flagstaff-controller", WITH_IT)
    assert "flagnotes" in resources_of(controller, "watch")
    assert "flagnotes/status" in resources_of(controller, "patch")
    assert "flagnotes" in resources_of(role_rules("flagstaff-page", WITH_IT), "list")
    assert role_rules("flagstaff-proxy", WITH_IT) == role_rules("flagstaff-proxy")


def test_the_webhook_is_asked_about_it_and_the_quota_counts_it() -> None:
    assert "flagnotes" in {name for rule in webhook_rules(WITH_IT) for name in rule["resources"]}
    assert quotas(WITH_IT)["count/flagnotes.flagstaff.dev"] == "7"


def test_the_processes_that_may_watch_it_do() -> None:
    assert FLAG_NOTE in watched_by("flagstaff-controller", WITH_IT)
    assert FLAG_NOTE in watched_by(PAGE, WITH_IT)
    assert FLAG_NOTE not in watched_by("flagstaff-proxy", WITH_IT)


def test_its_page_has_a_table_of_its_fields() -> None:
    assert "| `text` | required | What is noted. |" in field_table(FLAG_NOTE)


def test_the_page_of_conditions_has_its_reasons(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "reconciler.py").write_text(RECONCILER)
    page = reason_reference(WITH_IT, tmp_path)
    assert "### FlagNote" in page
    assert "| `NothingNoted` | waits for what is missing | there is no text yet |" in page


async def test_a_loop_reconciles_it_when_it_is_new() -> None:
    stages = [Reconciles(FLAG_NOTE)]
    cluster = RecordingCluster(stages)
    time = asyncio.get_running_loop().time
    queue: KeyedQueue[ObjectKey] = KeyedQueue(
        time, lambda: 0.0, Backoff(), places=1, group=lambda key: key.namespace
    )
    loop = Loop(
        FlagNoteReconciler(),
        cluster.objects,
        Outputs(cluster, Mock()),
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        queue=queue,
    )
    Dispatcher(cluster.objects, stages, {FLAG_NOTE.kind: loop})
    async with run_beside(loop.run()):
        cluster.put(
            {
                "apiVersion": API_VERSION,
                "kind": FLAG_NOTE.kind,
                "metadata": {"name": "monday"},
                "spec": {"text": "it rains"},
            }
        )
        await until(lambda: bool(cluster.writes))
    ready = Status.of(cluster.the(FLAG_NOTE.kind, "monday")).condition(READY)
    assert ready is not None
    assert (ready.status, ready.message) == ("True", "it rains")
