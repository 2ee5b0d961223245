"""Builds the observation of a rollout's state machine from objects of the cluster. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.api.rollouts.rollout_status import Revision, Served
from controller.rollouts.machine.due import IN_STEP
from controller.rollouts.machine.observation import Misfit, Observation
from controller.rollouts.promoted_shards import shard_name
from evaluator.flags.model import AUTHOR_KEY, REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.rollouts.rollout_status import FlagRolloutStatus
    from controller.api.rollouts.served_rollout import ServedRollout
    from controller.rollouts.comparisons import Comparison, Subject
    from evaluator.flags.rollout_rules import Misfit as MisfitReason

_LISTED: Final = 10
"""Keys of flags that a status lists."""
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


def observation_of(subject: Subject, comparison: Comparison) -> Observation:
    """Return the observation, without metrics and answers of webhooks."""
    name = subject.rollout.name
    known = subject.status.promoted
    same = known is not None and known.digest == comparison.promoted_digest
    promoted = (
        known if known is not None and same else _revision(comparison, comparison.promoted_digest, name)
    )
    candidate = comparison.candidate
    return Observation(
        name=name,
        candidate=_candidate(comparison) if candidate.digest else None,
        promoted=promoted,
        desired=_revision(comparison, comparison.desired_digest, name),
        misfit=_misfit(comparison),
        served=_count_served(subject, candidate.digest),
        annotations=subject.rollout.annotations,
    )


def _revision(comparison: Comparison, digest: str, rollout: str) -> Revision:
    return Revision(
        digest=digest, revision=_text(comparison, REVISION_KEY), shard=shard_name(rollout, digest)
    )


def _candidate(comparison: Comparison) -> Revision:
    candidate = comparison.candidate
    return Revision(
        digest=candidate.digest,
        revision=_text(comparison, REVISION_KEY),
        author=_text(comparison, AUTHOR_KEY),
        flags=candidate.keys[:_LISTED],
        count=len(candidate.keys),
    )


def _text(comparison: Comparison, key: str) -> str | None:
    """Return metadata of the first flag that differs, or of the set: either may have the provenance."""
    flag = comparison.whole.flags.get(next(iter(comparison.candidate.keys), ""))
    value = (flag.metadata.get(key) if flag is not None else None) or comparison.whole.metadata.get(key)
    return None if value is None else str(value)


def _misfit(comparison: Comparison) -> Misfit | None:
    for key, reason in sorted(comparison.candidate.misfits.items()):
        text = f'flag "{key}" {_MISFITS[reason]}, or promote the change at once'
        return Misfit(reason, text)
    return None


def _count_served(subject: Subject, candidate: str) -> Served | None:
    """Return how many evaluators serve the status of the rollout; None: it is not delivered yet."""
    status = ConfigurationStatus.of(subject.target)
    entry = next((entry for entry in status.rollouts or () if entry.name == subject.rollout.name), None)
    if entry is None or entry.candidate != candidate or not _shows(entry, subject.status):
        return None
    # No evaluator reports, so the rollout waits for none.
    return Served(served=status.served_by or 0, total=status.total or 0)


def _shows(entry: ServedRollout, status: FlagRolloutStatus) -> bool:
    """Whether an object is delivered by the step of the status; an edited step may have an earlier name."""
    if status.promoted is None or entry.shard != status.promoted.shard:
        return False
    if status.phase in IN_STEP:
        same = entry.step == status.step_text and float(entry.share or 0) == (status.share or 0.0)
        return entry.phase == "Exposed" and same
    return entry.phase == ("Everyone" if status.phase == "Promoting" else "Held")
