"""What may be served of rollouts, worked out from what people do, what is answered, and what evaluators
serve. It knows neither the state machine nor the serving layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.delivery.delivered import delivery_of
from controller.delivery.rollouts import PromotedSets, progress_of
from evaluator.flags.accept import Progress
from evaluator.flags.model import State
from evaluator.flags.rollouts import ROLLOUT_KEY, ROLLOUT_SHARE_KEY, ROLLOUT_STEP_KEY
from evaluator.host.times import read_time
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.flagrollout import Metric, Webhook
    from controller.api.rollout_status import CandidateStatus
    from evaluator.flags.model import Flag
    from tests.worlds.rollout_states import StatefulWorld

USERS: Final = 200
EVERYBODY: Final = 100.0
DISABLED: Final = "disabled"


@dataclass
class Run:
    """One definition of a flag on its way to everybody."""

    definition: str
    share: float = 0.0
    """The greatest share that users got."""
    exposed: float = 0.0
    """Seconds for which users were exposed to that share."""
    users: frozenset[int] = frozenset()
    interrupted: bool = False
    """Whether an override hid it, and nobody has decided since."""
    resumed: bool = False
    """Whether somebody resumes it once the override has ended."""
    demanded: bool = False
    """Whether somebody promotes it."""
    approved: set[str] = field(default_factory=set)
    confirmed: bool = False
    """Whether the webhook confirmed since the share grew last."""
    checked: str = ""
    """The last verdict of the metric since the share grew last."""
    alive: bool = True
    """Whether the webhook that may roll back answered when it was asked last."""
    stopped: bool = False
    promoting: bool = False
    """Whether everybody gets it, and the rollout may still return."""


@dataclass
class Oracle:
    """Compares what evaluators serve with what may be served."""

    world: StatefulWorld
    promoted: dict[str, str]
    runs: dict[str, Run] = field(default_factory=dict)
    definitions_stopped: set[tuple[str, str]] = field(default_factory=set)
    answers: dict[str, tuple[Flag, tuple[str | None, ...]]] = field(default_factory=dict)
    """What users get of each flag, by the served definition."""
    unseen: dict[tuple[str, str], Run] = field(default_factory=dict)
    """Runs that Git left while the rollout is suspended: it goes on with them if Git returns meanwhile."""

    # -- what happens

    def commit(self, key: str, definition: str) -> None:
        """A flag has another definition."""
        run = self.runs.get(key)
        if run is not None and run.definition == definition:
            return
        if self.world.suspended and run is not None:
            self.unseen[key, run.definition] = run
        self.runs.pop(key, None)
        if (key, definition) in self.unseen:
            self.runs[key] = self.unseen[key, definition]
        elif definition != self.promoted[key]:
            self.runs[key] = Run(definition, stopped=(key, definition) in self.definitions_stopped)

    def enable(self, key: str, definition: str) -> None:
        """A flag has its definition again."""
        if self.promoted[key] != definition and key not in self.runs:
            self.commit(key, definition)

    def pass_time(self, seconds: float) -> None:
        """Time passes, and nothing else happens meanwhile."""
        for key, run in self.runs.items():
            if self._is_exposed(key, run) and run.share:
                run.exposed += seconds

    def _is_exposed(self, key: str, run: Run) -> bool:
        world = self.world
        hidden = run.interrupted or world.hides(key)
        return key in world.present and not hidden and not world.suspended

    def stop(self, keys: Mapping[str, str]) -> None:
        """Definitions are aborted, or rolled back."""
        for key in keys:
            run = self.runs.get(key)
            if run is not None:
                self.definitions_stopped.add((key, run.definition))
                run.stopped = True

    def take_request(self, verb: str, candidate: CandidateStatus) -> None:
        """Somebody asks for something about a candidate."""
        stopped = candidate.phase in {"Failed", "RollingBack"}
        if verb == "abort" and not stopped:
            self.stop(candidate.flags)
        runs = {key: run for key in candidate.flags if (run := self.runs.get(key)) is not None}
        for key, run in runs.items():
            if verb == "approve":
                run.approved.add(candidate.gate)
            elif verb == "resume":
                run.resumed = True
            elif verb == "promote" or (verb == "retry" and candidate.phase == "Failed"):
                self.definitions_stopped.discard((key, run.definition))
                again = Run(run.definition) if run.stopped else run
                again.demanded |= verb == "promote"
                self.runs[key] = again

    # -- what is answered

    def take_verdict(self, flags: tuple[str, ...], metric: Metric, verdict: str) -> None:
        del metric
        for key in flags:
            run = self.runs[key]
            assert self._is_exposed(key, run), f"{key} is measured while nobody gets its candidate"
            run.checked = verdict

    def take_answer(self, hook: Webhook, flags: tuple[str, ...], verdict: str) -> None:
        for key in flags:
            run = self.runs.get(key)
            if run is None:
                continue
            if hook.type == "rollback":
                run.alive = verdict != "Error"
            elif verdict == "Pass":
                run.confirmed = True

    # -- what is served

    def check(self) -> None:
        """Compare what evaluators serve now."""
        world = self.world
        target, objects = world.target, world.cluster.objects
        progress = progress_of(objects, target, world.now.timestamp(), PromotedSets(objects.get))
        flag_set = delivery_of(target, world.part, Progress(rollouts=progress.rollouts)).flag_set
        compiled = compile_flag_set(flag_set)
        if not world.suspended:
            self.unseen.clear()
            # A flag that no rollout is about is disabled for everybody, and that is what is promoted.
            settled = world.disabled - world.absent - self.runs.keys()
            self.promoted |= dict.fromkeys(settled, DISABLED)
        for key, run in list(self.runs.items()):
            flag = flag_set.flags.get(key)
            if world.suspended:
                # What happens meanwhile is not recorded.
                pass
            elif world.hides(key):
                run.interrupted = True
            elif run.resumed or world.after_override == "Continue":
                run.interrupted = run.resumed = False
            if flag is None or flag.state is State.DISABLED:
                continue
            if self.answers.get(key, (None,))[0] != flag:
                variants = (
                    resolve(compiled, key, None, {"targetingKey": f"user-{number}"}, 0).variant
                    for number in range(USERS)
                )
                self.answers[key] = flag, tuple(variants)
            answers = self.answers[key][1]
            users = frozenset(number for number, variant in enumerate(answers) if variant == run.definition)
            self._check_flag(key, run, _share(flag), users)

    def _check_flag(self, key: str, run: Run, share: float, users: frozenset[int]) -> None:
        assert abs(len(users) - share * USERS / 100) <= 0.15 * USERS, f"{len(users)} users at {share} %"
        assert not users or not run.stopped, f"{key}={run.definition} was stopped"
        if run.stopped or (run.interrupted and share < run.share):
            # After an override, users get nothing new before somebody decides.
            return
        if share < run.share:
            # A promotion that an override hides returns to the last step.
            assert run.promoting, f"{key} fell from {run.share} to {share} %"
            run.exposed, run.users = 0.0, users
        elif share > run.share:
            self._check_growth(key, run, share)
            run.exposed, run.confirmed, run.checked, run.approved = 0.0, False, "", set()
        assert users >= run.users, f"{key} moved users back"
        run.share, run.users = share, users
        run.promoting = share == EVERYBODY
        if run.promoting and not self.world.is_candidate(key):
            self.promoted[key] = run.definition
            del self.runs[key]

    def _check_growth(self, key: str, run: Run, share: float) -> None:
        """Whether the share of a definition may grow now."""
        if run.demanded:
            return
        world = self.world
        what = f"{key}={run.definition} from {run.share} to {share} %"
        larger = [step["share"] for step in world.steps if step["share"] > run.share]
        assert share == min(larger, default=EVERYBODY), f"{what}: a step was skipped"
        dates = (step.get("at") for step in world.steps if step["share"] == share)
        assert all(date is None or world.now >= read_time(date) for date in dates), f"{what}: before its date"
        assert not world.frozen, f"{what}: in a freeze"
        assert not world.suspended, f"{what}: suspended"
        assert not world.hides(key), f"{what}: behind an override"
        assert not run.interrupted, f"{what}: nobody decided after the override"
        assert run.alive, f"{what}: the webhook that may roll back is dead"
        if not run.share:
            return
        # The step that is served, as the spec has it now: the last one before the next.
        index = max(len(world.steps) - len(larger) - 1, 0)
        assert run.exposed >= world.steps[index]["seconds"], f"{what}: after {run.exposed} s"
        assert run.checked == "Pass", f"{what}: the check says {run.checked or 'nothing'}"
        if world.steps[index]["approval"]:
            assert run.approved, f"{what}: nobody approved"
        if larger:
            assert run.confirmed, f"{what}: no webhook confirmed"


def _share(flag: Flag) -> float:
    """The percentage of users who get the new definition, by the marks of the served flag."""
    if ROLLOUT_KEY not in flag.metadata:
        return EVERYBODY
    return float(str(flag.metadata[ROLLOUT_SHARE_KEY])) if ROLLOUT_STEP_KEY in flag.metadata else 0.0
