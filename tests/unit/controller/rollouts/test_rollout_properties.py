"""What always holds of a rollout, whatever happens to it in whatever order."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.rollouts.machine.advance import advance
from tests.unit.controller.rollouts.rollout_world import RolloutWorld, digest_of

COMMANDS = st.sampled_from(
    [
        "commit A", "commit B", "commit base", "wait 1m", "wait 10m", "wait 2h", "served 4/4", "served 1/4",
        "served none", "check pass", "check fail", "check none", "check error", "hook stop pass",
        "hook stop fail", "hook more fail", "hook more pass", "annotate approve sha256:A/2",
        "annotate approve sha256:B/2", "annotate approve sha256:A/promotion", "annotate promote sha256:A",
        "annotate abort sha256:A", "annotate abort sha256:B", "annotate retry 1", "annotate retry 2",
        "annotate pause true", "annotate pause false", "clock_by -20m", "clock_by 1h",
        "spec {steps: [{share: 5}, {share: 20, approval: Required}]}",
        "spec {steps: [{audience: {var: beta}}, {share: 30, minDuration: 5m}]}",
        "spec {promotion: Manual}", "spec {promotion: Auto}", "spec {progressDeadline: 1h}",
        'spec {windows: [{days: [Mon], from: "09:00", to: "12:00"}]}', "spec {windows: []}",
        "spec {skipAnalysis: true}", "spec {skipAnalysis: false}",
    ]
)  # fmt: skip
HOOKS = (
    "spec {webhooks: [{name: stop, type: rollback, url: 'https://h/'}, "
    "{name: more, type: confirm-increase, url: 'https://h/'}]}"
)
IN_STEP = ("Progressing", "Paused", "WaitingPromotion")


class Watched(RolloutWorld):
    """A world that looks at each written status."""

    def write(self, status: Any) -> None:
        before = self.status
        super().write(status)
        after = self.status
        exposed = after.phase in (*IN_STEP, "Promoting")
        assert (after.step is not None) <= exposed
        if exposed:
            assert after.candidate is not None
            assert after.candidate.digest == digest_of(self.desired)
            assert after.candidate.digest != after.failed_digest
        same_run = before.started_at == after.started_at and before.salt == after.salt
        if same_run and before.phase in IN_STEP and after.phase in IN_STEP:
            assert (after.share or 0) >= (before.share or 0)
            assert set(map(str, before.audiences)) <= set(map(str, after.audiences))
        if before.salt is not None and before.phase not in ("Succeeded", "Idle") and after.salt is not None:
            assert after.salt == before.salt
        if after.promoted != before.promoted and before.promoted is not None:
            assert (before.phase, after.phase) == ("Promoting", "Succeeded")


@settings(max_examples=150, deadline=None)
@given(st.lists(COMMANDS, max_size=25))
@example(["commit A", "clock_by -20m", "spec {steps: [{share: 5}, {share: 20, approval: Required}]}"])
@example(["served 1/4", "spec {skipAnalysis: true}", "commit A", "wait 10m"])
def test_nobody_is_exposed_or_moved_back_but_by_a_decision(commands: list[str]) -> None:
    world = Watched()
    world.run("new")
    world.run(HOOKS)
    world.run("hook stop fail")
    world.run("analysis {interval: 1m, failureLimit: 4}")
    for command in commands:
        world.run(command)
        # Whoever takes over from here decides the same: nothing.
        again = advance(world.spec, world.status, world.observe(), world.now)
        assert again.status.model_dump() == world.status.model_dump()
        assert not again.events
