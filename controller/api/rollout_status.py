"""The status of a FlagRollout, which alone decides who is served a new definition, and its part in objects
with flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, OnErrorOmit

from controller.api.fields import TIME, Model, in_schema
from controller.api.status import Status

RolloutPhase = Literal["Idle", "Held", "Exposed", "Everyone", "Abandoned"]


class ServedRollout(Model):
    """One candidate of a FlagRollout, as it was when the digest in the status was computed. A FlagRollout
    without a candidate has one entry as well.
    """

    name: Annotated[str, Field(max_length=253)]
    """The FlagRollout."""
    shard: Annotated[str, Field(max_length=253)]
    """The FlagShard with the promoted definitions."""
    candidate: Annotated[str, Field(max_length=128)] | None = None
    """The digest of the candidate; absent: no flag differs, or no candidate has the flags yet."""
    flags: Annotated[
        dict[str, Annotated[str, Field(max_length=64)]], in_schema(x_kubernetes_map_type="atomic")
    ] = Field(default_factory=dict)
    """The digest of each new definition by the flag's key."""
    step: Annotated[str, Field(max_length=64)] | None = None
    """The step that is served, such as `2/4`."""
    share: Annotated[str, Field(max_length=16)] | None = None
    """Percent of users who get the new definitions, besides audiences."""
    phase: RolloutPhase
    """`Idle`: nothing differs. `Held`: everybody gets the promoted definitions. `Exposed`: the cohort of the
    step gets the new ones. `Everyone`: everybody does. `Abandoned`: as `Held`, of a FlagRollout that is gone:
    each flag until it changes, or until the annotation `flagstaff.dev/rollout-promote` names the candidate.
    """


class RolloutEntry(NamedTuple):
    """The parts of a `ServedRollout` that decide what is served."""

    name: str
    shard: str
    candidate: str
    """Empty: none."""
    flags: Mapping[str, str]


def rollout_entries(status: object) -> tuple[RolloutEntry, ...]:
    """The entries of FlagRollouts in an object's status."""
    listed = status.get("rollouts") if isinstance(status, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return tuple(
        RolloutEntry(
            str(entry.get("name") or ""),
            str(entry.get("shard") or ""),
            str(entry.get("candidate") or ""),
            _flags(entry),
        )
        for entry in entries
    )


def _flags(entry: Mapping[str, object]) -> dict[str, str]:
    flags = entry.get("flags")
    return {str(key): str(value) for key, value in flags.items()} if isinstance(flags, Mapping) else {}


def held_entries(status: object) -> tuple[RolloutEntry, ...]:
    """The entries of FlagRollouts whose flags differ."""
    return tuple(entry for entry in rollout_entries(status) if entry.flags)


CandidatePhase = Literal[
    "Queued", "Pending", "Progressing", "Paused", "WaitingPromotion", "Promoting", "RollingBack", "Failed"
]
Phase = Literal[CandidatePhase, "Idle", "Succeeded"]
Verdict = Literal["Pass", "Fail", "Inconclusive", "Error"]
Text = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=64), TIME]
PROMOTION: Final = "promotion"
"""The gate after the last step."""


class PromotedRevision(Model):
    """Promoted definitions of the rollout's flags."""

    digest: Annotated[str, Field(max_length=128)]
    """Of the definitions, `sha256:<hex>`."""
    revision: Text | None = None
    """The commit that was promoted last, such as `main@sha1:1a2b…`."""
    shard: Annotated[str, Field(max_length=253)] | None = None
    """The FlagShard that has them."""


class CheckCounts(Model):
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
    outcome: Literal["Promoted", "RolledBack", "Aborted", "Superseded", "Reverted", "Removed"]
    """What became of it."""
    flags: Annotated[tuple[Text, ...], Field(max_length=10)] = ()
    """The first keys of its flags."""
    count: int | None = None
    """How many flags it had."""
    share: float | None = None
    """The greatest percentage of users who got it."""
    reason: Text | None = None
    """Why."""
    started_at: Time | None = None
    """When it began."""
    ended_at: Time | None = None
    """When it ended."""


class StepServed(Model):
    """Who serves the present step."""

    served: int = 0
    """Evaluators that do."""
    total: int = 0
    """All evaluators of the flag set."""


class StoppedDefinition(Model):
    """A definition of one flag that was rolled back or aborted: it is not tried again without a person."""

    flag: Text
    """The flag's key."""
    definition: Annotated[str, Field(max_length=64)]
    """The digest of the definition: the first 16 hexadecimal digits of its SHA-256."""
    outcome: Literal["RolledBack", "Aborted"]
    """What became of it."""
    revision: Text | None = None
    """The commit of the candidate."""
    reason: Text | None = None
    """Why."""
    at: Time
    """When it was stopped."""


class AbsentFlag(Model):
    """A flag with a promoted definition that is not in the set any more."""

    flag: Text
    """The flag's key."""
    since: Time
    """Since when it is absent."""


