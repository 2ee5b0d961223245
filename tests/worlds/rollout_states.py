"""Rollouts in a cluster in memory, with an oracle of what evaluators may serve after each write."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.flagoverride import KIND as OVERRIDE
from controller.delivery.overrides import in_force
from tests.worlds.objects import NAMESPACE
from tests.worlds.rollout_oracle import Oracle
from tests.worlds.rollouts import Answers, ClusterWorld, KilledError, definition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from controller.api.flagrollout import Metric, Webhook
    from controller.api.rollout_status import CandidateStatus, MetricStatus
    from controller.rollouts.rollout_ports import HookAnswer, HookCall, MeasuredStep

KEYS: Final = ("pay", "pay-fast")
STEPS: Final[tuple[list[dict[str, Any]], ...]] = (
    [{"share": 10, "seconds": 600, "approval": False}, {"share": 50, "seconds": 600, "approval": True}],
    [
        {"share": 5, "seconds": 300, "approval": True},
        {"share": 30, "seconds": 60, "approval": False},
        {"share": 80, "seconds": 600, "approval": False},
    ],
    [
        {"share": 20, "seconds": 60, "approval": False, "at": "2026-03-02T10:15:00+01:00"},
        {"share": 60, "seconds": 60, "approval": False, "at": "2026-03-02T09:40:00Z"},
    ],
)
HOOKS: Final = (
    {"name": "more", "type": "confirm-increase", "url": "https://h.example/"},
    {"name": "stop", "type": "rollback", "url": "https://h.example/"},
)
ANALYSIS: Final = {
    "interval": "3m",
    "failureLimit": 2,
    "metrics": [{"name": "errors", "templateRef": {"name": "t"}, "thresholdRange": {"max": 1}}],
}


class WatchedAnswers(Answers):
    """Tells the oracle what is answered."""

    oracle: Oracle

    async def measure(
        self,
        step: MeasuredStep,
        metrics: Sequence[Metric],
        before: Sequence[MetricStatus],
        now: datetime,
        seconds: float,
    ) -> tuple[MetricStatus, ...]:
        for metric in metrics:
            self.oracle.take_verdict(step.flags, metric, self.verdict)
        return await super().measure(step, metrics, before, now, seconds)

    async def ask(self, hook: Webhook, call: HookCall) -> HookAnswer:
        answer = await super().ask(hook, call)
        self.oracle.take_answer(hook, call.flags, answer.verdict)
        return answer


class StatefulWorld(ClusterWorld):
    """A FlagRollout of two flags, beside a flag that it does not select."""

    def __init__(self) -> None:
        answers = WatchedAnswers(hooks={"stop": "Fail"})
        super().__init__(answers=answers)
        self.loop = asyncio.new_event_loop()
        self.desired = dict.fromkeys(KEYS, "off")
        self.other = 0
        self.absent: set[str] = set()
        self.disabled: set[str] = set()
        self.steps, self.frozen, self.suspended, self.after_override = STEPS[0], False, False, "Hold"
        self.oracle = answers.oracle = Oracle(self, dict(self.desired))
        self.part = flagshard.finder(self.cluster.objects.get, NAMESPACE)
        self.write_flags()
        self.write_rollout()
        self.run(self.settle())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Let controllers work; one that is killed is followed by another."""
        try:
            self.loop.run_until_complete(work)
        except KilledError:
            self.cluster.writes_left = None
            self.start()
            self.loop.run_until_complete(self.settle())

    # -- what is written

    def write_flags(self) -> None:
        flags = {
            key: definition(self.desired[key], state="DISABLED" if key in self.disabled else "ENABLED")
            for key in KEYS
            if key not in self.absent
        }
        self.commit({**flags, "other": definition(targeting={"==": [1, self.other]})})

    def write_rollout(self) -> None:
        now = self.now
        freeze = {"from": f"{now:%Y-%m-%dT%H:%M:%SZ}", "to": "2030-01-01T00:00:00Z"}
        self.rollout(
            steps=[
                {"share": step["share"], "minDuration": f"{step['seconds']}s"}
                | ({"approval": "Required"} if step["approval"] else {})
                | ({"at": step["at"]} if "at" in step else {})
                for step in self.steps
            ],
            webhooks=list(HOOKS),
            analysis=ANALYSIS,
            freeze=[freeze] if self.frozen else [],
            suspend=self.suspended,
            afterOverride=self.after_override,
        )

    # -- what the controllers do

    async def turn(self) -> bool:
        """Each written status is one that evaluators may have got."""
        worked = await super().turn()
        self.note_stops()
        self.oracle.check()
        return worked

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, moment by moment."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            due = [moment for moment in self.due.values() if moment > self.now]
            moment = min([*due, end])
            self.oracle.pass_time((moment - self.now).total_seconds())
            self.now = moment
            await self.settle()

    def note_stops(self) -> None:
        """A definition is stopped for a cause that there is."""
        for candidate in self.status().candidates:
            if candidate.phase in {"RollingBack", "Failed"}:
                new = {key for key in candidate.flags if not self._is_known_to_be_stopped(key)}
                assert not new or self.stoppable, f"{candidate.reason} without a cause"
                self.oracle.stop(dict.fromkeys(new, ""))

    stoppable = False
    """Whether a metric was bad, or a webhook asked for a rollback, at any time."""

    def _is_known_to_be_stopped(self, key: str) -> bool:
        run = self.oracle.runs.get(key)
        return run is None or run.stopped

    # -- what is so

    @property
    def present(self) -> set[str]:
        return {*KEYS} - self.absent - self.disabled

    def overridden(self, key: str) -> bool:
        listed = self.cluster.objects.of_kind(OVERRIDE)
        return any(override.flag == key for override in in_force(listed, self.now.timestamp()))

    def hides(self, key: str) -> bool:
        """Whether an override hides a flag, or another one of its candidate: they stand still together."""
        candidate = self.candidate_of(key)
        return any(map(self.overridden, {key} if candidate is None else candidate.flags))

    def candidate_of(self, key: str) -> CandidateStatus | None:
        listed = [one for one in self.status().candidates if key in one.flags]
        return listed[0] if listed else None

    def is_candidate(self, key: str) -> bool:
        return self.candidate_of(key) is not None
