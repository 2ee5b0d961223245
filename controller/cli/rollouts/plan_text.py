"""A plan of a rollout as lines. Pure but for the terminal's colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.cli.shared.output import Column, table
from controller.cli.shared.printing import printable, short
from controller.delivery.state.state_words import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.rollouts.planning.rollout_plan import AtOnce, RolloutPlan

_MOST_KEYS: Final = 10
_REASONS: Final[dict[AtOnce, str]] = {
    "Added": "new",
    "Removed": "removed",
    "Disabled": "disabled",
    "NotSelected": "not in spec.flags",
    "SameAnswers": "metadata alone",
}
_STEPS: Final = (
    Column("STEP", lambda step: step.number),
    Column("USERS", lambda step: step.users),
    Column("EARLIEST", lambda step: step.earliest or "never: no window opens"),
    Column("LASTS", lambda step: duration_text(step.lasts) if step.lasts else "-"),
    Column("SAMPLES", lambda step: str(step.samples or "-")),
    Column("APPROVAL", lambda step: "required" if step.approval else "-"),
    Column("MOVED", lambda step: f"{step.moved:.2f}%"),
)
_FLAGS: Final = (
    Column("FLAG", lambda flag: flag.key),
    Column("MOVED", lambda flag: f"{flag.moved:.2f}%"),
    Column("NEEDED", lambda flag: f"{flag.needed:.2f}%"),
)


def as_text(plan: RolloutPlan) -> str:
    """The plan as lines."""
    return "\n".join(_sections(plan))


def _sections(plan: RolloutPlan) -> Iterator[str]:
    lines = [f"FlagRollout {plan.rollout}: {short(plan.before)} → {short(plan.after)}: {_summary(plan)}"]
    lines += [f"cannot be rolled out: {key}: {reason}" for key, reason in plan.misfits.items()]
    for reason, words in _REASONS.items():
        keys = [key for key, why in plan.at_once.items() if why == reason]
        if keys:
            more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
            lines.append(f"at once, {words}: {', '.join(keys[:_MOST_KEYS])}{more}")
    lines += [f"note: {note}" for note in plan.notes]
    yield "".join(f"{printable(line)}\n" for line in lines)
    if plan.steps:
        yield table(_STEPS, plan.steps)
        yield table(_FLAGS, plan.flags)
        yield f"of {plan.users} users; NEEDED is the least that any definition with the same shares moves\n"


def _summary(plan: RolloutPlan) -> str:
    if plan.misfits:
        return "the change is held; everybody keeps what is served now"
    if not plan.flags:
        return "nothing is rolled out"
    flags, steps = f"{len(plan.flags)} flag{'s' if len(plan.flags) > 1 else ''}", len(plan.steps) - 1
    return f"{flags} in {steps} steps" if steps else f"{flags}, promoted at once"
