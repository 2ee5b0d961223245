"""Validates what an object delivers, before and after it is stored, and who else claims its name. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api import flagset
from controller.api.featureflagconfiguration import ConfigurationStatus, MissingShardsError
from controller.api.fields import InvalidSpecError
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import ObjectKey, Resource
from controller.api.status import NAME_CONFLICT, SUPERSEDED, TRUE, Condition, Status
from controller.delivery.claims import SHADOWED, Conflict
from controller.delivery.delivered import Delivered, delivery_of
from controller.delivery.problem_text import first_problem, problem_list
from controller.delivery.progress_words import override_texts
from controller.delivery.rollouts import (
    change_text,
    disabled_baselines,
    generation_of,
    pending_text,
    served_rollouts,
)
from controller.runtime.event import Occurrence
from controller.runtime.result import Done
from controller.runtime.secret_texts import withhold_messages
from controller.runtime.setbacks import Setback, Stalled, Waiting
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.model import CONFIDENTIAL_KEY, REVISION_KEY
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.text import visible
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from controller.api.rollout_status import ServedRollout
    from controller.runtime.cache import Cache, Change


TARGET_CHANGED: Final = "TargetChanged"


def superseded_condition(
    resource: Resource, objects: Cache, status: ConfigurationStatus
) -> tuple[Condition, ...]:
    """The condition of an object that its FlagSet wrote and left; `status` says how many follow it."""
    writer = flagset.proven_writer(resource)
    flag_set = objects.get(ObjectKey(flagset.KIND, resource.namespace, writer)) if writer else None
    written = [(target.kind, target.name) for target in FlagSetStatus.of(flag_set).target]
    if not written or (resource.key.kind, resource.name) in written:
        return ()
    now = " and ".join(f"{kind} {name}" for kind, name in written)
    message = f"FlagSet {writer} writes {now} and not this object any more; {_followers(status)}"
    return (Condition(SUPERSEDED, TRUE, TARGET_CHANGED, message),)


def _followers(status: ConfigurationStatus) -> str:
    if status.total is None:
        return "no proxy reports who follows it"
    count = status.total + (status.delivered or 0)
    who = {0: "nobody follows", 1: "1 subscriber follows"}.get(count, f"{count} subscribers follow")
    return f"{who} it"


def targets_of_writer(cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the objects that a FlagSet wrote before a change of its status or writes since, but not both."""
    before, written = _targets_of(change.before), _targets_of(change.after)
    for key in before ^ written:
        # A new object needs no other reconcile for the first status of its FlagSet.
        if before or ConfigurationStatus.of(cache.get(key)).condition(SUPERSEDED).status == TRUE:
            yield key


def _targets_of(flag_set: Resource | None) -> set[ObjectKey]:
    if flag_set is None:
        return set()
    return {
        ObjectKey(str(target.kind), flag_set.namespace, str(target.name))
        for target in FlagSetStatus.of(flag_set).target
    }


SHADOWS: Final = "Shadows"
"""A FeatureFlag of the same name is not served."""
FLAG_SET_ID_CONTESTED: Final = "FlagSetIdContested"
"""Another object of the namespace has the same flagSetId, but this one comes first."""
_IDENTIFIER: Final = 100
"""Characters of a flagSetId that a message repeats: the whole message must fit into a condition."""


def name_conflict(conflicts: list[tuple[str, str]]) -> tuple[Condition, ...]:
    """The condition for the conflicts `found`, if any. A lost claim gives the reason, before a won one."""
    if not conflicts:
        return ()
    reason, _ = min(conflicts, key=lambda conflict: conflict[0] in (SHADOWS, FLAG_SET_ID_CONTESTED))
    message = "; ".join(text for _, text in conflicts)
    return (Condition(NAME_CONFLICT, TRUE, reason, message),)


def new_conflicts(status: Status, conflicts: list[tuple[str, str]]) -> tuple[Occurrence, ...]:
    """An Event for each conflict that the status until now does not name."""
    named = status.condition(NAME_CONFLICT).message
    return tuple(Occurrence(reason, text, warning=True) for reason, text in conflicts if text not in named)


def describe_conflict(conflict: Conflict, key: ObjectKey) -> tuple[str, str]:
    """(reason, message) of a conflict that the object `key` is in."""
    claim = f"flagSetId {_quote(conflict.claim)}"
    loses = conflict.loser == key
    other = conflict.winner if loses else conflict.loser
    if other is None:
        return conflict.reason, (
            f'not served under {claim}: it belongs to the namespace that stands before its first "/"; '
            f"begin it with {key.namespace}/, or write it without a slash"
        )
    name = f"{other.kind} {other.namespace}/{other.name}"
    if conflict.reason == SHADOWED:
        if loses:
            return (SHADOWED, f"not served under this name: {name} has the same name; remove one of them")
        return SHADOWS, f"{name} of the same name is not served; remove one of them"
    if not loses:
        return (
            FLAG_SET_ID_CONTESTED,
            f"{name} also claims {claim}; this one comes first and is served instead",
        )
    if other.namespace == key.namespace:
        return (
            conflict.reason,
            f"not served under {claim}: {name} claims it too and comes first; "
            "give one of them another flagSetId",
        )
    # The other may be a tenant's whose names are not for everybody's eyes.
    return conflict.reason, (
        f"not served under {claim} to subscribers that may read both: an object in another namespace "
        "claims it too and comes first; give this one another flagSetId"
    )


