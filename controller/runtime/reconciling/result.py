"""The result of a reconcile, as one value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, TypeVar

from controller.api.objects.fields import Model
from controller.api.objects.parsed_spec import parse_spec
from controller.api.objects.status import Status
from controller.runtime.reconciling.setbacks import Failed, Setback, Stalled, stall_on_invalid_text

if TYPE_CHECKING:
    from controller.api.objects.conditions import Condition
    from controller.api.objects.meta import Resource
    from controller.runtime.event import Occurrence

M = TypeVar("M", bound=Model)


def spec_of(model: type[M], resource: Resource) -> M:
    """An object's spec as `model`, see `parse_spec`. Raises Stalled, with the reason of the first problem."""
    with stall_on_invalid_text():
        return parse_spec(model, resource)


NOTHING: Final = Status()


@dataclass(frozen=True, slots=True)
class Done:
    """A successful reconcile: the reason and message of `Ready`."""

    message: str
    reason: str = "Succeeded"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reconcile. After a setback it holds the partial results."""

    outcome: Done | Setback
    status: Status = NOTHING
    """The kind's own fields that are given; None removes one. Done: all of them, what is not given here is
    removed. Setback: the others stay as they are.
    """
    details: tuple[Condition, ...] = ()
    """Detail conditions. Done: all of the kind's. Setback: those that are known now; the others stay, unless
    they are `ended`.
    """
    ended: tuple[str, ...] = ()
    """Types of detail conditions that hold no longer unless they are among `details`."""
    events: tuple[Occurrence, ...] = ()
    """What changed, as the difference to the status before: the same reconcile again has none."""
    requeue_after: float | None = None
    """Seconds; None: only when something changes. A `Failed` is tried again after its backoff instead."""

    @classmethod
    def of(
        cls,
        setback: Setback,
        *,
        status: Status = NOTHING,
        details: tuple[Condition, ...] = (),
        events: tuple[Occurrence, ...] = (),
        requeue_after: float | None = None,
    ) -> Self:
        """Return the result of a raised `setback`, whose own delay is the default."""
        return cls(
            setback,
            status=status,
            details=details,
            events=events,
            requeue_after=setback.delay if requeue_after is None else requeue_after,
        )

    @property
    def kind(self) -> str:
        """`success`, `stalled`, `waiting` or `failed`."""
        if isinstance(self.outcome, Done):
            return "success"
        if isinstance(self.outcome, Stalled):
            return "stalled"
        return "failed" if isinstance(self.outcome, Failed) else "waiting"
