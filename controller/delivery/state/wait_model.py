"""What keeps a revision of a flag set from everybody, as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey
    from controller.delivery.state.actions import Action


class Who(StrEnum):
    """Whose move it is."""

    PERSON = "Person"
    COMMIT = "Commit"
    TIME = "Time"
    SYSTEM = "System"


class Sort(StrEnum):
    """What a wait is about."""

    PROBLEM = "Problem"
    HELD = "Held"
    GUARD = "Guard"
    ROLLOUT = "Rollout"
    OVERRIDE = "Override"
    SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that keeps the newest revision from everybody."""

    sort: Sort
    reason: str
    """One stable word, such as `WaitingForApproval`."""
    subject: ObjectKey
    message: str
    who: Who
    since: str = ""
    """RFC 3339, as far as known."""
    actions: tuple[Action, ...] = ()
    """What a person may do about it, the most likely first."""
