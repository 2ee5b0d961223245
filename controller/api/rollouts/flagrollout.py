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
from controller.api.rollouts.rollout_steps import Freeze, Propagation, Step, Window

KIND: Final = "FlagRollout"
LABEL: Final = "flagstaff.dev/rollout"
"""The label on the FlagShards of promoted definitions; its value is the FlagRollout's name."""

APPROVE: Final = "flagstaff.dev/rollout-approve"
"""Annotation: what is approved, `sha256:<hex>/<step>` with the candidate's digest and the step, from 1, or
`sha256:<hex>/promotion`. Here and in the next two, what follows behind another `/` makes a request a new one.
"""
PROMOTE: Final = "flagstaff.dev/rollout-promote"
"""Annotation: the digest of the candidate that is promoted at once."""
ABORT: Final = "flagstaff.dev/rollout-abort"
"""Annotation: the digest of the candidate that is rolled back."""
RETRY: Final = "flagstaff.dev/rollout-retry"
"""Annotation: any new value has a candidate that failed rolled out again, as `spec.retry` does."""
PAUSE: Final = "flagstaff.dev/rollout-pause"
"""Annotation: `true` holds the rollout at its step, as `spec.pause` does."""


class RollbackWindow(Model):
    """Which earlier definitions need no steps."""

    revisions: Annotated[int, Field(ge=0, le=10)] = 3
    """How many promoted revisions back."""


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
    """The FlagSet or FeatureFlagConfiguration in the same namespace that has the flags."""
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
    """Promote at once; a change is served to everybody as soon as it is in Git."""
    rollback_window: RollbackWindow = RollbackWindow()
    """Changes back to a definition that was promoted lately need no steps."""
    retry: Annotated[str, Field(max_length=253)] = ""
    """Any new value has a candidate that failed rolled out again."""


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
        Column("Step", ".status.stepText"),
        Column("Share", ".status.shareText"),
        Column("Verdict", ".status.verdict"),
        Column("Candidate", ".status.candidate.revision", priority=1),
        READY_COLUMN,
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
)
