"""A rollout without a cluster: what people, evaluators and checks do, command by command, and what the state
machine makes of it. A trace is a text: commands, and below each what changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.api.objects.fields import read
from controller.api.rollouts.flagrollout import ABORT, APPROVE, PAUSE, PROMOTE, RETRY, FlagRolloutSpec
from controller.api.rollouts.rollout_status import FlagRolloutStatus, MetricStatus, Revision, Served
from controller.rollouts.analysis.rollout_ports import HookAnswer
from controller.rollouts.machine.advance import advance
from controller.rollouts.machine.due import due
from controller.rollouts.machine.observation import Misfit, Observation
from evaluator.host.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.rollouts.machine.observation import Decision

MONDAY: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SPEC: Final = """
flagSetRef: {name: checkout}
flags: ["*"]
steps:
  - {audience: {ends_with: [{var: email}, "@example.com"]}, minDuration: 10m}
  - {share: 1, minDuration: 10m}
  - {share: 10, minDuration: 30m}
  - {share: 50, minDuration: 1h}
"""
ERRORS: Final = {"name": "errors", "templateRef": {"name": "t"}, "thresholdRange": {"max": 0.01}}
_ANNOTATIONS: Final = {
    "approve": APPROVE, "promote": PROMOTE, "abort": ABORT, "retry": RETRY, "pause": PAUSE,
}  # fmt: skip
_TICKS: Final = 40
"""Most decisions without time passing: more would be a loop."""


def digest_of(name: str) -> str:
    return f"sha256:{name}"


@dataclass
class RolloutWorld:
    """One FlagRollout `checkout`."""

    spec_text: dict[str, Any] = field(default_factory=lambda: yaml.safe_load(SPEC))
    now: datetime = MONDAY
    status: FlagRolloutStatus = field(default_factory=FlagRolloutStatus)
    promoted: str = "base"
    desired: str = "base"
    served: Served | None = field(default_factory=lambda: Served(served=4, total=4))
    check: str = "pass"
    hooks: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    misfit: Misfit | None = None
    asked: list[str] = field(default_factory=list)
    """What webhooks were asked, in order."""
    due_in: float | None = 0.0

    @property
    def spec(self) -> FlagRolloutSpec:
        return read(FlagRolloutSpec, self.spec_text)

    def observe(self) -> Observation:
        """What is so now, with the answers of all that is due."""
        candidate = None
        if self.desired != self.promoted:
            candidate = Revision(
                digest=digest_of(self.desired), revision=self.desired, flags=("pay",), count=1
            )
        observation = Observation(
            name="checkout",
            candidate=candidate,
            promoted=Revision(digest=digest_of(f"all-{self.promoted}"), shard=f"promoted-{self.promoted}"),
            desired=Revision(digest=digest_of(f"all-{self.desired}"), shard=f"promoted-{self.desired}"),
            misfit=self.misfit if candidate is not None else None,
            served=self.served,
            annotations=self.annotations,
        )
        asks = due(self.spec, self.status, observation, self.now)
        answers = {hook.name: self._answer(hook.name) for hook in asks.hooks}
        metrics = tuple(self._measure()) if asks.metrics else None
        self.asked += answers
        return Observation(
            **{name: getattr(observation, name) for name in Observation.__slots__}
            | {"answers": answers, "metrics": metrics}
        )

    def tick(self) -> Decision:
        """Decide once, and write the status."""
        decision = advance(self.spec, self.status, self.observe(), self.now)
        self.write(decision.status)
        self.due_in = decision.requeue_after
        return decision

    def write(self, status: FlagRolloutStatus) -> None:
        """What the API server stores, and what is read of it."""
        self.status = FlagRolloutStatus.model_validate(status.model_dump(by_alias=True, mode="json"))
        if status.promoted is not None and status.phase == "Succeeded" and self.desired == self.rolled_out:
            self.promoted = self.desired

    @property
    def rolled_out(self) -> str:
        """The state whose definitions are promoted, by the status."""
        digest = self.status.promoted.digest if self.status.promoted is not None else ""
        return digest.removeprefix("sha256:all-")

    def _measure(self) -> Iterator[MetricStatus]:
        word, _, of = self.check.partition(" ")
        verdict = {"pass": "Pass", "fail": "Fail", "error": "Error", "none": "Inconclusive"}[word]
        value = {"pass": 0.001, "fail": 0.02}.get(word)
        for metric in self.spec.analysis.metrics:
            mine = verdict if of in {"", metric.name} else "Pass"
            yield MetricStatus.model_validate(
                {
                    "name": metric.name,
                    "verdict": mine,
                    "value": value if mine == verdict else 0.001,
                    "threshold": "at most 0.01",
                }
            )

    def _answer(self, name: str) -> HookAnswer:
        word = self.hooks.get(name, "pass")
        verdict = {"pass": "Pass", "fail": "Fail", "error": "Error"}[word]
        return HookAnswer(verdict, f"it answers {word}")  # type: ignore[arg-type] # one of the three

    # -- traces

    def run(self, command: str) -> list[str]:
        """Do what a command says, and return what changed."""
        word, _, rest = command.partition(" ")
        if word in {"wait", "every"}:
            return self._wait(rest)
        getattr(self, f"_{word}")(rest)
        return self.settle()

    def settle(self) -> list[str]:
        """Decide until only time changes something."""
        lines: list[str] = []
        for _ in range(_TICKS):
            lines += self._tick_lines()
            if self.due_in != 0.0:
                return lines
        raise AssertionError("it decides without end")

    def _tick_lines(self) -> list[str]:
        before = self.line
        decision = self.tick()
        lines = [f"{self._clock} {self.line}"] * (self.line != before)
        return lines + [f"    {event.reason}: {event.message}" for event in decision.events]

    @property
    def line(self) -> str:
        status = self.status
        parts = [status.phase or "-", status.step_text or "-", status.share_text or "0%", status.reason or ""]
        return " ".join(filter(None, parts))

    @property
    def _clock(self) -> str:
        return self.now.strftime("%a %H:%M:%S")

    def _wait(self, text: str) -> list[str]:
        seconds = parse_duration(text)
        assert seconds is not None, text
        end, lines = self.now + timedelta(seconds=seconds), []
        while self.due_in is not None and self.now + timedelta(seconds=self.due_in) <= end:
            self.now += timedelta(seconds=max(self.due_in, 0.0))
            lines += self.settle()
        self.now = end
        return lines + self.settle()

    def _new(self, _: str) -> None:
        """The rollout is created."""

    def _commit(self, name: str) -> None:
        self.desired = name

    def _spec(self, text: str) -> None:
        self.spec_text = {**self.spec_text, **yaml.safe_load(text)}

    def _analysis(self, text: str) -> None:
        """Checks of one metric, unless the text has others."""
        self.spec_text = {**self.spec_text, "analysis": {"metrics": [ERRORS], **yaml.safe_load(text)}}

    def _at(self, text: str) -> None:
        """Begin at another time."""
        self.now = datetime.fromisoformat(text)

    def _served(self, text: str) -> None:
        served, _, total = text.partition("/")
        self.served = Served(served=int(served), total=int(total)) if total else None

    def _check(self, text: str) -> None:
        self.check = text

    def _hook(self, text: str) -> None:
        name, _, word = text.partition(" ")
        self.hooks[name] = word

    def _annotate(self, text: str) -> None:
        name, _, value = text.partition(" ")
        self.annotations[_ANNOTATIONS[name]] = value

    def _remove(self, name: str) -> None:
        del self.annotations[_ANNOTATIONS[name]]

    def _unfit(self, text: str) -> None:
        reason, _, message = text.partition(" ")
        self.misfit = Misfit(reason, message) if reason else None

    def _clock_by(self, text: str) -> None:
        sign = -1 if text.startswith("-") else 1
        self.now += sign * timedelta(seconds=parse_duration(text.lstrip("-")) or 0.0)

    def _restart(self, _: str) -> None:
        """Another controller takes over: it knows the status alone."""
