"""What a webhook is sent, and what its answers mean."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from controller.api.fields import read
from controller.api.flagrollout import Webhook
from controller.api.meta import ObjectKey
from controller.rollouts.metric_servers import WebhookCalls
from controller.rollouts.rollout_ports import HookAnswer, HookCall
from tests.web_server import web_server
from tests.worlds.metrics import MetricWorld, metric_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALL = HookCall(
    rollout=ObjectKey("FlagRollout", "shop", "checkout"),
    phase="Progressing",
    checksum="sha256:0a1b",
    revision="main@sha1:0a1b",
    step="2/4",
    share=10.0,
    flags=("new-checkout", "checkout/v2"),
)


@dataclass
class Gate:
    """A server that gives each of these answers in turn, and the last one from then on; 0: it hangs up."""

    answers: list[int] = field(default_factory=lambda: [200])
    requests: list[tuple[web.Request, bytes]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request, await request.read()))
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            assert request.transport is not None
            request.transport.abort()
        if status == 1:
            await asyncio.sleep(1)
        return web.Response(status=max(status, 200), text="password: hunter2" * 10_000)


@pytest.fixture
async def world() -> AsyncIterator[MetricWorld]:
    async with metric_world() as opened:
        yield opened


async def ask(world: MetricWorld, gate: Gate, path: str = "/gate", **spec: Any) -> HookAnswer:
    async with web_server(web.post("/{path:.*}", gate.answer)) as port:
        url = f"http://127.0.0.1:{port}{path}"
        hook = read(Webhook, {"name": "qa", "type": "confirm-rollout", "url": url, **spec})
        return await WebhookCalls(world.servers).ask(hook, CALL)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "Pass"), (202, "Pass"), (204, "Pass"), (299, "Pass"), (302, "Fail"), (403, "Fail"),
        (404, "Fail"), (500, "Error"), (503, "Error"),
    ],
)  # fmt: skip
async def test_the_status_is_the_answer(world: MetricWorld, status: int, verdict: str) -> None:
    gate = Gate([status])
    assert await ask(world, gate, retries=3) == HookAnswer(verdict, f"127.0.0.1 answers {status}")  # type: ignore[arg-type]
    assert len(gate.requests) == 1, "an answer is not asked for again"


async def test_the_body_says_what_is_rolled_out(world: MetricWorld) -> None:
    gate = Gate()
    await ask(world, gate, metadata={"team": "pay"})
    (request, body) = gate.requests[0]
    assert request.content_type == "application/json"
    assert json.loads(body) == {
        "name": "checkout",
        "namespace": "shop",
        "phase": "Progressing",
        "checksum": "sha256:0a1b",
        "revision": "main@sha1:0a1b",
        "step": "2/4",
        "share": 10.0,
        "flags": ["new-checkout", "checkout/v2"],
        "webhook": "qa",
        "type": "confirm-rollout",
        "metadata": {"team": "pay"},
    }


async def test_a_webhook_that_does_not_answer_is_asked_again(world: MetricWorld) -> None:
    gate = Gate([0, 0, 200])
    assert (await ask(world, gate, retries=2)).verdict == "Pass"
    assert len(gate.requests) == 3


async def test_no_answer_is_an_error_and_no_refusal(world: MetricWorld) -> None:
    cut, slow = Gate([0]), Gate([1])
    assert (await ask(world, cut, retries=1)).verdict == "Error"
    assert len(cut.requests) == 2
    answer = await ask(world, slow, timeout="100ms")
    assert answer == HookAnswer("Error", "127.0.0.1: no answer within 0.1 s")


async def test_the_token_is_sent_and_neither_it_nor_the_url_is_shown(world: MetricWorld) -> None:
    world.secrets["hook"] = {"token": b"s3cr3t-token\n"}
    gate = Gate([403])
    answer = await ask(world, gate, "/services/T0/B0/s3cr3t-path", secretRef={"name": "hook"})
    assert gate.requests[0][0].headers["Authorization"] == "Bearer s3cr3t-token"
    assert answer == HookAnswer("Fail", "127.0.0.1 answers 403")


@pytest.mark.parametrize(("secret", "words"), [(None, "does not exist"), ({"a": b"b"}, "'token' is missing")])
async def test_without_its_token_a_webhook_is_not_asked(
    world: MetricWorld, secret: dict[str, bytes] | None, words: str
) -> None:
    if secret is not None:
        world.secrets["hook"] = secret
    gate = Gate()
    answer = await ask(world, gate, secretRef={"name": "hook"})
    assert (answer.verdict, gate.requests) == ("Error", [])
    assert words in answer.message
