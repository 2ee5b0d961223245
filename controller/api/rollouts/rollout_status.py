"""The status of a FlagRollout: its progress, which alone decides who is served a new definition."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, OnErrorOmit

from controller.api.objects.fields import Model
from controller.api.objects.schema_words import TIME, in_schema
from controller.api.objects.status import Status

Phase = Literal[
    "Idle",
    "Pending",
    "Progressing",
    "Paused",
    "WaitingPromotion",
    "Promoting",
    "Succeeded",
    "RollingBack",
    "Failed",
]
Verdict = Literal["Pass", "Fail", "Inconclusive", "Error"]
Text = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64), TIME]
PROMOTION: Final = "promotion"
"""The gate after the last step."""


class Revision(Model):
    """Definitions of the rollout's flags."""

    digest: Annotated[str, Field(max_length=128)]
    """Of the definitions, `sha256:<hex>`."""
    revision: Text | None = None
    """The commit that they are of, such as `main@sha1:1a2b…`."""
    author: Text | None = None
    """Who wrote the commit, as far as the source tells."""
    shard: Annotated[str, Field(max_length=253)] | None = None
    """The FlagShard that has them; absent for definitions that the flag set has itself."""
    flags: Annotated[tuple[Text, ...], Field(max_length=10)] = ()
    """The first keys of those that differ from the promoted ones."""
    count: int | None = None
    """How many flags differ."""


class Checks(Model):
    """Counts of one step."""

    failed: int = 0
    """Checks that failed."""
    consecutive_errors: int = 0
    """Errors since the last check without one."""
    inconclusive: int = 0
    """Checks without a value, or with too few samples, one after the other."""


class MetricStatus(Model):
    """The newest check of one metric."""

    name: Text
    """The metric's name."""
    verdict: Verdict
    """What came of it."""
    value: float | None = None
    """The value; of type `guardrail` the evidence, of type `sampleRatio` the Bayes factor."""
    threshold: Text | None = None
    """What the value is compared with, in words."""
    samples: float | None = None
    """How many samples it is of."""
    query: Annotated[str, Field(max_length=4096)] | None = None
    """What was asked, with all variables."""
    message: Text | None = None
    """Why there is no value."""
    at: Time | None = None
    """When it was checked."""
    weights: Annotated[tuple[float, ...], Field(max_length=16)] = ()
    """Of type `guardrail`: the logarithm of the evidence for each alternative, in this step."""
    counts: Annotated[tuple[float, ...], Field(max_length=8)] = ()
    """Of types `guardrail` and `sampleRatio`: the counts until now, candidate first."""
    recent: Annotated[tuple[float, ...], Field(max_length=10)] = ()
    """The last values, the newest last."""


class Approval(Model):
    """Who let a step end."""

    gate: Text
    """The step, or `promotion`."""
    digest: Annotated[str, Field(max_length=128)]
    """The candidate that was approved."""
    at: Time
    """When it was seen."""


class Outcome(Model):
    """One rollout that ended."""

    digest: Annotated[str, Field(max_length=128)]
    """Of the candidate."""
    revision: Text | None = None
    """The candidate's commit."""
    outcome: Literal["Promoted", "RolledBack", "Superseded", "Reverted"]
    """What became of it."""
    reason: Text | None = None
    """Why."""
    started_at: Time | None = None
    """When it began."""
    ended_at: Time | None = None
    """When it ended."""


class Served(Model):
    """Who serves the present step."""

    served: int = 0
    """Evaluators that do."""
    total: int = 0
    """All evaluators of the flag set."""


class FlagRolloutStatus(Status):
    """How far the rollout is."""

    phase: Phase | None = None
    """What it is at."""
    reason: Annotated[str, Field(max_length=253)] | None = None
    """Why it is held, or why it ended."""
    verdict: Verdict | None = None
    """The worst of the newest checks."""
    step: int | None = None
    """The step that is served, from 0; absent while everybody gets the promoted definitions."""
    step_text: Text | None = None
    """The same for people: `2/4`."""
    share: float | None = None
    """Percent of users who get the new definitions, besides audiences."""
    share_text: Text | None = None
    """The same for people: `10%`, `audience`."""
    audiences: Annotated[
        tuple[dict[str, Any], ...],
        Field(max_length=32),
        in_schema(items={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ] = ()
    """The audiences of this step and of those before it: their users get the new definitions."""
    salt: Text | None = None
    """Before the targeting key, where users are drawn."""
    promoted: Revision | None = None
    """What everybody else gets."""
    candidate: Revision | None = None
    """What is rolled out."""
    failed_digest: Annotated[str, Field(max_length=128)] | None = None
    """The candidate that was rolled back, and is not tried again."""
    handled_retry: Annotated[str, Field(max_length=512)] | None = None
    """The value of `spec.retry` and its annotation that was acted on."""
    handled: Annotated[tuple[Text, ...], Field(max_length=3)] = ()
    """The values of annotations that were acted on or refused, as `approve=…`."""
    post_rollout_at: Time | None = None
    """When the webhooks of type `post-rollout` were asked."""
    started_at: Time | None = None
    """When the rollout began."""
    step_started_at: Time | None = None
    """When the step was published."""
    propagated_at: Time | None = None
    """When enough evaluators served it: its clock starts."""
    waited: float | None = None
    """Seconds for which the step waited for people or windows until now."""
    waiting_since: Time | None = None
    """Since when it waits for people or windows."""
    last_check_at: Time | None = None
    """When metrics were checked last."""
    served: Served | None = None
    """Who serves the step."""
    checks: Checks | None = None
    """Counts of the step."""
    metrics: Annotated[tuple[OnErrorOmit[MetricStatus], ...], Field(max_length=32)] = ()
    """The newest check of each metric."""
    approvals: Annotated[tuple[OnErrorOmit[Approval], ...], Field(max_length=40)] = ()
    """Who let steps of this candidate end."""
    recent_digests: Annotated[tuple[str, ...], Field(max_length=10)] = ()
    """Of definitions that were promoted, the newest first: for `spec.rollbackWindow`."""
    history: Annotated[tuple[OnErrorOmit[Outcome], ...], Field(max_length=10)] = ()
    """Rollouts that ended, the newest first."""

    @property
    def gate(self) -> str:
        """What an approval lets end now: `promotion`, or the step."""
        return PROMOTION if self.phase == "WaitingPromotion" else self.step_gate

    @property
    def step_gate(self) -> str:
        """The step in approvals: its number from 1, as in `step_text`; empty before the first one."""
        return "" if self.step is None else str(self.step + 1)
