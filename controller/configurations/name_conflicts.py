"""Names the other object that claims an object's name or flagSetId. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.conditions import NAME_CONFLICT, TRUE, Condition
from controller.delivery.claims import SHADOWED
from controller.runtime.event import Occurrence
from evaluator.flags.syntax.text import visible

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey
    from controller.api.objects.status import Status
    from controller.delivery.claims import Conflict

SHADOWS: Final = "Shadows"
"""A FeatureFlag of the same name is not served."""
FLAG_SET_ID_CONTESTED: Final = "FlagSetIdContested"
"""Another object of the namespace has the same flagSetId, but this one comes first."""
_IDENTIFIER: Final = 100
"""Characters of a flagSetId that a message repeats: the whole message must fit into a condition."""


def name_conflict(conflicts: list[tuple[str, str]]) -> tuple[Condition, ...]:
    """The condition for the conflicts `found`, if any. A lost claim gives the reason, before a won one."""
    if not conflicts:
        return ()
    reason, _ = min(conflicts, key=lambda conflict: conflict[0] in (SHADOWS, FLAG_SET_ID_CONTESTED))
    message = "; ".join(text for _, text in conflicts)
    return (Condition(NAME_CONFLICT, TRUE, reason, message),)


def new_conflicts(status: Status, conflicts: list[tuple[str, str]]) -> tuple[Occurrence, ...]:
    """An Event for each conflict that the status until now does not name."""
    named = status.condition(NAME_CONFLICT).message
    return tuple(Occurrence(reason, text, warning=True) for reason, text in conflicts if text not in named)


def describe_conflict(conflict: Conflict, key: ObjectKey) -> tuple[str, str]:
    """(reason, message) of a conflict that the object `key` is in."""
    claim = f"flagSetId {_quote(conflict.claim)}"
    loses = conflict.loser == key
    other = conflict.winner if loses else conflict.loser
    if other is None:
        return conflict.reason, (
            f'not served under {claim}: it belongs to the namespace that stands before its first "/"; '
            f"begin it with {key.namespace}/, or write it without a slash"
        )
    name = f"{other.kind} {other.namespace}/{other.name}"
    if conflict.reason == SHADOWED:
        if loses:
            return (SHADOWED, f"not served under this name: {name} has the same name; remove one of them")
        return SHADOWS, f"{name} of the same name is not served; remove one of them"
    if not loses:
        return (
            FLAG_SET_ID_CONTESTED,
            f"{name} also claims {claim}; this one comes first and is served instead",
        )
    if other.namespace == key.namespace:
        return (
            conflict.reason,
            f"not served under {claim}: {name} claims it too and comes first; "
            "give one of them another flagSetId",
        )
    # The other may be a tenant's whose names are not for everybody's eyes.
    return conflict.reason, (
        f"not served under {claim} to subscribers that may read both: an object in another namespace "
        "claims it too and comes first; give this one another flagSetId"
    )


def _quote(text: str) -> str:
    shown = visible(text[: _IDENTIFIER + 1])
    return f'"{shown}"' if len(shown) <= _IDENTIFIER else f'"{shown[: _IDENTIFIER - 1]}…"'
