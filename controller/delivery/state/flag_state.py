"""The state of each flag of a set: its own definition, and what is over it. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.flags.marks import override_mark, own_rules, rollout_mark
from evaluator.flags.model import HELD_FROM_KEY

if TYPE_CHECKING:
    from controller.api.flagset_status import ProblemStatus
    from controller.delivery.state.set_state import CandidateLayer, OverrideLayer, SetState
    from evaluator.flags.marks import OverrideMark, OwnRule, RolloutMark
    from evaluator.flags.model import Flag, FlagSet

_FLAG_PATH: Final = re.compile(r'(?:\$|spec\.\w+)\.flags(?:\.([\w$-]+)|\[("(?:[^"\\]|\\.)*")\])')
"""The path of a flag; matches the start of the paths within it."""


@dataclass(frozen=True, slots=True)
class FlagState:
    """One flag of a set."""

    key: str
    flag: Flag | None
    """As it is served; None: it has no good definition, and is not served."""
    rules: tuple[OwnRule, ...] = ()
    """Its own rules, without those of rollouts and overrides."""
    held_from: str = ""
    """The earlier revision whose definition is served; empty: it is not held."""
    problems: tuple[ProblemStatus, ...] = ()
    """What is wrong with its newest definition."""
    override: OverrideMark | None = None
    rollout: RolloutMark | None = None
    override_layer: OverrideLayer | None = None
    """The override with what the set's state tells of it."""
    candidate: CandidateLayer | None = None
    """The rollout with what the set's state tells of it."""
    kept: bool = False
    """Whether an earlier definition of a flag without a good one stays with evaluators that have it: of a set
    that no FlagSet writes, nothing else knows it.
    """

    @property
    def withheld(self) -> tuple[CandidateLayer | OverrideLayer, ...]:
        """The layers by which some users do not get its newest definition."""
        layers = (self.override_layer, self.candidate)
        return tuple(layer for layer in layers if layer is not None)

    @property
    def held(self) -> bool:
        """Whether its newest definition is bad, and an earlier one is served, or none."""
        return bool(self.held_from) or self.flag is None


def flag_states(state: SetState, served: FlagSet) -> dict[str, FlagState]:
    """The state of each flag that a set serves, or would serve if its definition were not bad, by key.
    `served`: what evaluators have.
    """
    held = {flag.name: flag.revision or "an earlier revision" for flag in state.held}
    problems: dict[str, list[ProblemStatus]] = {}
    for problem in state.newest.problems:
        if key := flag_of(problem):
            problems.setdefault(key, []).append(problem)
    running = [layer for layer in state.candidates if layer.users != "everybody"]
    candidates = {key: layer for layer in running for key in layer.flags}
    overrides = {layer.flag: layer for layer in state.overrides}
    states = {}
    for key, flag in served.flags.items():
        marked = str(flag.metadata.get(HELD_FROM_KEY, ""))
        states[key] = FlagState(
            key,
            flag,
            own_rules(flag),
            held.get(key, marked),
            tuple(problems.get(key, ())),
            override_mark(flag.metadata),
            rollout_mark(flag.metadata),
            overrides.get(key),
            candidates.get(key),
        )
    missing = {key for key in problems.keys() - states.keys() if any(_is_error(one) for one in problems[key])}
    kept = state.writer is None
    states |= {key: FlagState(key, None, problems=tuple(problems[key]), kept=kept) for key in missing}
    return dict(sorted(states.items()))


def flag_of(problem: ProblemStatus) -> str:
    """The key of the flag that a problem is about; empty: none alone."""
    match = _FLAG_PATH.match(problem.path or "")
    if match is None:
        return ""
    return match[1] or str(json.loads(match[2]))


def _is_error(problem: ProblemStatus) -> bool:
    return problem.severity == "error"
