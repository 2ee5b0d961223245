"""A rollout whose metric server is away for two hours: it is held, and goes on by itself."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web

from controller.rollouts.metric_checks import MetricChecks
from tests.web_server import web_server
from tests.worlds.metrics import MetricWorld, metric_world
from tests.worlds.rollouts import Answers, ClusterWorld, definition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from controller.api.flagrollout import Metric
    from controller.api.rollout_status import MetricStatus
    from controller.rollouts.rollout_ports import MeasuredStep

ANALYSIS = {
    "interval": "1m",
    "metrics": [
        {"name": "errors", "templateRef": {"name": "errors"}, "thresholdRange": {"max": 0.01}},
        {
            "name": "payments",
            "type": "guardrail",
            "numerator": {"templateRef": {"name": "events"}, "templateVariables": {"event": "bad"}},
            "denominator": {"templateRef": {"name": "events"}, "templateVariables": {"event": "any"}},
        },
    ],
}
GOLDEN = """\
09:00 Progressing 1/2 10 %
      RolloutStarted: step 1/2 of main@sha1:2 (pay): 10% of users
09:01 Progressing 1/2 10 % errors Pass, payments Inconclusive
      Inconclusive: metric payments: the first check of the step: later ones count what is added
09:02 Progressing 1/2 10 % errors Pass, payments Pass
09:06 Progressing CheckError 1/2 10 % errors Error, payments Error
      CheckError: metric errors: 127.0.0.1: connection refused; metric payments: 127.0.0.1: connection refused
09:09 Paused CheckErrors 1/2 10 % errors Error, payments Error
      RolloutHeld: step 1/2 of main@sha1:2 (pay) is held: its checks fail to run: \
metric errors: 127.0.0.1: connection refused; metric payments: 127.0.0.1: connection refused
11:06 Progressing 2/2 50 %
      StepAdvanced: step 2/2 of main@sha1:2 (pay): 50% of users
11:07 Progressing 2/2 50 % errors Pass, payments Inconclusive
      Inconclusive: metric payments: the first check of the step: later ones count what is added
11:08 Progressing 2/2 50 % errors Pass, payments Pass
11:16 Succeeded - 0 %
      Promoted: main@sha1:2 (pay) is promoted: everybody gets it"""


@dataclass
class Asking(Answers):
    """Answers of real metric servers."""

    world: MetricWorld = field(kw_only=True)

    async def measure(
        self,
        step: MeasuredStep,
        metrics: Sequence[Metric],
        before: Sequence[MetricStatus],
        now: datetime,
        seconds: float,
    ) -> tuple[MetricStatus, ...]:
        checks = MetricChecks(self.world.objects, self.world.servers)
        return await checks.measure(step, metrics, before, now, seconds)


@dataclass
class Counters:
    """A Prometheus whose counters grow with each look; bad events are one in a thousand, for everybody."""

    looks: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        self.looks += 1
        events = self.looks * (100 if "candidate" in query else 900)
        value = 0.001 if query == "errors" else events / (1000 if "bad" in query else 1)
        result = [{"metric": {}, "value": [1.0, str(value)]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


@dataclass
class Transcript:
    """What changes, minute by minute."""

    cluster: ClusterWorld
    lines: list[str] = field(default_factory=list)
    last: str = ""
    said: int = 0

    async def follow(self, minutes: int) -> None:
        for _ in range(minutes):
            await self.cluster.wait(60)
            self.add()

    def add(self) -> None:
        status = self.cluster.status()
        text = f"{status.phase} - 0 %"
        for candidate in status.candidates:
            verdicts = ", ".join(f"{one.name} {one.verdict}" for one in candidate.metrics)
            share = f"{candidate.share or 0:g} %"
            words = (candidate.phase, candidate.reason, candidate.step_text or "-", share, verdicts)
            text = " ".join(filter(None, words))
        if text != self.last:
            self.lines.append(f"{self.cluster.now:%H:%M} {text}")
            self.last = text
        self.lines += [f"      {said}" for said in self.cluster.said[self.said :]]
        self.said = len(self.cluster.said)


async def test_a_metric_server_that_is_away_for_two_hours_holds_the_rollout() -> None:
    counters = Counters()
    route = web.get("/api/v1/query", counters.answer)
    async with contextlib.AsyncExitStack() as stack:
        world = await stack.enter_async_context(metric_world())
        cluster = ClusterWorld(answers=Asking(world=world))
        story = Transcript(cluster)
        async with web_server(route) as port:
            provider = {"type": "prometheus", "address": f"http://127.0.0.1:{port}"}
            world.template(provider, "errors")
            world.template(provider, 'events{arm="{{ arm }}",event="{{ variables.event }}"}', name="events")
            cluster.commit({"pay": definition("off")})
            cluster.rollout(analysis=ANALYSIS)
            await cluster.settle()
            cluster.commit({"pay": definition("new")}, "main@sha1:2")
            await cluster.settle()
            story.add()
            await story.follow(5)
        users = cluster.users()
        await story.follow(120)
        assert cluster.users() == users
        async with web_server(route, port=port):
            await story.follow(25)
    assert "\n".join(story.lines) == GOLDEN
