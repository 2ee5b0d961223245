"""Builds the observation of a rollout's state machine from objects of the cluster, and the outcome for its
status. Pure.

The outcome is Ready without a candidate, Reconciling during a rollout, Stalled while a person must decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.rollout_status import (
    CandidateStatus,
    FlagRolloutStatus,
    PromotedRevision,
    ServedRollout,
    StepServed,
)
from controller.delivery.state_words import count_text
from controller.rollouts.decide import attention_of
from controller.rollouts.gates import held_text, name_of
from controller.rollouts.judgement import IN_STEP
from controller.rollouts.observation import Commit, Incompatibility, Observation
from controller.rollouts.promoted_shards import shard_name
from controller.runtime.result import Done
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.flags.model import ABSENT, AUTHOR_KEY, BUCKETING_KEY, REVISION_KEY, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from controller.delivery.actions import Action
    from controller.rollouts.comparisons import Comparison, Subject
    from evaluator.flags.overrides import Override
    from evaluator.flags.rollout_rules import Incompatibility as MisfitReason


_MISFITS: Final[Mapping[MisfitReason, str]] = {
    "BucketingChanged": "changes the generation of fractional by which it draws users, and one rule has only "
    "one; pin the generation as before",
    "VariantValueChanged": "changes the value of a variant, which cannot have two values at a time; give the "
    "new value another variant",
    "VariantNameEscaped": "has a default variant whose name no rule can choose, since it has a character "
    "such as & or <; rename the variant",
    "VariantNotInBoth": "may give users a variant that only the other definition has, since its old or new "
    "rule has a computed result or names that variant; give the rule fixed results first, and change the "
    "variants after that",
    "TypeChanged": "changes its type, which cannot be two at a time; use another flag",
    "InvalidAudience": "cannot be rolled out, since an audience of spec.steps has an operator or a $ref that "
    "does not exist; correct the audience",
    "RuleTooLarge": "has a rule that is too large to be served together with the promoted one",
}


def observation_of(
    subject: Subject,
    comparison: Comparison,
    overrides: Iterable[Override],
    served: Mapping[str, Scalar],
    advise: Callable[[Action], str],
) -> Observation:
    """Return the observation, without metrics and answers of webhooks. `overrides`: those in force. `served`:
    the metadata of the served set.
    """
    status, name = subject.status, subject.rollout.name
    known = status.promoted
    same = known is not None and known.digest == comparison.promoted_digest
    overrides = tuple(overrides)
    hidden: dict[str, tuple[str, ...]] = {}
    for override in overrides:
        hidden[override.flag] = (*hidden.get(override.flag, ()), override.name)
    keys = {*comparison.changed, *hidden}
    definitions = {key: comparison.promoted_definition(key) for key in keys}
    bucketing = served.get(BUCKETING_KEY)
    return Observation(
        subject.rollout.key,
        known if known is not None and same else _revision(name, comparison),
        revision=str(comparison.whole.metadata.get(REVISION_KEY) or ""),
        flags=comparison.changed,
        commits={key: _commit(comparison, key) for key in comparison.changed},
        promoted_definitions={key: found for key, found in definitions.items() if found is not None},
        absent=comparison.kept - comparison.disabled,
        disabled=comparison.disabled,
        misfits={key: _misfit(key, reason) for key, reason in comparison.misfits.items()},
        audiences=comparison.audiences,
        bucketing="v2" if bucketing == "v2" else "v3" if bucketing == "v3" else None,
        overrides=hidden,
        override_audiences={
            override.name: comparison.expand_audience(override.audience)
            for override in overrides
            if override.audience is not ABSENT
        },
        served=dict(_served_counts(subject)),
        promotions={
            candidate.digest: PromotedRevision(
                digest=promotion[1], revision=candidate.revision, shard=shard_name(name, promotion[1])
            )
            for candidate in status.candidates
            if candidate.phase == "Promoting" and (promotion := comparison.promotion(candidate)) is not None
        },
        annotations=subject.rollout.annotations,
        advise=advise,
    )


def _revision(rollout: str, comparison: Comparison) -> PromotedRevision:
    digest, revision = comparison.promoted_digest, comparison.whole.metadata.get(REVISION_KEY)
    return PromotedRevision(
        digest=digest, revision=None if revision is None else str(revision), shard=shard_name(rollout, digest)
    )


def _commit(comparison: Comparison, key: str) -> Commit:
    """Return where the definition of a flag comes from: the flag or the set may have the provenance."""
    whole = comparison.whole
    texts = [
        whole.flags[key].metadata.get(name) or whole.metadata.get(name) for name in (REVISION_KEY, AUTHOR_KEY)
    ]
    revision, author = (None if text is None else str(text) for text in texts)
    return Commit(revision, author)


def _misfit(key: str, reason: MisfitReason) -> Incompatibility:
    return Incompatibility(reason, f'flag "{key}" {_MISFITS[reason]}, or promote the change at once')


def _served_counts(subject: Subject) -> Iterator[tuple[str, StepServed]]:
    """Yield how many evaluators serve what the status says of a candidate, by its digest, for those that are
    delivered so.
    """
    target = ConfigurationStatus.of(subject.target)
    promoted = subject.status.promoted
    shard = promoted.shard if promoted is not None else None
    entries = {
        entry.candidate: entry
        for entry in target.rollouts or ()
        if entry.name == subject.rollout.name and entry.shard == shard
    }
    for candidate in subject.status.candidates:
        entry = entries.get(candidate.digest)
        if entry is not None and _shows(entry, candidate):
            # No evaluator reports, so the rollout waits for none.
            yield candidate.digest, StepServed(served=target.served_by or 0, total=target.total or 0)


def _shows(entry: ServedRollout, candidate: CandidateStatus) -> bool:
    """Whether a candidate is delivered by its step; an edited step may have an earlier name."""
    if candidate.phase in IN_STEP and {} not in candidate.withheld:
        same = entry.step == candidate.step_text and float(entry.share or 0) == (candidate.share or 0.0)
        return entry.phase == "Exposed" and same
    if candidate.phase == "Promoting":
        return entry.phase == "Everyone"
    # Nothing differs while its flags are away.
    return entry.phase in {"Held", "Idle"}


def outcome_of(status: FlagRolloutStatus, misfits: Mapping[str, Incompatibility]) -> Done | Setback:
    """Return the outcome of a status: that of the candidate that needs attention most."""
    candidate = attention_of(status)
    if candidate is None:
        return _resting(status)
    count = len(status.candidates) - 1
    others = f"; beside {count_text(count, 'other change')}" if count else ""
    if candidate.phase in {"RollingBack", "Failed"}:
        why = candidate.message or candidate.reason
        return Stalled("RolledBack", f"{name_of(candidate)} is rolled back: {why}")
    reason = candidate.reason
    misfit = next((misfits[key] for key in sorted(candidate.flags) if key in misfits), None)
    if misfit is not None and reason == misfit.reason:
        return Stalled(misfit.reason, held_text(candidate))
    return Waiting(reason or candidate.phase, f"{_progress_text(candidate)}{others}")


def _resting(status: FlagRolloutStatus) -> Done:
    if status.phase != "Succeeded" or status.promoted is None:
        return Done("everybody gets the promoted definitions, and Git has no others", "Idle")
    name = status.promoted.revision or status.promoted.digest
    return Done(f"{name} is promoted: everybody gets it", "Succeeded")


def _progress_text(candidate: CandidateStatus) -> str:
    name = name_of(candidate)
    if candidate.phase == "Promoting":
        return f"{name} is promoted as soon as all evaluators serve it"
    if candidate.phase == "Queued":
        return f"{name} waits for other changes to end"
    if candidate.reason is not None and candidate.phase != "Progressing":
        return held_text(candidate)
    if candidate.step_text is None:
        return f"{name} is about to be rolled out"
    return f"{name} is rolled out, step {candidate.step_text}: {candidate.share_text} of users"
