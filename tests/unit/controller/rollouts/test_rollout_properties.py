"""What always holds of a rollout, whatever happens to it in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.rollouts.decide import decide
from tests.worlds.rollout_traces import RolloutWorld, definition_of

if TYPE_CHECKING:
    from controller.api.rollout_status import CandidateStatus

COMMANDS = st.sampled_from(
    [
        "commit A", "commit B", "commit base", "commit A hero", "commit C pay hero",
        "wait 1m", "wait 10m", "wait 2h", "served 4/4", "served 1/4",
        "served none", "check pass", "check fail", "check none", "check error", "hook stop pass",
        "hook stop fail", "hook more fail", "hook more pass", "annotate approve A/2",
        "annotate approve B/2", "annotate approve A/promotion", "annotate promote A",
        "annotate abort A", "annotate abort B", "annotate retry 1", "annotate retry 2",
        "annotate pause true", "annotate pause false", "clock_by -20m", "clock_by 1h",
        "spec {steps: [{share: 5}, {share: 20, approval: Required}]}",
        "spec {steps: [{audience: {var: beta}}, {share: 30, minDuration: 5m}]}",
        "spec {steps: [{share: 5, at: '2026-03-02T09:05:00Z'}, {share: 20, at: '2026-03-02T11:00:00Z'}]}",
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
        earlier = {candidate.digest: candidate for candidate in before.candidates}
        for candidate in self.status.candidates:
            exposed = candidate.phase in (*IN_STEP, "Promoting")
            assert (candidate.step is not None) <= exposed
            if exposed:
                assert self._serves(candidate)
            known = earlier.get(candidate.digest)
            if known is None or known.started_at != candidate.started_at:
                continue
            assert candidate.salt == known.salt
            if known.phase in IN_STEP and candidate.phase in IN_STEP:
                assert (candidate.share or 0) >= (known.share or 0)
                assert set(map(str, candidate.audiences)) >= set(map(str, known.audiences))
        left = earlier.keys() - {candidate.digest for candidate in self.status.candidates}
        if self.status.promoted != before.promoted and before.promoted is not None:
            assert any(earlier[digest].phase == "Promoting" for digest in left)

    def _serves(self, candidate: CandidateStatus) -> bool:
        """Whether no flag of a candidate has another definition now, and none was stopped."""
        stopped = {(entry.flag, entry.definition) for entry in self.status.stopped}
        present = {key: definition_of(key, commit) for key, commit in self.desired.items()}
        flags = candidate.flags.items()
        return stopped.isdisjoint(flags) and all(present.get(key, digest) == digest for key, digest in flags)


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
        again = decide(world.spec, world.status, world.observe(), world.now)
        assert again.status.model_dump() == world.status.model_dump()
        assert not again.events
