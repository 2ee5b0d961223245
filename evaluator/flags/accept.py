"""Judges what was read: the set with bad flags at their last good definition, or a refusal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evaluator.flags.canonical import digest
from evaluator.flags.checking.affected import flags_affected_by, is_whole_set_bad
from evaluator.flags.effective import NO_PROGRESS, Progress, effective
from evaluator.flags.holding import held_back
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from evaluator.flags.layers.merge import Parsed
    from evaluator.flags.model import FlagSet
    from evaluator.flags.syntax.problems import Problem


@dataclass(frozen=True, slots=True)
class Policy:
    """What a problem holds back."""

    warnings: bool = False
    """Whether warnings count as errors."""
    whole: bool = False
    """Whether any error refuses the whole delivery, rather than hold the flag that has it."""


PER_FLAG: Final = Policy()


@dataclass(frozen=True, slots=True)
class Accepted:
    """To be served."""

    flag_set: FlagSet
    """What evaluators read: `desired` with progress."""
    desired: FlagSet
    """What was delivered, with held flags: the `previous` of the next delivery."""
    digest: str
    """Of `flag_set`: `sha256:<hex>`."""
    held: tuple[str, ...]
    """Keys of the flags that stay at their last good definition, sorted."""
    missing: tuple[str, ...]
    """Keys of bad flags that have no last good definition and so are not served, sorted."""
    problems: tuple[Problem, ...]
    """Errors and warnings, by place."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It is unknown what is wanted: nothing changes."""

    problems: tuple[Problem, ...]

    @property
    def cause(self) -> str:
        """The first error, with its place."""
        errors = (str(problem) for problem in self.problems if problem.severity is Severity.ERROR)
        return next(errors, "it holds no flags")


def accept(
    parsed: Parsed,
    previous: FlagSet | None,
    policy: Policy = PER_FLAG,
    progress: Progress = NO_PROGRESS,
) -> Accepted | Refused:
    """Judge what was read after `previous`, the last `desired` of the same source. Takes long for a large
    set.
    """
    failures = parsed.problems if policy.warnings else parsed.errors
    if is_whole_set_bad(parsed) or (failures and policy.whole):
        return Refused(parsed.problems)
    bad = parsed.bad | flags_affected_by(parsed.flag_set, failures)
    if policy.warnings:
        bad |= parsed.warned
    desired, held = held_back(parsed.flag_set, bad, previous)
    flag_set = effective(desired, progress)
    missing = tuple(sorted(bad - desired.flags.keys()))
    return Accepted(flag_set, desired, digest(flag_set), held, missing, parsed.problems)
