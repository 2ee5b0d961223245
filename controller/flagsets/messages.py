"""What a FlagSet's status and Events say of a revision; each message is one line, always the same. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from controller.api import flagshard
from controller.api.featureflagconfiguration import ConfigurationStatus
from controller.api.flagset_status import FlagSetStatus, HeldFlag, HistoryEntry, TargetStatus
from controller.api.meta import AUTHOR, CHANGES, DIFFERENCES, SUBJECT, VERIFIED_BY, Resource
from controller.api.status import FALSE, PROPAGATED, Condition
from controller.delivery.actions import AcceptRevision, in_cluster
from controller.delivery.problem_text import MESSAGE, first_problem, problem_list
from controller.runtime.plain_text import one_line
from evaluator.flags.model import BUCKETING_KEY, HELD_FROM_KEY, REVISION_KEY, Bucketing
from evaluator.host.texts import cut
from evaluator.host.times import query_duration, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from controller.api.artifact_status import ArtifactStatus
    from controller.flagsets.build import Built
    from controller.flagsets.compose import BulkRemoval, Composition
    from evaluator.flags.diff import Diff

MOST_HELD: Final = 100
MOST_HISTORY: Final = 10
_NAMED: Final = 5
"""Flags that a line names; the rest are counted."""
_KEY: Final = 64
_SUBJECT: Final = 72
_ORIGIN: Final = 200
_DIFFERENCES: Final = 1_500
"""Most characters of the JSON with what changed."""


_CORRECTION: Final = {
    "OCIRepository": "push a corrected artifact, or move the tag back",
    "Bucket": "upload corrected files",
    "ExternalArtifact": "publish a corrected artifact",
}
"""What to do about a bad revision, by kind of source; the others are Git repositories."""
_SUPPLY: Final = {
    "OCIRepository": "push an artifact with the files that spec.paths names",
    "Bucket": "upload the files that spec.paths names",
    "ExternalArtifact": "publish an artifact with the files that spec.paths names",
}


Advise: TypeAlias = "Callable[[AcceptRevision], str]"
IN_CLUSTER: Final[Advise] = in_cluster


@dataclass(frozen=True, slots=True)
class Attempt:
    """A revision and the result of building it."""

    artifact: ArtifactStatus
    composition: Composition
    source: str = "FlagSource"
    advise: Advise = IN_CLUSTER
    """Says how a person accepts a revision."""


def changes(changed: Diff) -> str:
    """`1 added, 2 changed: banner, checkout-v2, …`, or that nothing did."""
    counts = (
        (len(changed.added), "added"),
        (len(changed.changed), "changed"),
        (len(changed.removed), "removed"),
    )
    counted = ", ".join(f"{count} {verb}" for count, verb in counts if count)
    return f"{counted}: {_names(changed.keys)}" if counted else "no flags changed"


# -- messages ------------------------------------------------------------------------------------------------


def ready(attempt: Attempt) -> str:
    """The message on a revision that is applied whole."""
    count = len(attempt.composition.problems)
    warned = f"; {count} {'warnings' if count > 1 else 'warning'}, see status.problems" if count else ""
    return f"Applied revision: {attempt.artifact.revision}{warned}"


def message_of_apply(before: FlagSetStatus, attempt: Attempt) -> str:
    """The message on a revision that changed what is served."""
    subject = one_line(attempt.artifact.subject, _SUBJECT)
    quoted = f' "{subject}"' if subject else ""
    signer = one_line(attempt.artifact.verified_by, _ORIGIN)
    signed = f", signed by {signer}" if signer else ""
    return f"{_commit(attempt)}{quoted}{signed}: {_changes(before, attempt)}"


def more(attempt: Attempt, built: Built) -> dict[str, str]:
    """Return details of a revision for an alert: who made it, and what it changes, flag by flag."""
    artifact = attempt.artifact
    details = {
        AUTHOR: one_line(artifact.author.partition(" <")[0], _KEY),
        SUBJECT: one_line(artifact.subject, _SUBJECT),
        VERIFIED_BY: one_line(artifact.verified_by, _ORIGIN),
        DIFFERENCES: _differences(built),
        CHANGES: "\n".join(built.lines),
    }
    return {name: text for name, text in details.items() if text}


def _differences(built: Built) -> str:
    """What changed of the first flags, by key, as JSON."""
    told: dict[str, str] = {}
    for difference in built.differences:
        more = {**told, difference.key: difference.text}
        if len(json.dumps(more, ensure_ascii=False)) > _DIFFERENCES:
            break
        told = more
    return json.dumps(told, ensure_ascii=False) if told else ""


def message_of_refusal(attempt: Attempt, why: str, served: str) -> str:
    """The message on a revision of which nothing is applied; `served` is the revision that is."""
    why = why or first_problem(attempt.composition.problems)
    force = f"{served} stays served" if served else "Nothing has been applied yet"
    lost = any(problem.code.startswith("path-") for problem in attempt.composition.problems)
    supply = _SUPPLY.get(attempt.source, "commit the files that spec.paths names")
    todo = f"{supply}, or correct spec.paths" if lost else _correction(attempt)
    return f"{_commit(attempt)} is refused: {_sentence(why)} {force}; {todo}"


def message_of_partial(attempt: Attempt) -> str:
    """The message on a revision that is applied, except some flags."""
    made = attempt.composition
    total = len(made.flag_set.flags) + len(made.missing)
    plural = "s" if total > 1 else ""
    held = f"still serving the previous definition of: {_names(made.held)}" if made.held else ""
    missing = f"not served, since they never were valid: {_names(made.missing)}" if made.missing else ""
    rest = "; ".join(text for text in (held, missing) if text)
    return (
        f"{_commit(attempt)} is applied, except {len(made.held) + len(made.missing)} of {total} "
        f"flag{plural}: "
        f"{_sentence(first_problem(made.problems))} {rest[0].upper()}{rest[1:]}; {_correction(attempt)}"
    )


def message_of_guard(attempt: Attempt, removal: BulkRemoval, resource: Resource, served: str) -> str:
    """Return the message about a revision that the prune guard holds back."""
    todo = attempt.advise(AcceptRevision(resource.key, attempt.artifact.revision))
    return (
        f"{_commit(attempt)} is held: it {_sentence(str(removal))} {served or 'What was applied'} stays "
        f"served. If the flags are to go: {todo}"
    )


def message_of_unknown(attempt: Attempt, edited: str) -> str:
    """The message on a revision with bad flags, whose last good definitions were edited by hand."""
    way_out = f", or delete {edited} to have all other flags applied"
    return (
        f"{_commit(attempt)} is not applied: {_sentence(first_problem(attempt.composition.problems))} "
        f"{edited} was changed by hand while no controller watched, so the last good "
        "definition is not known, "
        f"and nothing is written; {_correction(attempt)}{way_out if attempt.composition.accepted else ''}"
    )


def _correction(attempt: Attempt) -> str:
    return _CORRECTION.get(attempt.source, "push a correction, or revert the commit")


def _commit(attempt: Attempt) -> str:
    """`main@sha1:… by Ada`, or `latest@sha256:… (main@sha1:…) by Ada` of an image with annotations."""
    artifact = attempt.artifact
    author = one_line(artifact.author.partition(" <")[0], _KEY)
    origin = f" ({one_line(artifact.origin, _ORIGIN)})" if artifact.origin else ""
    return artifact.revision + origin + (f" by {author}" if author else "")


def _names(keys: Sequence[str]) -> str:
    more = ", …" if len(keys) > _NAMED else ""
    return ", ".join(one_line(key, _KEY) for key in keys[:_NAMED]) + more


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _changes(before: FlagSetStatus, attempt: Attempt) -> str:
    made = attempt.composition
    if not made.flag_set.flags and not made.changed:
        return "the set has no flags"
    if made.flag_set.flags and not made.changed and before.digest != made.digest:
        # An earlier run wrote it and was killed before it wrote the status.
        return f"{len(made.flag_set.flags)} flags, found as an earlier run wrote them"
    return changes(made.changed)


# -- fields --------------------------------------------------------------------------------------------------


def status(
    before: FlagSetStatus, attempt: Attempt, manifests: Sequence[Mapping[str, Any]], now: datetime
) -> FlagSetStatus:
    """Return all of the kind's own fields for a revision that is applied. `before`: the status until now."""
    made, revision = attempt.composition, attempt.artifact.revision
    whole = not made.held and not made.missing
    return problems(attempt) | FlagSetStatus(
        last_attempted_revision=revision,
        last_applied_revision=revision,
        last_good_revision=(revision if whole else before.last_good_revision) or None,
        digest=made.digest,
        flag_set_id=made.flag_set.flag_set_id or "",
        bucketing=str(made.flag_set.metadata.get(BUCKETING_KEY, Bucketing.V2.value)),
        flags=len(made.flag_set.flags),
        held_flags=len(made.held),
        held=held_list(made),
        target=_targets(manifests),
        history=history(before, attempt, now),
    )


