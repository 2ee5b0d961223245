"""Whatever people, webhooks, metrics and crashes do in whatever order: real users at the real evaluator get a
definition only as the rules of rollouts say.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.unit.controller.rollouts.stateful_world import KEYS, STEPS, StatefulWorld

keys = st.sampled_from(KEYS)
variants = st.sampled_from(["off", "on", "new"])


class Rollouts(RuleBasedStateMachine):
    """Properties: see `Oracle`."""

    def __init__(self) -> None:
        super().__init__()
        self.world = StatefulWorld()
        self.oracle = self.world.oracle
        self.requests = 0

    def teardown(self) -> None:
        self.world.loop.close()

    def settle(self) -> None:
        self.world.run(self.world.settle())

    # -- commits

    @rule(changes=st.dictionaries(keys, variants, min_size=1))
    def commit(self, changes: dict[str, str]) -> None:
        world = self.world
        others = [key for key in world.present if changes.get(key, world.desired[key]) == world.desired[key]]
        before = [world.users(key) for key in others]
        for key, variant in changes.items():
            if key in world.present and variant != world.desired[key]:
                world.desired[key] = variant
                self.oracle.commit(key, variant)
        world.write_flags()
        assert [world.users(key) for key in others] == before, "other flags moved users"
        self.settle()

    @rule()
    def commit_of_another_flag(self) -> None:
        world = self.world
        before = [world.users(key) for key in world.present]
        world.other += 1
        world.write_flags()
        assert [world.users(key) for key in world.present] == before
        self.settle()

    @rule(key=keys)
    def delete_or_restore(self, key: str) -> None:
        self.world.absent ^= {key}
        self._write_presence(key)

    @rule(key=keys)
    def disable_or_enable(self, key: str) -> None:
        self.world.disabled ^= {key}
        self._write_presence(key)

    def _write_presence(self, key: str) -> None:
        world = self.world
        if key in world.disabled and key not in world.absent:
            self.oracle.disable(key)
        elif key in world.present:
            self.oracle.enable(key, world.desired[key])
        world.write_flags()
        self.settle()

    # -- people

    @rule(key=keys, minutes=st.integers(1, 30), audience=st.booleans())
    def override(self, key: str, minutes: int, audience: bool) -> None:
        world = self.world
        spec: dict[str, Any] = {"audience": {"==": [{"var": "beta"}, True]}} if audience else {}
        world.override("off", f"stop-{key}", flag=key, minutes=minutes, **spec)
        self.settle()

    @rule(key=keys)
    def end_override(self, key: str) -> None:
        if self.world.overridden(key):
            self.world.cluster.remove("FlagOverride", f"stop-{key}")
            self.settle()

    @rule(key=keys, right=st.booleans())
    def approve(self, key: str, right: bool) -> None:
        candidate = self.world.candidate_of(key)
        if candidate is None:
            return
        gate = candidate.gate if right else str((candidate.step or 0) + 2)
        for flag in candidate.flags if right else ():
            if (run := self.oracle.runs.get(flag)) is not None:
                run.approved.add(gate)
        self._ask("approve", f"{candidate.digest[7:19]}/{gate}")

    @rule(key=keys)
    def abort(self, key: str) -> None:
        candidate = self.world.candidate_of(key)
        if candidate is not None and candidate.phase not in {"Failed", "RollingBack"}:
            self.oracle.stop(candidate.flags)
            self._ask("abort", candidate.digest)

    @rule(key=keys)
    def promote(self, key: str) -> None:
        candidate = self.world.candidate_of(key)
        if candidate is not None:
            self.oracle.start_again(candidate.flags, promote=True)
            self._ask("promote", candidate.digest)

    @rule(key=keys)
    def retry(self, key: str) -> None:
        candidate = self.world.candidate_of(key)
        if candidate is not None and candidate.phase == "Failed":
            self.oracle.start_again(candidate.flags)
            self._ask("retry", candidate.digest)

    @rule(key=keys)
    def resume(self, key: str) -> None:
        candidate = self.world.candidate_of(key)
        if candidate is None:
            return
        for flag in candidate.flags:
            if (run := self.oracle.runs.get(flag)) is not None:
                run.resumed = True
        self._ask("resume", candidate.digest)

    def _ask(self, name: str, value: str) -> None:
        self.requests += 1
        gate = "" if name == "approve" else "/again"
        self.world.annotate(**{name: f"{value}{gate}/{self.requests}"})
        self.settle()

    @rule()
    def freeze_or_thaw(self) -> None:
        self.world.frozen = not self.world.frozen
        self._write_rollout()

    @rule()
    def suspend_or_resume(self) -> None:
        self.world.suspended = not self.world.suspended
        self._write_rollout()

    @rule(steps=st.sampled_from(STEPS))
    def edit_steps(self, steps: list[dict[str, Any]]) -> None:
        self.world.steps = steps
        self._write_rollout()

    @rule(after=st.sampled_from(["Hold", "Continue"]))
    def edit_after_override(self, after: str) -> None:
        self.world.after_override = after
        self._write_rollout()

    def _write_rollout(self) -> None:
        self.world.write_rollout()
        self.settle()

    # -- answers, time and crashes

    @rule(name=st.sampled_from(["more", "stop"]), verdict=st.sampled_from(["Pass", "Fail", "Error"]))
    def answer(self, name: str, verdict: str) -> None:
        self.world.answers.hooks[name] = verdict
        self.world.stoppable |= (name, verdict) == ("stop", "Pass")

    @rule(verdict=st.sampled_from(["Pass", "Pass", "Fail", "Inconclusive", "Error"]))
    def measure(self, verdict: str) -> None:
        self.world.answers.verdict = verdict
        self.world.stoppable |= verdict == "Fail"

    @rule(minutes=st.sampled_from([1, 2, 5, 10, 11]))
    def wait(self, minutes: int) -> None:
        self.world.run(self.world.pass_time(minutes * 60))

    @rule(writes=st.integers(0, 3))
    def kill(self, writes: int) -> None:
        """The controller dies at one of its next writes."""
        self.world.cluster.writes_left = writes


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
