"""Which other object claims the name or the flagSetId of a FeatureFlagConfiguration or FeatureFlag, told
beside the verdict on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api.conditions import FALSE, UNDISPUTED, Condition, find
from controller.delivery.claims import SHADOWED
from controller.runtime.news import News
from controller.runtime.setbacks import Setback
from evaluator.flags.visible import visible

if TYPE_CHECKING:
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.delivery.claims import Claims, Conflict
    from controller.runtime.loop import Reconciler
    from controller.runtime.settle import Outcome

SHADOWS: Final = "Shadows"
"""A FeatureFlag of the same name is not served."""
FLAG_SET_ID_CONTESTED: Final = "FlagSetIdContested"
"""A younger object beside it has the same flagSetId."""
_IDENTIFIER: Final = 100
"""Characters of a flagSetId that a message repeats: all of what is told must fit into a condition."""


@dataclass(frozen=True, slots=True)
class ContestedReconciler:
    """Adds to what `judge` says of an object who is in conflict with it. `Ready` stays what it is: the object
    itself may be sound.
    """

    judge: Reconciler
    claims: Claims

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Judge, and tell of conflicts: in full by a detail, and by the message of what is sound. Raises
        Setback.
        """
        try:
            outcome = await self.judge.reconcile(resource, now)
        except Setback as setback:
            found = self._found(resource.key)
            setback.details = (*setback.details, *_condition(found))
            setback.ended = (*setback.ended, UNDISPUTED)
            setback.news = (*setback.news, *_news(resource, found))
            raise
        found = self._found(resource.key)
        return replace(
            outcome,
            message="; ".join((outcome.message, *(text for _, text in found))),
            details=(*outcome.details, *_condition(found)),
            news=(*outcome.news, *_news(resource, found)),
        )

    def forget(self, key: ObjectKey) -> None:
        """It is gone."""
        self.judge.forget(key)

    def _found(self, key: ObjectKey) -> list[tuple[str, str]]:
        return [_told(each, key) for each in self.claims.conflicts_of(key)]


def _told(conflict: Conflict, key: ObjectKey) -> tuple[str, str]:
    """(reason, message) of a conflict, to one of both."""
    loses = conflict.loser == key
    other = conflict.winner if loses else conflict.loser
    name = f"{other.kind} {other.namespace}/{other.name}"
    if conflict.reason == SHADOWED:
        if loses:
            return (
                SHADOWED,
                f"not served under this name: {name} has the same name; remove one of them",
            )
        return SHADOWS, f"{name} of the same name is not served; remove one of them"
    claim = f"flagSetId {_quoted(conflict.claim)}"
    if not loses:
        return (
            FLAG_SET_ID_CONTESTED,
            f"{name} also claims {claim}; this older object is served instead",
        )
    if other.namespace == key.namespace:
        return (
            conflict.reason,
            f"not served under {claim}: the older {name} claims it too; give one of them another flagSetId",
        )
    # The other may be a tenant's whose names are not for everybody's eyes.
    return conflict.reason, (
        f"not served under {claim} to subscribers that may read both: an older object in another namespace "
        "claims it too; give this one another flagSetId"
    )


def _quoted(text: str) -> str:
    shown = visible(text[: _IDENTIFIER + 1])
    return f'"{shown}"' if len(shown) <= _IDENTIFIER else f'"{shown[: _IDENTIFIER - 1]}…"'


def _condition(found: list[tuple[str, str]]) -> tuple[Condition, ...]:
    """What is lost gives the reason, before what is won."""
    if not found:
        return ()
    reason, _ = min(found, key=lambda each: each[0] in (SHADOWS, FLAG_SET_ID_CONTESTED))
    message = "; ".join(text for _, text in found)
    return (Condition(UNDISPUTED, FALSE, reason, message),)


def _news(resource: Resource, found: list[tuple[str, str]]) -> list[News]:
    """What the status did not tell yet."""
    known: Any = find(resource.status.get("conditions") or (), UNDISPUTED) or {}
    said = str(known.get("message", ""))
    return [News(reason, text, warning=True) for reason, text in found if text not in said]
