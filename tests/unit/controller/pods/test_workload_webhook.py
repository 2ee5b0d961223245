"""Reviews of workloads that carry flags, in the form that the API server reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.api.meta import ObjectKey, Resource
from controller.delivery.standing_orders import ORDER, ORDERS_LABEL
from controller.pods import installation
from controller.pods.carried_flags import WorkloadOrders
from controller.pods.known_objects import KnownObjects
from controller.pods.webhooks import WorkloadWebhook
from controller.runtime.cache import Cache
from tests.worlds.objects import workload
from tests.worlds.pods import apply_response, ask_webhook, judges_at_once, read_review

GOOD = '{"flags": {}}'
BAD = '{"flags": {"banner": {}}}'


def carrying(text: str | None = GOOD, kind: str = "Deployment", **metadata: Any) -> dict[str, Any]:
    """A workload with flags, if a text is given."""
    return workload(kind, {} if text is None else {installation.FLAGS: text}, **metadata)


@dataclass
class Reviews:
    """One replica of admission."""

    enabled: bool = True
    ready: bool = True
    namespaces: tuple[str, ...] = ()
    objects: Cache = field(default_factory=Cache)
    reviewed: list[tuple[str, str]] = field(default_factory=list)

    async def post(self, content: Any) -> tuple[int, dict[str, Any]]:
        webhook = WorkloadWebhook(
            self.objects,
            self.enabled,
            self.namespaces,
            lambda: self.ready,
            judges_at_once(),
            lambda kind, outcome: self.reviewed.append((kind, outcome)),
            lambda: datetime(2026, 1, 2, tzinfo=UTC),
            WorkloadOrders(KnownObjects(self.objects, self.namespaces), lambda _namespace: None),
        )
        return await read_review(ask_webhook(webhook.routes(), "/inject-workload", content))

    async def review(self, given: dict[str, Any], before: dict[str, Any] | None = None) -> dict[str, Any]:
        user = {"username": "alice"}
        request = {"uid": "u", "namespace": "shop", "object": given, "oldObject": before, "userInfo": user}
        status, response = await self.post({"request": request})
        assert (status, response["uid"]) == (200, "u")
        return response


async def test_workload_with_flags_is_marked_with_its_user_and_time() -> None:
    world = Reviews()
    given = carrying()
    after = apply_response(given, await world.review(given))
    record = json.loads(after["metadata"]["annotations"][installation.APPLIED])
    assert (record["by"], record["at"]) == ("alice", "2026-01-02T00:00:00Z")
    assert world.reviewed == [("Deployment", "marked")]


async def test_marked_workload_is_let_through() -> None:
    world = Reviews()
    given = carrying()
    after = apply_response(given, await world.review(given))
    assert await world.review(after, after) == {"uid": "u", "allowed": True}
    assert world.reviewed[-1] == ("Deployment", "unchanged")


async def test_bad_flags_are_refused_with_their_place() -> None:
    world = Reviews()
    response = await world.review(carrying(BAD))
    message = response["status"]["message"]
    assert message.startswith("annotation openfeature.dev/flags: line 1: $.flags.banner")
    assert world.reviewed == [("Deployment", "refused")]


async def test_bad_flags_that_are_stored_do_not_hold_up_their_workload() -> None:
    stored = carrying(BAD)
    assert (await Reviews().review(carrying(BAD, labels={"team": "shop"}), stored))["allowed"]


async def test_warnings_of_the_flags_are_shown() -> None:
    response = await Reviews().review(carrying('{"flags": {}, "flagz": 1}'))
    assert response["allowed"]
    assert len(response["warnings"]) == 1


@pytest.mark.parametrize("carried", [GOOD, None])
async def test_remark_and_warning_say_what_a_workload_asked_for_in_vain(carried: str | None) -> None:
    world = Reviews()
    world.objects.learn(
        Resource.of({"kind": "FeatureFlagConfiguration", "metadata": {"name": "base", "namespace": "shop"}})
    )
    given = carrying(carried)
    given["metadata"]["annotations"] |= {ORDER: "base", installation.LOG_LEVEL: "debug"}
    response = await world.review(given)
    miss = (
        f"annotation {installation.LOG_LEVEL} of the Deployment is not read; move it to "
        "spec.template.metadata.annotations"
    )
    assert response["warnings"][-1] == miss
    after = apply_response(given, response)
    assert after["metadata"]["annotations"][installation.REMARKS].endswith(f"; {miss}")
    assert await world.review(after, after) == {"uid": "u", "allowed": True, "warnings": [miss]}


async def test_workload_that_carries_flags_no_longer_is_cleared() -> None:
    world = Reviews()
    before = apply_response(carrying(), await world.review(carrying()))
    after = json.loads(json.dumps(before))
    del after["metadata"]["annotations"][installation.FLAGS]
    response = await world.review(after, before)
    cleared = apply_response(after, response)
    assert cleared["metadata"]["annotations"] == {}
    assert "no longer carries flags" in response["warnings"][0]


async def test_run_of_a_cron_job_is_let_through() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u"}
    given = carrying(BAD, "Job", ownerReferences=[owner])
    assert await Reviews().review(given) == {"uid": "u", "allowed": True}


async def test_workload_that_names_a_cron_job_as_its_owner_is_reviewed_like_any_other() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u"}
    forged = {installation.FLAGS: GOOD, installation.APPLIED: '{"by": "mallory", "at": "2020", "added": []}'}
    given = workload(annotations=forged, ownerReferences=[owner])
    after = apply_response(given, await Reviews().review(given))
    assert json.loads(after["metadata"]["annotations"][installation.APPLIED])["by"] == "alice"
    assert not (await Reviews().review(carrying(BAD, ownerReferences=[owner])))["allowed"]


@pytest.mark.parametrize(
    ("world", "message"),
    [
        (Reviews(enabled=False), "the controller runs without --direct-sets, so nothing would serve these"),
        (Reviews(namespaces=("pay", "search")), "the controller works in pay, search alone; remove it, or"),
    ],
)
async def test_flags_that_nobody_would_serve_are_refused(world: Reviews, message: str) -> None:
    assert message in (await world.review(carrying()))["status"]["message"]


async def test_name_of_another_object_is_refused() -> None:
    world = Reviews()
    world.objects.learn(Resource(ObjectKey("FeatureFlag", "shop", "checkout"), "u", 1, "1"))
    assert "which a FeatureFlag has already" in (await world.review(carrying()))["status"]["message"]


async def test_replica_that_does_not_know_all_names_answers_503() -> None:
    assert (await Reviews(ready=False).post(b"{}"))[0] == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"request": {}}',
        b'{"request": {"object": {"kind": "Pod", "metadata": {}, "spec": {}}}}',
        b'{"request": {"object": {"kind": [], "metadata": {}, "spec": {}}}}',
        b'{"request": {"object": {"kind": "Job", "metadata": [], "spec": {}}}}',
        b'{"request": {"object": {"kind": "Job", "metadata": {}, "spec": {}}, "oldObject": []}}',
        b"[" * 5_000,
    ],
)
async def test_what_is_no_review_of_a_workload_is_400(body: bytes) -> None:
    assert (await Reviews().post(body))[0] == 400


async def test_an_order_that_cannot_be_followed_refuses_the_workload_and_a_good_one_marks_it() -> None:
    world = Reviews()
    ordered = workload(annotations={ORDER: "kill"})
    refusal = await world.review(ordered)
    assert "namespace shop has no FlagSet" in refusal["status"]["message"]
    world.objects.learn(Resource(ObjectKey("FlagSet", "shop", "kill"), "u", 1, "1"))
    made = apply_response(ordered, await world.review(ordered))
    assert made["metadata"]["labels"] == {ORDERS_LABEL: "true"}
    both = workload(annotations={ORDER: "kill", installation.FLAGS: GOOD})
    made = apply_response(both, await world.review(both))
    assert made["metadata"]["labels"] == {ORDERS_LABEL: "true", installation.DIRECT_SET: "true"}
    assert world.reviewed == [("Deployment", "refused"), ("Deployment", "marked"), ("Deployment", "marked")]