class CandidateStatus(Model):
    """The flags that one commit changed, and how far their new definitions are rolled out."""

    digest: Annotated[str, Field(max_length=128)]
    """Of the definitions at its beginning, `sha256:<hex>`: the candidate's name in requests and metrics. It
    stays the same when a later commit takes a flag out.
    """
    revision: Text | None = None
    """The commit, such as `main@sha1:1a2b…`."""
    author: Text | None = None
    """Who wrote the commit, as far as the source tells."""
    flags: Annotated[
        dict[str, Annotated[str, Field(max_length=64)]], in_schema(x_kubernetes_map_type="atomic")
    ] = Field(default_factory=dict)
    """The digest of each flag's new definition by the flag's key: the first 16 hexadecimal digits."""
    bucketing: Literal["v2", "v3"] | None = None
    """The generation of `fractional` by which users are drawn; absent: that of each evaluator."""
    phase: CandidatePhase
    """What it is at."""
    reason: Annotated[str, Field(max_length=253)] | None = None
    """Why it is held, or why it ended."""
    message: Text | None = None
    """The cause in words, such as what a metric server answered."""
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
    """The audiences of this step and of those before it, with references expanded: their users get the new
    definitions.
    """
    written_audiences: Annotated[
        tuple[dict[str, Any], ...],
        Field(max_length=32),
        in_schema(items={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ] = ()
    """The same audiences as `spec.steps` had them: a step with one of them adds no users."""
    salt: Text | None = None
    """Before the targeting key, where users are drawn."""
    started_at: Time | None = None
    """When the first step was published."""
    step_started_at: Time | None = None
    """When the step was published."""
    propagated_at: Time | None = None
    """Since when enough evaluators serve it, and nothing hides it: its clock runs."""
    exposed_seconds: float | None = None
    """Seconds for which the step was exposed before `propagatedAt`."""
    unexposed_since: Time | None = None
    """Since when its clock stands: an override hides it, too few evaluators serve it."""
    measured_since: Time | None = None
    """Since when metrics count: the step is exposed since then, but for moments."""
    waited: float | None = None
    """Seconds for which the step waited for people or windows until now."""
    waiting_since: Time | None = None
    """Since when it waits for people or windows."""
    held_since: Time | None = None
    """Since when it is held by its present reason: a deadline counts from here."""
    announced_at: Time | None = None
    """When the end of a deadline was announced."""
    withheld: Annotated[
        tuple[dict[str, Any], ...],
        Field(max_length=8),
        in_schema(items={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ] = ()
    """The audiences of overrides that interrupted the exposure, with references expanded; an empty one is
    everybody. Their users get the promoted definitions until somebody decides, also after the override's end.
    """
    interrupted_by: Text | None = None
    """The override that interrupted the exposure. It stays after the override's end until somebody decides,
    unless `spec.afterOverride` is `Continue`.
    """
    last_check_at: Time | None = None
    """When metrics were checked last."""
    post_rollout_at: Time | None = None
    """When the webhooks of type `post-rollout` were asked."""
    served: StepServed | None = None
    """Who serves the step."""
    checks: CheckCounts | None = None
    """Counts of the step."""
    metrics: Annotated[tuple[OnErrorOmit[MetricStatus], ...], Field(max_length=32)] = ()
    """The newest check of each metric."""
    approvals: Annotated[tuple[OnErrorOmit[Approval], ...], Field(max_length=40)] = ()
    """Who let steps of this candidate end."""

    @property
    def gate(self) -> str:
        """What an approval lets end now: `promotion`, or the step."""
        return PROMOTION if self.phase == "WaitingPromotion" or self.step is None else self.step_gate

    @property
    def step_gate(self) -> str:
        """The step in approvals: its number from 1, as in `step_text`; empty before the first one."""
        return "" if self.step is None else str(self.step + 1)


class FlagRolloutStatus(Status):
    """How far each change is."""

    phase: Phase | None = None
    """The phase of the candidate that needs attention most; `Idle` or `Succeeded` if there is none."""
    running: int | None = None
    """How many candidates run: they began, and have not ended."""
    queued: int | None = None
    """How many changes wait for others to end, by `spec.maxConcurrent`."""
    furthest: Text | None = None
    """The step and share of the candidate that is the furthest: `2/4 50%`."""
    promoted: PromotedRevision | None = None
    """What everybody else gets."""
    promoted_revisions: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    """The commits of the set whose flags of this rollout everybody gets, or got, the newest first. A commit
    that leaves these flags as they are is one of them at once; one that changes no flag of the set is not
    listed.
    """
    candidates: Annotated[tuple[OnErrorOmit[CandidateStatus], ...], Field(max_length=32)] = ()
    """The changes that are not promoted, the oldest first. Changes beyond 32 wait, and nobody gets them."""
    stopped: Annotated[tuple[OnErrorOmit[StoppedDefinition], ...], Field(max_length=200)] = ()
    """Definitions that were rolled back or aborted, the newest first: `spec.retention` says how long they
    are known.
    """
    absent: Annotated[tuple[OnErrorOmit[AbsentFlag], ...], Field(max_length=200)] = ()
    """Flags that are not in the set any more, whose promoted definitions are kept for `spec.retention`."""
    handled_retry: Annotated[str, Field(max_length=512)] | None = None
    """The value of `spec.retry` and its annotation that was acted on."""
    handled: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """The requests of annotations that were acted on or refused, as `approve=…`."""
    recent_digests: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Definitions that were promoted before the present ones, as `KEY=DIGEST`, the newest first, for
    `spec.rollbackWindow`. `KEY=!DIGEST`: an override hid the definition, so it does not count.
    """
    history: Annotated[tuple[OnErrorOmit[Outcome], ...], Field(max_length=20)] = ()
    """Candidates that ended, the newest first."""