def _quote(text: str) -> str:
    return f'"{cut(visible(text[: _IDENTIFIER + 1]), _IDENTIFIER)}"'


_FORMS: Final = ("flagSpec", "shards", "featureFlagSpec")
_NOTHING: Final = ConfigurationStatus()


@dataclass(frozen=True, slots=True)
class ContentVerdict:
    """What is known of the content alone."""

    outcome: Done | Setback
    """Stalled for errors, Waiting for shards that are to come."""
    status: ConfigurationStatus = _NOTHING
    overridden: tuple[str, ...] = ()
    """What FlagOverrides do to flags, see `override_texts`."""
    bucketing_changed: str = ""
    """How many users another generation than in the object's status moves; empty: it is the same."""
    bucketing_waits: str = ""
    """That a change of the generation waits for rollouts; empty: none does."""
    disabled_baselines: tuple[str, ...] = ()
    """See `disabled_baselines`."""
    rollouts: tuple[ServedRollout, ...] | None = None
    """What FlagRollouts do, see `served_rollouts`; None: the content cannot be read."""


def validate_and_measure(
    resource: Resource, shards: Mapping[str, Resource | None], progress: Progress
) -> tuple[ContentVerdict, int]:
    """Return what `validate` does, and the bytes of the object's spec. `shards`: by name."""
    return validate(resource, shards.get, progress), len(json.dumps(resource.spec))


def validate(
    resource: Resource, part: Callable[[str], Resource | None], progress: Progress = NO_PROGRESS
) -> ContentVerdict:
    """Parse as an evaluator would; takes as long as the content is large. `part`: a FlagShard by name;
    `progress`: rollouts and overrides of the object, since what is served is digested, as at the proxy.
    """
    try:
        verdict = judge(resource, part, progress)
    except InvalidSpecError as error:
        return ContentVerdict(Stalled("InvalidSpec", str(error)))
    except MissingShardsError as missing:
        message = f"{missing}; the set comes into force once all of its shards are there"
        return ContentVerdict(Waiting("ShardsMissing", message))
    status = _status(verdict)
    rollouts = served_rollouts(verdict.composed, progress.rollouts) if verdict.digest else None
    parts = (
        override_texts(verdict.flag_set, progress),
        _bucketing_change(ConfigurationStatus.of(resource), verdict),
        pending_text(verdict.composed, verdict.flag_set),
        disabled_baselines(rollouts or (), progress.rollouts),
        rollouts,
    )
    errors = [problem for problem in verdict.problems if problem.severity is Severity.ERROR]
    if errors:
        problem = first_problem(errors)
        end = "" if problem.endswith("?") else "."
        message = f"{problem}{end} Correct it where this object is written"
        return ContentVerdict(Stalled("InvalidFlags", message), status, *parts)
    count = len(verdict.flag_set.flags)
    what = "1 flag is" if count == 1 else f"{count} flags are"
    if not verdict.problems:
        return ContentVerdict(Done(f"{what} valid"), status, *parts)
    warning = f"{what} served, with a warning: {first_problem(verdict.problems)}"
    return ContentVerdict(Done(warning), status, *parts)


def judge(
    resource: Resource, part: Callable[[str], Resource | None], progress: Progress = NO_PROGRESS
) -> Delivered:
    """What is delivered, with problems as people find them in the object: by their paths, and without words
    that a Secret has. Raises InvalidSpecError, MissingShardsError.
    """
    delivery = delivery_of(resource, part, progress)
    # JSON within an object has no lines that anybody knows: a problem's place is its path.
    form = next((f"spec.{name}" for name in _FORMS if resource.spec.get(name) is not None), "")
    marked = {key for key, flag in delivery.flag_set.flags.items() if CONFIDENTIAL_KEY in flag.metadata}

    def in_object(problems: Iterable[Problem]) -> tuple[Problem, ...]:
        placed = (
            replace(problem, file=f"{form}{problem.path.removeprefix('$')}", line=0, column=0, path="")
            for problem in problems
        )
        return withhold_messages(placed, marked.__contains__)

    return replace(delivery, problems=in_object(delivery.problems), notes=in_object(delivery.notes))


def _bucketing_change(before: ConfigurationStatus, verdict: Delivered) -> str:
    if not before.digest or not verdict.digest:
        return ""
    return change_text(verdict.flag_set, before.bucketing, generation_of(verdict.flag_set))


def _status(verdict: Delivered) -> ConfigurationStatus:
    flag_set = verdict.flag_set
    problems = problem_list(verdict.problems)
    status = ConfigurationStatus(
        # The place is a path of the object, not a file of it.
        problems=tuple(
            problem.model_copy(update={"file": None, "path": problem.file}) for problem in problems
        ),
        problem_count=len(verdict.problems),
        flags=len(flag_set.flags),
    )
    if verdict.digest:
        status |= ConfigurationStatus(digest=verdict.digest, bucketing=generation_of(flag_set))
    if verdict.local_digest != verdict.digest:
        status |= ConfigurationStatus(local_digest=verdict.local_digest)
    if flag_set.flag_set_id:
        status |= ConfigurationStatus(flag_set_id=flag_set.flag_set_id)
    if REVISION_KEY in flag_set.metadata:
        status |= ConfigurationStatus(revision=str(flag_set.metadata[REVISION_KEY]))
    return status