def problems(attempt: Attempt) -> FlagSetStatus:
    """What is wrong with a revision, applied or not."""
    findings = attempt.composition.problems
    return FlagSetStatus(problem_count=len(findings), problems=problem_list(findings), pending_removals=None)


def pending_removals(removal: BulkRemoval) -> tuple[str, ...]:
    """The status' list of what a held revision would remove, bounded."""
    return tuple(cut(key, MESSAGE) for key in removal.keys[:MOST_HELD])


def held_list(composition: Composition) -> tuple[HeldFlag, ...]:
    """Return the flags that are served at an older revision, with that revision."""
    made = composition.flag_set
    # In a set that did not change at all nothing is marked: it is of one revision.
    all_of_it = made.metadata.get(REVISION_KEY, "")
    return tuple(
        HeldFlag(name=cut(key, MESSAGE), revision=str(made.flags[key].metadata.get(HELD_FROM_KEY, all_of_it)))
        for key in composition.held[:MOST_HELD]
    )


def history(before: FlagSetStatus, attempt: Attempt, now: datetime) -> tuple[HistoryEntry, ...]:
    """The last revisions, the newest first; the same revision with the same digest is not repeated."""
    artifact, made, known = attempt.artifact, attempt.composition, before.history
    held = len(made.held) + len(made.missing) or None
    if known and (known[0].revision, known[0].digest) == (artifact.revision, made.digest):
        return (replace(known[0], held=held), *known[1:])
    entry = HistoryEntry(
        revision=artifact.revision,
        digest=made.digest,
        held=held,
        author=artifact.author or None,
        subject=artifact.subject or None,
        committed_at=artifact.committed_at or None,
        verified_by=one_line(artifact.verified_by, _ORIGIN) or None,
        origin=one_line(artifact.origin, _ORIGIN) or None,
        applied_at=timestamp(now),
        changes=_changes(before, attempt) or None,
    )
    return (entry, *known)[:MOST_HISTORY]


