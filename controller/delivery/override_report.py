"""Makes FlagOverrides in force visible on the objects that they concern: a condition, and Events. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.conditions import OVERRIDE_ACTIVE, TRUE, Condition
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controller.api.objects.status import Status

REASON: Final = "FlagsOverridden"
STARTED: Final = "OverrideActive"
ENDED: Final = "OverrideEnded"
_NAMED: Final = 5


def override_condition(texts: Sequence[str]) -> tuple[Condition, ...]:
    """The condition for overrides in force, each as `override_texts` describes it."""
    if not texts:
        return ()
    more = [f"{len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
    return (Condition(OVERRIDE_ACTIVE, TRUE, REASON, "; ".join((*texts[:_NAMED], *more))),)


def override_events(before: Status, details: Iterable[Condition]) -> tuple[Occurrence, ...]:
    """An Event where the condition says something else than in the status until now."""
    known = before.condition(OVERRIDE_ACTIVE)
    now = next((detail for detail in details if detail.type == OVERRIDE_ACTIVE), None)
    if now is not None:
        # The status holds what was written, which may be shortened.
        same = known.message and now.message.startswith(known.message.removesuffix("…"))
        return () if same else (Occurrence(STARTED, now.message, warning=True, version=known.message),)
    if not known.message:
        return ()
    return (Occurrence(ENDED, f"not in force any more: {known.message}", version=known.since, ends=True),)
