"""Resolves a flag with a trace: the result of each operator, the bucket of `fractional`, the value of each
variable. Pure.

The flag is resolved once, by `resolve`, and the operators of its rule report their results while they are
evaluated.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.known_operators import reference_name
from evaluator.flags.marks import OwnRule, override_mark, own_rules, prerequisites_mark, rollout_mark
from evaluator.flags.model import ABSENT, EMPTY, Flag, Json, State
from evaluator.flags.rollouts import ROLLOUT_ARM_KEY, Arm
from evaluator.flags.schedules import window_of
from evaluator.resolving.resolve import CompiledFlagSet, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.resolving.resolution import FlagType, Resolution
    from evaluator.targeting import Path

MOST_STEPS: Final = 1_000
"""Most steps of a trace; the evaluation itself is not limited by it."""

MOST_VALUE: Final = 1_000
"""Most characters of JSON for which `TraceStep.document` includes the value itself."""

_SHOWN: Final = 80
_ARMS: Final[Mapping[str, str]] = {
    Arm.CANDIDATE: "this user gets the new definition (arm candidate)",
    Arm.BASELINE: "this user gets the promoted definition (arm baseline)",
    Arm.EXCLUDED: "this user has no targeting key or is under an override, and does not count (arm excluded)",
}


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a trace, in order of evaluation."""

    path: Path
    """Keys and indices within the rule, its `$ref`s expanded; empty for the flag itself."""
    name: str
    """The operator, or `flag` for a step about the flag's definition."""
    value: Json
    """The result of the step."""
    particulars: Mapping[str, Json] = field(default_factory=lambda: EMPTY)
    """`var`: `name`. `fractional`: `bucket`, `of` and `hashed`, or `why` it gave nothing. `and` of a
    schedule: `why`. `flag`: `note`.
    """
    own: OwnRule | None = None
    """Of a flag in a rollout or under an override: the rule of its own that the step belongs to."""
    layer: bool = False
    """Whether it is a step of the rollout or the override."""
    needed: str = ""
    """The key of the prerequisite that the step is of; empty: it is of the flag itself."""

    def __str__(self) -> str:
        path = self.path if self.own is None else self.path[len(self.own.path) :]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        prerequisite = f"prerequisite {_short(self.needed)}, " if self.needed else ""
        whose = f"{self.own.definition} definition, " if self.own is not None and self.own.definition else ""
        return (
            f"{prerequisite}{whose}{('targeting' + place) if self.path else self.name}: {self._result_text()}"
        )

    def document(self) -> dict[str, Any]:
        """The step as JSON: `path`, `operator`, `value`, `text`, particulars; long values only in `text`.
        `layer` is true where it is one of a rollout or an override; `prerequisite` is the key of the flag
        that it is of, where that is another.
        """
        others = {"layer": self.layer, "prerequisite": self.needed}
        fields = {
            "value": self.value,
            **self.particulars,
            **{name: part for name, part in others.items() if part},
        }
        kept = {name: value for name, value in fields.items() if _starts(value, MOST_VALUE)[1]}
        kept.pop("note", None)
        return {"path": list(self.path), "operator": self.name, **kept, "text": str(self)}

    def _result_text(self) -> str:
        given = self.particulars
        shown = _short(self.value)
        if "note" in given:
            return str(given["note"])
        if self.name == "var":
            return f"{_short(given.get('name'))} is {shown}"
        if "why" in given:
            return f"{shown}, since {given['why']}"
        if "bucket" in given:
            where = f"bucket {given['bucket']} of {given['of']}"
            hashed = f"hash of {_short(given['hashed'])}" if "hashed" in given else "set by the test"
            return f"{shown}, {where} ({hashed})"
        return shown


@dataclass(frozen=True, slots=True)
class Explanation:
    """An answer and the steps that led to it."""

    resolution: Resolution
    steps: tuple[TraceStep, ...]


def answer(key: str, resolution: Resolution) -> dict[str, Any]:
    """Return JSON with OFREP's names: `key`, `value`, `variant`, `reason`, error, `metadata`."""
    document: dict[str, Any] = {"key": key}
    if resolution.value is not ABSENT:
        document["value"] = resolution.value
    if resolution.variant is not None:
        document["variant"] = resolution.variant
    document["reason"] = resolution.reason.value
    if resolution.error_code is not None:
        document["errorCode"] = resolution.error_code.value
        document["errorDetails"] = resolution.error_message
    document["metadata"] = dict(resolution.metadata)
    return document


