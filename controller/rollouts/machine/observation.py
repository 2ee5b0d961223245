"""The input of a rollout's state machine, and its decision. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.api.objects.meta import NOTHING
from controller.delivery.state.actions import in_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Literal

    from controller.api.objects.meta import ObjectKey
    from controller.api.rollouts.flagrollout import FlagRolloutSpec
    from controller.api.rollouts.rollout_status import FlagRolloutStatus, MetricStatus, Revision, Served
    from controller.delivery.state.actions import Action
    from controller.rollouts.analysis.rollout_ports import HookAnswer
    from controller.rollouts.machine.people_requests import Asked
    from controller.runtime.event import Occurrence


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a definition cannot be served to some users only."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Where a definition comes from."""

    revision: str | None = None
    author: str | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The present state of a rollout's flags, evaluators, checks and requests."""

    rollout: ObjectKey
    promoted: Revision
    """The definitions that everybody else gets; their shard is written before the status."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """The digest of each definition that differs from the promoted one, by key."""
    commits: Mapping[str, Commit] = field(default_factory=dict)
    """Where these definitions come from, by key."""
    promoted_definitions: Mapping[str, str] = field(default_factory=dict)
    """The digests of promoted definitions of flags that differ, and of those under an override, by key."""
    absent: frozenset[str] = frozenset()
    """Keys with a promoted definition that is kept while the flag is not in the set."""
    disabled: frozenset[str] = frozenset()
    """Keys of flags that Git disables."""
    misfits: Mapping[str, Misfit] = field(default_factory=dict)
    """By key."""
    audiences: tuple[dict[str, Any] | None, ...] = ()
    """The audience of each step of the spec, with references expanded; None: the step has a share."""
    bucketing: Literal["v2", "v3"] | None = None
    """The generation of `fractional` that is served."""
    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the overrides in force, by the key of their flag."""
    override_audiences: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The audience of each of these overrides that has one, with references expanded, by its name."""
    served: Mapping[str, Served] = field(default_factory=dict)
    """How many evaluators serve what the status says of a candidate, by its digest; absent: it is not
    delivered yet.
    """
    promotions: Mapping[str, Revision] = field(default_factory=dict)
    """The promoted definitions after the promotion of one candidate, by its digest, of those in phase
    `Promoting`.
    """
    metrics: Mapping[str, tuple[MetricStatus, ...]] = field(default_factory=dict)
    """The checks made now, by candidate."""
    answers: Mapping[str, Mapping[str, HookAnswer]] = field(default_factory=dict)
    """The answers of webhooks that were called now, by candidate and name."""
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """The annotations of the FlagRollout, with people's requests."""
    advise: Callable[[Action], str] = in_cluster
    """Says how a person does something."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The input of one decision about one candidate, beside its status."""

    spec: FlagRolloutSpec
    now: datetime
    rollout: ObjectKey
    asked: Asked
    """What people ask for."""
    misfit: Misfit | None = None
    served: Served | None = None
    metrics: tuple[MetricStatus, ...] | None = None
    """The checks made now; None: none was due."""
    answers: Mapping[str, HookAnswer] = field(default_factory=dict)
    """The answers of webhooks that were called now, by name."""
    overrides: tuple[str, ...] = ()
    """Names of the overrides in force of its flags."""
    hidden_from: tuple[dict[str, Any], ...] = ()
    """The audiences of these overrides; an empty one is everybody."""
    missing: str = ""
    """`FlagAbsent` or `FlagDisabled` where Git does not have its flags, or disables them."""
    paused: bool = False
    skips: str = ""
    """Why it needs no steps: `skipAnalysis` or `rollbackWindow`; empty: it does."""
    promotion: Revision | None = None
    """The promoted definitions after its promotion; None: it cannot be promoted now."""
    audiences: tuple[dict[str, Any] | None, ...] = ()
    """See Observation."""
    bucketing: Literal["v2", "v3"] | None = None
    advise: Callable[[Action], str] = in_cluster


@dataclass(frozen=True, slots=True)
class Decision:
    """The next state of the rollout."""

    status: FlagRolloutStatus
    """The whole status; writing it publishes the steps."""
    events: tuple[Occurrence, ...]
    requeue_after: float | None
    """Seconds until the next decision is due; None: only a change of an object makes one due."""
