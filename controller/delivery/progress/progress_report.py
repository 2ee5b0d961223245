"""Reports overrides in force and rollouts under way by conditions and Events of the objects with the flags.
Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.api.objects.conditions import OVERRIDE_ACTIVE, ROLLOUT_ACTIVE, TRUE, Condition
from controller.api.objects.meta import ObjectKey
from controller.api.rollouts.flagrollout import KIND
from controller.delivery.state.candidate_layers import layer_of_entry
from controller.delivery.state.state_words import candidate_text, names_text
from controller.runtime.event import Occurrence
from evaluator.flags.syntax.text import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from controller.api.objects.status import Status
    from controller.api.rollouts.served_rollout import ServedRollout

ROLLED_OUT: Final = "FlagsRolledOut"
ABANDONED: Final = "RolloutAbandoned"
REASON: Final = "FlagsOverridden"
STARTED: Final = "OverrideActive"
ENDED: Final = "OverrideEnded"
_NAMED: Final = 5
_LONGEST: Final = 64
"""Most characters of a key in a message."""


def override_condition(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the condition for overrides in force, each as `override_texts` describes it."""
    if not texts:
        return ()
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return (Condition(OVERRIDE_ACTIVE, TRUE, REASON, "; ".join((*texts[:_NAMED], *more))),)


def override_events(before: Status, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Return an Event if the condition differs from the one in `before`."""
    known = before.condition(OVERRIDE_ACTIVE)
    now = next((detail for detail in details if detail.type == OVERRIDE_ACTIVE), None)
    if now is not None:
        # The status holds what was written, which may be shortened.
        same = known.message and now.message.startswith(known.message.removesuffix("…"))
        return () if same else (Occurrence(STARTED, now.message, warning=True, version=known.message),)
    if not known.message:
        return ()
    return (Occurrence(ENDED, f"not in force any more: {known.message}", version=known.since, ends=True),)


def rollout_condition(
    served: Iterable[ServedRollout],
    notes: Iterable[str] = (),
    waits: str = "",
    overridden: Collection[str] = (),
) -> tuple[Condition, ...]:
    """Return the condition for candidates that are not served to everybody as Git has them; where a change
    `waits` for candidates, for those that have no flag to be served, too. `notes` end the message.
    `overridden`: the keys of flags under an override.
    """
    shown = [entry for entry in served if entry.phase != "Idle" or (waits and entry.flags)]
    if not shown:
        return ()
    gone = any(entry.phase == "Abandoned" for entry in shown)
    more = [f"{len(shown) - _NAMED} more"] if len(shown) > _NAMED else []
    texts = (*(_sentence(entry, overridden) for entry in shown[:_NAMED]), *more)
    message = ". ".join(filter(None, ("; ".join(texts), waits, *notes)))
    return (Condition(ROLLOUT_ACTIVE, TRUE, ABANDONED if gone else ROLLED_OUT, message),)


def _sentence(entry: ServedRollout, overridden: Collection[str]) -> str:
    if entry.phase == "Idle":
        flags = names_text(sorted(entry.flags))
        return f"FlagRollout {entry.name} is at a step of {flags}, absent or disabled in Git"
    # The namespace is that of the object which has the condition.
    layer = layer_of_entry(ObjectKey(KIND, "", entry.name), entry)
    hidden = any(key in overridden for key in entry.flags)
    return candidate_text(replace(layer, reason="OverrideActive") if hidden else layer)


def baseline_text(keys: Sequence[str]) -> str:
    """Return what users outside of a step get of flags that were disabled before; empty where there are
    none.
    """
    if not keys:
        return ""
    flags = _flag_text(keys[0]) if len(keys) == 1 else f"{len(keys)} flags"
    return f"Users outside the step get the application's default of {flags}, disabled until this change"


def _flag_text(key: str) -> str:
    return f'flag "{visible(key[:_LONGEST])}"'


def abandonment_events(before: Status, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """Return a warning if a FlagRollout was deleted while its flags differed; it reported the rest itself."""
    known = before.condition(ROLLOUT_ACTIVE)
    now = next((detail for detail in details if detail.type == ROLLOUT_ACTIVE), None)
    if now is None or now.reason != ABANDONED or known.reason == ABANDONED:
        return ()
    return (Occurrence(ABANDONED, now.message, warning=True, version=known.since),)
