"""The input of a rollout's state machine, and its decision. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.api.objects.meta import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.rollouts.rollout_status import FlagRolloutStatus, MetricStatus, Revision, Served
    from controller.rollouts.analysis.rollout_ports import HookAnswer
    from controller.runtime.event import Occurrence


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a candidate cannot be served to some users only."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The present state of a rollout's flags, evaluators, checks and requests."""

    name: str
    """The rollout's."""
    candidate: Revision | None
    """The definitions that differ from the promoted ones; None: none does."""
    promoted: Revision
    """The definitions that everybody else gets; their shard is written before the status."""
    desired: Revision
    """All of the rollout's definitions as Git has them: they are promoted in the end."""
    misfit: Misfit | None = None
    served: Served | None = None
    """How many evaluators serve what the status says; None: it is not delivered yet."""
    metrics: tuple[MetricStatus, ...] | None = None
    """The checks made now; None: none was due."""
    answers: Mapping[str, HookAnswer] = field(default_factory=dict)
    """The answers of webhooks that were called now, by name."""
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The annotations of the FlagRollout, with people's requests."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state of the rollout."""

    status: FlagRolloutStatus
    """The whole status; writing it publishes the step."""
    events: tuple[Occurrence, ...]
    requeue_after: float | None
    """Seconds until the next decision is due; None: only a change of an object makes one due."""