def explain(
    flags: CompiledFlagSet,
    key: str,
    wanted: FlagType | None,
    context: Mapping[str, Json],
    now: int,
    *,
    prerequisites: bool = True,
) -> Explanation:
    """Evaluate one flag as `resolve` does, and keep the trace; before it come those of its `prerequisites`.
    now: Unix seconds. Never raises.
    """
    steps: list[TraceStep] = []

    def trace(path: Path, name: str, value: Json, particulars: Mapping[str, Json]) -> None:
        if len(steps) < MOST_STEPS:
            steps.append(TraceStep(path, name, value, particulars))

    resolution = resolve(flags, key, wanted, context, now, trace)
    flag = flags.flag_set.flags.get(key)
    if flag is None:
        return Explanation(resolution, (_note("no flag has this key"),))
    if flag.state is State.DISABLED:
        steps.append(_note("the flag is disabled, so the caller's own default is used"))
    elif flag.targeting is ABSENT or flag.targeting == {}:
        steps.append(_note("the flag has no targeting"))
    steps = [_with_local_time(step, flag, flags.flag_set.evaluators, now) for step in steps]
    notes = (*_override(resolution), *_rollout(resolution), _conclusion(flag, resolution))
    rules = own_rules(flag)
    needed = _prerequisites(flags, flag, context, now) if prerequisites else ()
    return Explanation(resolution, (*needed, *(_place(step, rules) for step in steps), *notes))


def _with_local_time(step: TraceStep, flag: Flag, evaluators: Mapping[str, Json], now: int) -> TraceStep:
    """The step; one of a schedule says why it gave what it did, in the schedule's time zone."""
    if step.name != "and":
        return step
    part = flag.targeting
    for at in step.path[:-1]:
        # Paths lead through what references name.
        part = evaluators.get(reference_name(part) or "", part)
        part = part[at]
    window = window_of(evaluators.get(reference_name(part) or "", part))
    if window is None:
        return step
    why = f"the time ({window.clock(now)}) {window.words(negated=not step.value)}"
    return replace(step, particulars={"why": why})


def _prerequisites(
    flags: CompiledFlagSet, flag: Flag, context: Mapping[str, Json], now: int
) -> tuple[TraceStep, ...]:
    """The steps of each flag that the flag's rule needs as it is written, and of those that these need."""
    steps: list[TraceStep] = []
    seen, pending = {flag.key}, list(prerequisites_mark(flag.metadata))
    while pending and len(steps) < MOST_STEPS:
        key = pending.pop(0)
        if key in seen:
            continue
        seen.add(key)
        if key not in flags.flag_set.flags:
            note = "it is of another flag set, whose rule is written out in this one"
            steps.append(replace(_note(note), needed=key))
            continue
        needed = flags.flag_set.flags[key]
        pending += prerequisites_mark(needed.metadata)
        own = explain(flags, key, None, context, now, prerequisites=False)
        steps += [replace(step, needed=key) for step in own.steps]
    return tuple(steps[:MOST_STEPS])


def _place(step: TraceStep, rules: tuple[OwnRule, ...]) -> TraceStep:
    """The step with the rule that it belongs to: the flag's own, or that of a rollout or an override."""
    if not step.path or all(not rule.path for rule in rules):
        return step
    own = next((rule for rule in rules if step.path[: len(rule.path)] == rule.path), None)
    return replace(step, own=own, layer=own is None)


def _override(resolution: Resolution) -> tuple[TraceStep, ...]:
    """The override that the flag has, also for a user outside of its audience."""
    mark = override_mark(resolution.metadata)
    if mark is None:
        return ()
    until = f" until {mark.until}" if mark.until else ""
    return (_note(f"override {_short(mark.name)} is in force{until}: {_short(mark.reason)}"),)


def _rollout(resolution: Resolution) -> tuple[TraceStep, ...]:
    """The rollout that the flag is in, and the user's arm."""
    mark, arm = rollout_mark(resolution.metadata), str(resolution.metadata.get(ROLLOUT_ARM_KEY, ""))
    if mark is None or not arm:
        return ()
    text = f"rollout {_short(mark.name)}: {mark.position}: {_ARMS.get(arm, _short(arm))}"
    return (_note(text),)


def _conclusion(flag: Flag, resolution: Resolution) -> TraceStep:
    if resolution.error_code is not None:
        return _note(f"{resolution.error_code}: {resolution.error_message}")
    if resolution.variant is None:
        return _note("no variant was chosen, so the caller's own default is used")
    source = "the default variant" if resolution.variant == flag.default_variant else "a variant"
    return _note(f"{resolution.reason}: {source}, {_short(resolution.variant)}")


def _note(text: str) -> TraceStep:
    return TraceStep((), "flag", None, {"note": text})


def _short(value: Json) -> str:
    text, whole = _starts(value, _SHOWN)
    return text if whole else text[: _SHOWN - 1] + "…"


def _starts(value: Json, most: int) -> tuple[str, bool]:
    """Return (JSON of `value`, cut after about `most` characters; whether it is whole), at a bounded cost."""
    if isinstance(value, str) and len(value) > most:
        return json.dumps(value[:most], ensure_ascii=False), False
    pieces, size = [], 0
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return "".join(pieces), False
    return "".join(pieces), True
