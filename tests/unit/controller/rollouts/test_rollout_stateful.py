"""Whatever people, webhooks, metrics and crashes do in whatever order: real users at the real evaluator get a
definition only as the rules of rollouts say.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.worlds.rollout_states import KEYS, STEPS, StatefulWorld

keys = st.sampled_from(KEYS)
changes = st.dictionaries(keys, st.sampled_from(["off", "on", "new"]))
VERBS = ("abort", "promote", "retry", "resume")


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

    @initialize(changes=st.fixed_dictionaries({key: st.sampled_from(["on", "new"]) for key in KEYS}))
    def begin(self, changes: dict[str, str]) -> None:
        self.commit(changes)

    @rule(changes=changes)
    def commit(self, changes: dict[str, str]) -> None:
        """An empty change is one of a flag that the rollout does not select."""
        world = self.world
        others = [key for key in world.present if changes.get(key, world.desired[key]) == world.desired[key]]
        before = [world.users(key) for key in others]
        for key, variant in changes.items():
            if key in world.present and variant != world.desired[key]:
                world.desired[key] = variant
                self.oracle.commit(key, variant)
        world.other += not changes
        world.write_flags()
        assert [world.users(key) for key in others] == before, "other flags moved users"
        self.settle()

    @rule(key=keys, variant=st.sampled_from(["off", "on", "new"]))
    def commit_and_return(self, key: str, variant: str) -> None:
        """Another definition of a flag, and the one before again."""
        before = self.world.desired[key]
        self.commit({key: variant})
        self.commit({key: before})

    @rule(key=keys, away=st.sampled_from(["absent", "disabled"]))
    def delete_or_restore(self, key: str, away: str) -> None:
        world = self.world
        listed: set[str] = getattr(world, away)
        listed ^= {key}
        if key in world.present:
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

    @rule(key=keys, minutes=st.integers(1, 20), verb=st.sampled_from(["resume", "resume", "abort", "wait"]))
    def override_for_a_while(self, key: str, minutes: int, verb: str) -> None:
        """An override that ends by itself, and what somebody decides then."""
        self.override(key, minutes, audience=False)
        self.wait(minutes + 1)
        if verb == "wait":
            self.wait(11)
        else:
            self.ask(key, verb)

    @rule(key=keys)
    def end_override(self, key: str) -> None:
        if self.world.overridden(key):
            self.world.cluster.remove("FlagOverride", f"stop-{key}")
            self.settle()

    @rule(key=keys, verb=st.sampled_from(["approve", "approve", "misjudge", *VERBS]))
    def ask(self, key: str, verb: str) -> None:
        """Somebody asks for something about the candidate of a flag; `flagstaff` refuses that in a suspended
        rollout.
        """
        candidate = self.world.candidate_of(key)
        if candidate is not None and not self.world.suspended:
            gate = {"approve": candidate.gate, "misjudge": str((candidate.step or 0) + 2)}.get(verb, "again")
            self.oracle.take_request(verb, candidate)
            self.requests += 1
            name = "approve" if verb == "misjudge" else verb
            self.world.annotate(**{name: f"{candidate.digest[7:19]}/{gate}/{self.requests}"})
            self.settle()

    @rule(
        change=st.sampled_from(["frozen", "suspended", "steps", "after_override"]),
        steps=st.sampled_from(STEPS),
    )
    def edit(self, change: str, steps: list[dict[str, Any]]) -> None:
        """Somebody edits the FlagRollout."""
        world = self.world
        if change == "steps":
            world.steps = steps
        elif change == "after_override":
            world.after_override = "Continue" if world.after_override == "Hold" else "Hold"
        else:
            setattr(world, change, not getattr(world, change))
        world.write_rollout()
        self.settle()

    # -- answers, time and crashes

    @rule(name=st.sampled_from(["more", "stop"]), verdict=st.sampled_from(["Pass", "Fail", "Fail", "Error"]))
    def answer(self, name: str, verdict: str) -> None:
        self.world.answers.hooks[name] = verdict
        self.world.stoppable |= (name, verdict) == ("stop", "Pass")

    @rule(verdict=st.sampled_from(["Pass", "Pass", "Pass", "Fail", "Inconclusive", "Error"]))
    def measure(self, verdict: str) -> None:
        self.world.answers.verdict = verdict
        self.world.stoppable |= verdict == "Fail"

    @rule(minutes=st.integers(1, 12))
    def wait(self, minutes: int) -> None:
        self.world.run(self.world.pass_time(minutes * 60))

    @rule()
    def wait_for_a_step(self) -> None:
        self.wait(11)

    @rule(writes=st.integers(0, 3))
    def kill(self, writes: int) -> None:
        """The controller dies at one of its next writes."""
        self.world.cluster.writes_left = writes


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
