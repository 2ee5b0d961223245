"""The override and the rollout of a served flag, by its metadata, and the rules that are its own. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from evaluator.flags.model import ABSENT, PREREQUISITES_KEY, Flag, Json, Path, Scalar
from evaluator.flags.overrides import OVERRIDE_EXPIRES_KEY, OVERRIDE_KEY, OVERRIDE_REASON_KEY, layers_of
from evaluator.flags.rollout_rules import condition_of
from evaluator.flags.rollouts import ROLLOUT_CANDIDATE_KEY, ROLLOUT_KEY, ROLLOUT_SHARE_KEY, ROLLOUT_STEP_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class OverrideMark:
    """The override that a flag has."""

    name: str
    reason: str
    until: str
    """RFC 3339; empty: it has no end."""


@dataclass(frozen=True, slots=True)
class RolloutMark:
    """The rollout by which not everybody gets the newest definition of a flag."""

    name: str
    candidate: str
    """The candidate's digest; empty: none has the flag yet."""
    step: str
    """`2/4`; empty: nobody gets the newest definition."""
    share: str
    """Percent of users, besides audiences: `10`."""

    @property
    def position(self) -> str:
        """How far it is, for people."""
        if not self.step:
            return "nobody gets the new definition"
        users = "an audience gets it" if self.share == "0" else f"{self.share}% of users"
        return f"step {self.step}, {users}"


@dataclass(frozen=True, slots=True)
class OwnRule:
    """A rule of a flag without the conditions of overrides and rollouts."""

    definition: Literal["", "new", "promoted"]
    """Whose rule it is; empty: the flag has only one definition."""
    rule: Json
    """ABSENT: it has none, and its default variant counts."""
    path: Path
    """Where it is in the served rule."""
    default: str | None
    """The default variant of the definition, as far as the served rule tells; None: the served flag's."""


def override_mark(metadata: Mapping[str, Scalar]) -> OverrideMark | None:
    """The override that metadata of a flag or of an answer names."""
    if OVERRIDE_KEY not in metadata:
        return None
    keys = (OVERRIDE_KEY, OVERRIDE_REASON_KEY, OVERRIDE_EXPIRES_KEY)
    name, reason, until = (str(metadata.get(key, "")) for key in keys)
    return OverrideMark(name, reason, until)


def rollout_mark(metadata: Mapping[str, Scalar]) -> RolloutMark | None:
    """The rollout that metadata of a flag or of an answer names."""
    if ROLLOUT_KEY not in metadata:
        return None
    name, candidate, step, share = (
        str(metadata.get(key, ""))
        for key in (ROLLOUT_KEY, ROLLOUT_CANDIDATE_KEY, ROLLOUT_STEP_KEY, ROLLOUT_SHARE_KEY)
    )
    return RolloutMark(name, candidate, step, share or "0")


def own_rules(flag: Flag) -> tuple[OwnRule, ...]:
    """The rules of a served flag's own definitions: of the new and the promoted one where a step of a rollout
    gives users either, else of the only one.
    """
    own, overrides = layers_of(flag)
    if own is None:
        return ()
    path: Path = ()
    wrapped: Any = flag.targeting
    for _ in (override for override in overrides if override.variant is not None):
        # The rule beneath an override is the last argument of its `if`.
        path, wrapped = (*path, "if", len(wrapped["if"]) - 1), wrapped["if"][-1]
    flag = own
    mark = rollout_mark(flag.metadata)
    rule: Json = flag.targeting
    if mark is None or not mark.step or condition_of(flag) is None:
        return (OwnRule("", rule, path, None),)
    _, new, promoted = rule["if"]
    return (
        _without_default("new", new, (*path, "if", 1)),
        _without_default("promoted", promoted, (*path, "if", 2)),
    )


def _without_default(definition: Literal["new", "promoted"], rule: Json, path: Path) -> OwnRule:
    """The rule of a definition whose default variant is not the served flag's: a result null names it."""
    if rule is None or isinstance(rule, str):
        return OwnRule(definition, ABSENT, path, rule)
    match rule:
        case {"if": [{"===": [inner, None]}, default, again]} if again == inner:
            return OwnRule(definition, inner, (*path, "if", 0, "===", 0), default)
    return OwnRule(definition, rule, path, None)


def prerequisites_mark(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the prerequisites that the rule of a flag had when it was written."""
    try:
        keys = json.loads(str(metadata.get(PREREQUISITES_KEY, "[]")))
    except ValueError:
        return ()
    return tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else ()