def _targets(manifests: Sequence[Mapping[str, Any]]) -> tuple[TargetStatus, ...]:
    return tuple(
        TargetStatus(
            kind=manifest["kind"],
            name=manifest["metadata"]["name"],
            shards=len(manifest["spec"]["shards"]) if "shards" in manifest["spec"] else None,
        )
        for manifest in manifests
        if manifest["kind"] != flagshard.KIND
    )


def serving_status(
    target: Resource | None, digest: str, before: FlagSetStatus
) -> tuple[FlagSetStatus, tuple[Condition, ...]]:
    """(fields, conditions) that say who serves `digest`, by the object that delivers it, alone or merged with
    remote flags; empty where no proxy has reported. Where the status of the object is about another one, what
    was reported of that ends.
    """
    status = ConfigurationStatus.of(target)
    if status.own_digest != digest:
        known = before.conditions_of(PROPAGATED)
        waits = Condition(PROPAGATED, FALSE, "Progressing", "who serves it is not known yet")
        return FlagSetStatus(), (waits,) if known else ()
    fields = FlagSetStatus() if status.served is None else FlagSetStatus(served=status.served)
    return fields, status.conditions_of(PROPAGATED)


def seen_in(server: str, propagated: Iterable[Condition], interval: float) -> tuple[Condition, ...]:
    """The conditions of an object in another cluster, with how old they may be. `interval`: seconds between
    two looks.
    """
    aged = f"; as read from cluster {server}, at most {query_duration(interval)} ago"
    return tuple(replace(condition, message=f"{condition.message}{aged}") for condition in propagated)
