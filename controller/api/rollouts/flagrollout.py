"""FlagRollout: a policy by which changes of flags are rolled out in steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.definition import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Column, Definition
from controller.api.objects.fields import Duration, LocalReference, Model
from controller.api.objects.rules import Rule, RuledModel
from controller.api.objects.schema_words import in_schema
from controller.api.rollouts.rollout_analysis import Analysis, Webhook
from controller.api.rollouts.rollout_status import FlagRolloutStatus
from controller.api.rollouts.rollout_steps import Deadline, Freeze, Propagation, Step, Window

KIND: Final = "FlagRollout"
LABEL: Final = "flagstaff.dev/rollout"
"""The label on the FlagShards of promoted definitions; its value is the FlagRollout's name."""

APPROVE: Final = "flagstaff.dev/rollout-approve"
"""Annotation: what is approved, `sha256:<hex>/<step>` with the candidate's digest and the step, from 1, or
`sha256:<hex>/promotion`. Here and in the others that name candidates, 12 digits of a digest are enough, what
follows behind another `/` makes a request a new one, and commas separate several requests.
"""
PROMOTE: Final = "flagstaff.dev/rollout-promote"
"""Annotation: the digest of the candidate that is promoted at once."""
ABORT: Final = "flagstaff.dev/rollout-abort"
"""Annotation: the digest of the candidate that is rolled back."""
RESUME: Final = "flagstaff.dev/rollout-resume"
"""Annotation: the digest of the candidate that goes on after an override has interrupted it."""
RETRY: Final = "flagstaff.dev/rollout-retry"
"""Annotation: a new value has candidates that were stopped rolled out again: those whose digests it names, or
all, as `spec.retry` does.
"""
PAUSE: Final = "flagstaff.dev/rollout-pause"
"""Annotation: `true` holds all candidates at their steps, as `spec.pause` does; digests hold those."""


_FEWEST_DIGITS: Final = 12


def names_candidate(request: str, digest: str) -> bool:
    """Whether the value of an annotation names a candidate by its digest, or by its first 12 digits or more,
    with or without `sha256:`.
    """
    digits = digest.removeprefix("sha256:")
    named = (part.partition("/")[0].strip().removeprefix("sha256:") for part in request.split(","))
    return any(len(name) >= _FEWEST_DIGITS and digits.startswith(name) for name in named)


class RollbackWindow(Model):
    """Which earlier definitions need no steps."""

    revisions: Annotated[int, Field(ge=1, le=10)] = 3
    """How many promoted definitions of a flag back."""


class FlagRolloutSpec(RuledModel):
    """Which changes are rolled out, and how."""

    RULES = (
        Rule(
            "self.steps.filter(s, has(s.share)).map(s, double(s.share)).isSorted() && "
            "self.steps.filter(s, has(s.share)).all(s, "
            "self.steps.filter(t, has(t.share)).exists_one(t, double(t.share) == double(s.share)))",
            "shares must increase from step to step",
            lambda spec: _increases([step.share for step in spec.steps if step.share is not None]),
        ),
    )

    flag_set_ref: LocalReference
    """The FlagSet, FeatureFlagConfiguration or FeatureFlag in the same namespace that has the flags."""
    flags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(min_length=1, max_length=64),
        in_schema(x_kubernetes_list_type="set"),
    ]
    """Keys, or patterns of keys, in which `*` stands for any characters: `new-*`, `checkout/*`."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=32)]
    """Who gets a new definition, step by step. Everybody does after the last one."""
    promotion: Literal["Auto", "Manual"] = "Auto"
    """`Manual`: after the last step somebody promotes."""
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    """When a rollout starts, advances and promotes; always if none is set. It rolls back at any time."""
    freeze: Annotated[tuple[Freeze, ...], Field(max_length=64)] = ()
    """When it does not, whatever the windows say."""
    progress_deadline: Duration | None = None
    """How long a step may take, without the time in which it waits for people or windows; it is rolled back
    then.
    """
    propagation: Propagation = Propagation()
    """When a step counts as served."""
    analysis: Analysis = Analysis()
    """The checks of each step."""
    webhooks: Annotated[
        tuple[Webhook, ...],
        Field(max_length=16),
        in_schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
    ] = ()
    """URLs that decide, too."""
    pause: bool = False
    """Stay at the step. Checks go on, and roll back."""
    suspend: bool = False
    """Change nothing: neither steps nor checks. What is served stays as it is."""
    skip_analysis: bool = False
    """Promote without steps and checks. Windows, freezes, approvals, webhooks of the types confirm-*,
    pre-rollout and rollback, and `promotion: Manual` are waited for.
    """
    rollback_window: RollbackWindow | None = None
    """Changes back to a definition that was in force before the present one, and was never stopped, need no
    steps; they wait for windows, freezes, approvals, webhooks and `promotion: Manual` like any other. Off
    unless it is set.
    """
    max_concurrent: Annotated[int, Field(ge=1, le=20)] = 10
    """How many candidates run beside each other; further ones wait as `Queued`."""
    after_override: Literal["Hold", "Continue"] = "Hold"
    """What becomes of a candidate once an override that interrupted it has ended: `Hold` waits for
    `flagstaff rollout resume`, `abort` or `promote`.
    """
    deadline: Deadline | None = None
    """How long a candidate may wait for people, webhooks or checks at one step. A step's own comes first."""
    retention: Annotated[Duration, Field(ge=3600, le=31_536_000)] = 2_592_000.0
    """How long definitions that were stopped, and promoted definitions of flags that disappeared, stay
    known.
    """
    retry: Annotated[str, Field(max_length=253)] = ""
    """Any new value has candidates that were stopped rolled out again."""


def _increases(shares: list[float]) -> bool:
    return all(before < after for before, after in pairwise(shares))


DEFINITION: Final = Definition(
    KIND,
    "flagrollouts",
    "froll",
    "FlagRollout rolls out changes of flags in steps, watched by metrics.",
    spec=FlagRolloutSpec,
    spec_description="The flags, the steps, and what watches them.",
    status=FlagRolloutStatus,
    columns=(
        Column("Set", ".spec.flagSetRef.name"),
        Column("Phase", ".status.phase"),
        Column("Running", ".status.running", type="integer"),
        Column("Queued", ".status.queued", type="integer", priority=1),
        Column("Furthest", ".status.furthest"),
        Column("Promoted", ".status.promoted.revision", priority=1),
        READY_COLUMN,
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
)
