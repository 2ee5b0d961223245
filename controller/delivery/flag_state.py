"""The state of each flag of a set, and what people are told of it. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.delivery.state_words import candidate_text, end_text, override_text, users_text
from evaluator.flags.marks import OverrideMark, OwnRule, RolloutMark, override_mark, own_rules, rollout_mark
from evaluator.flags.model import HELD_FROM_KEY, Flag, FlagSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.flagset_status import HeldFlag, ProblemStatus
    from controller.delivery.set_state import CandidateLayer, OverrideLayer, SetState


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
        """Whether its newest definition is not served, but an earlier one, or none."""
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
        return problem.flag or ""
    return match[1] or str(json.loads(match[2]))


def _is_error(problem: ProblemStatus) -> bool:
    return problem.severity == "error"


def held_text(flag: HeldFlag, problems: Iterable[ProblemStatus]) -> str:
    """One flag that is served as an earlier revision has it; `problems` are those of its set."""
    own = [problem for problem in problems if flag_of(problem) == flag.name]
    return f"{flag.name}: served as in {flag.revision or 'an earlier revision'}; {_hold_text(own)}"


def _hold_text(problems: Iterable[ProblemStatus]) -> str:
    """Why a flag is served as an earlier revision has it: a mistake, a policy, a test or a guard."""
    why = next((f": {problem.message}" for problem in problems if _is_error(problem)), "")
    return f"its newest version is held{why}"


def flag_notes(state: FlagState) -> tuple[str, ...]:
    """Why not everybody gets the newest definition of a flag, by its own rules; empty: everybody does."""
    return (*_override_notes(state), *_rollout_notes(state), *_held_notes(state))


def new_users_text(state: FlagState) -> str:
    """Who gets the new one of two definitions: `10%`, `an audience`."""
    if state.candidate is not None:
        return users_text(state.candidate).removesuffix(" of users")
    share = "0" if state.rollout is None else state.rollout.share
    return "an audience" if share == "0" else f"{share}%"


def _override_notes(state: FlagState) -> Iterator[str]:
    layer, mark = state.override_layer, state.override
    if layer is None and mark is None:
        return
    if layer is not None:
        end = end_text(layer, filter(None, (state.candidate,)))
        yield "; ".join(filter(None, (override_text(layer), end)))
    elif mark is not None:
        until = f" until {mark.until}" if mark.until else ""
        yield f"{mark.name}{until}: {mark.reason}"


def _rollout_notes(state: FlagState) -> Iterator[str]:
    if state.candidate is not None:
        yield candidate_text(state.candidate)
    elif state.rollout is not None:
        yield f"FlagRollout {state.rollout.name}: {state.rollout.position}"


def _held_notes(state: FlagState) -> Iterator[str]:
    if state.flag is None and state.kept:
        yield f"{_hold_text(state.problems)}; evaluators that have an earlier one serve that"
    elif state.flag is None:
        yield f"not served: {_hold_text(state.problems)}"
    elif state.held_from:
        yield f"served as in {state.held_from}: {_hold_text(state.problems)}"
