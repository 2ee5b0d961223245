"""Reviews over HTTP while one namespace sends some that take for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from controller.pods.carried_flags import WorkloadOrders
from controller.pods.judging import HELPERS, MOST_WAITING, Judges, NotJudged, seconds_of
from controller.pods.known_objects import KnownObjects
from controller.pods.webhooks import LIMITS, Validator, WorkloadWebhook
from controller.runtime.cache import Cache
from controller.runtime.helpers import Helpers
from controller.runtime.limits import Places
from evaluator.http.listener import Listener
from evaluator.http.messages import Request
from evaluator.http.routes import merge
from tests.unit.controller.pods.judges import spin, spin_for_hostile_ones
from tests.unit.controller.pods.test_workload_webhook import carrying
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANIFEST = Path(__file__).parents[4] / "deploy/components/admission/admission.yaml"


@dataclass
class AdmissionPort:
    """The port of one replica, and its judges of objects and of workloads."""

    url: str
    client: aiohttp.ClientSession
    objects: Judges
    workloads: Judges

    async def post(self, path: str, namespace: str, body: dict[str, Any], wait: str = "30s") -> Any:
        request = {"uid": "u", "namespace": namespace, "object": body}
        async with self.client.post(f"{self.url}{path}?timeout={wait}", json={"request": request}) as answer:
            return (await answer.json())["response"] if answer.status == 200 else answer.status

    async def post_object(self, namespace: str, folder: str = "", wait: str = "30s") -> Any:
        metadata = {"name": "x", "namespace": namespace}
        spec = {"flagSpec": {}, "folder": folder}
        body = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag"}
        return await self.post("/validate", namespace, {**body, "metadata": metadata, "spec": spec}, wait)


@pytest.fixture
async def world() -> AsyncIterator[AdmissionPort]:
    async with contextlib.AsyncExitStack() as stack:
        judges = []
        for _ in range(2):
            helpers = Helpers(("tests.unit.controller.pods.judges",))
            stack.push_async_callback(helpers.close)
            judges.append(Judges(helpers, Places(HELPERS, most_waiting=MOST_WAITING)))
        cache = Cache()
        webhook = WorkloadWebhook(
            cache,
            True,
            (),
            lambda: True,
            judges[1],
            lambda _kind, _outcome: None,
            lambda: datetime(2026, 1, 2, tzinfo=UTC),
            WorkloadOrders(KnownObjects(cache, ()), lambda _namespace: None),
        )
        validator = Validator(spin_for_hostile_ones, judges[0], lambda _kind, _outcome: None)
        listener = Listener(merge(webhook.routes(), validator.routes()), LIMITS, name="admission")
        port = await listener.start("127.0.0.1", 0)
        stack.push_async_callback(listener.drain, 0.0)
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield AdmissionPort(f"http://127.0.0.1:{port}", client, *judges)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def pids_in(folder: Path) -> list[int]:
    """The processes that work without end, once there is one."""
    await until(lambda: os.listdir(folder))
    return [int(name) for name in os.listdir(folder)]


async def test_eight_endless_reviews_of_one_namespace_keep_no_other_from_an_answer(
    world: AdmissionPort, tmp_path: Path
) -> None:
    hostile = [asyncio.create_task(world.post_object("hostile", str(tmp_path))) for _ in range(8)]
    assert len(await pids_in(tmp_path)) == 1
    assert (await world.post("/inject-workload", "shop", carrying()))["allowed"]
    assert await world.post_object("shop") == {"uid": "u", "allowed": True}
    answered = [task.result() for task in hostile if task.done()]
    # One has its process, four may wait, and the API server need not wait for the rest.
    assert len(answered) == 3
    for response in answered:
        assert response["allowed"]
        assert "too many others of namespace hostile are being judged" in response["warnings"][0]
    for task in hostile:
        task.cancel()
    await asyncio.wait(hostile)


async def test_endless_reviews_of_workloads_of_one_namespace_keep_no_other_from_an_answer(
    world: AdmissionPort, tmp_path: Path
) -> None:
    hostile = [
        asyncio.create_task(world.workloads.judge("hostile", 30.0, spin, str(tmp_path))) for _ in range(5)
    ]
    await pids_in(tmp_path)
    assert (await world.post("/inject-workload", "shop", carrying()))["allowed"]
    response = await world.post("/inject-workload", "hostile", carrying())
    assert "too many others of namespace hostile are being judged" in response["status"]["message"]
    assert not any(task.done() for task in hostile)
    for task in hostile:
        task.cancel()
    await asyncio.wait(hostile)


async def test_a_review_ends_when_the_api_server_hangs_up(world: AdmissionPort, tmp_path: Path) -> None:
    asked = asyncio.create_task(world.post_object("shop", str(tmp_path)))
    (pid,) = await pids_in(tmp_path)
    asked.cancel()
    await until(lambda: not is_alive(pid))
    await until(lambda: world.objects.places.usage() == {})


async def test_a_review_ends_before_the_api_server_would_give_up(
    world: AdmissionPort, tmp_path: Path
) -> None:
    assert (await world.post_object("shop"))["allowed"]
    response = await world.post_object("shop", str(tmp_path), "2s")
    assert response["allowed"]
    assert "did not judge this object: that took longer than 1.6 seconds" in response["warnings"][0]
    (pid,) = await pids_in(tmp_path)
    await until(lambda: not is_alive(pid))


async def test_a_workload_whose_flags_are_not_judged_in_time_is_refused_for_that(
    world: AdmissionPort,
) -> None:
    response = await world.post("/inject-workload", "shop", carrying(), "0s")
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (504, "Timeout")
    assert "were not judged" in response["status"]["message"]


async def test_a_judgement_that_needs_too_much_memory_is_none(world: AdmissionPort) -> None:
    with pytest.raises(NotJudged, match="needs more memory than it may use"):
        await world.objects.judge("shop", 30.0, bytearray, 2**30)


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("timeout=5s", 4.0), ("timeout=1m0s", 24.0), ("", 8.0), ("timeout=soon", 8.0), ("timeout=1s&x=2", 0.8)],
)
def test_a_review_takes_a_part_of_what_the_api_server_waits(query: str, seconds: float) -> None:
    request = Request("POST", "/validate", query, (), b"", "10.0.0.1:1")
    assert seconds_of(request) == pytest.approx(seconds)
    request.waited = 0.5
    assert seconds_of(request) == pytest.approx(seconds - 0.5)


def test_no_webhook_of_the_installation_waits_for_less_than_a_review_takes() -> None:
    documents = yaml.load_all(MANIFEST.read_text(encoding="utf-8"), yaml.CSafeLoader)
    waits = [webhook["timeoutSeconds"] for document in documents for webhook in document.get("webhooks", ())]
    assert len(waits) == 5
    for wait in waits:
        assert seconds_of(Request("POST", "/", f"timeout={wait}s", (), b"", "")) < wait
