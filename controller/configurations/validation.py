"""Validates what an object delivers, before and after it is stored, whoever wrote it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.api.objects.fields import InvalidSpecError
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus, MissingShardsError
from controller.delivery.delivered import delivery_of
from controller.delivery.problem_text import first_problem, problem_list, withhold_messages
from controller.delivery.progress.generations import change_text, generation_of, pending_text
from controller.delivery.progress.override_words import override_texts
from controller.delivery.progress.rollouts import disabled_baselines, served_rollouts
from controller.runtime.reconciling.result import Done
from controller.runtime.reconciling.setbacks import Stalled, Waiting
from evaluator.flags.accept import NO_PROGRESS
from evaluator.flags.model import CONFIDENTIAL_KEY, REVISION_KEY
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controller.api.objects.meta import Resource
    from controller.api.rollouts.served_rollout import ServedRollout
    from controller.delivery.delivered import Delivered
    from controller.runtime.reconciling.setbacks import Setback
    from evaluator.flags.accept import Progress
    from evaluator.flags.syntax.problems import Problem

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
