"""What a FlagSet's status tells of a revision: the same facts for `kubectl describe`, for scripts and for Events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.artifact import AUTHOR, COMMITTED_AT, SUBJECT
from evaluator.flags.model import HELD_FROM_KEY
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.api.artifact import ArtifactStatus
    from controller.flagsets.compose import Composition
    from evaluator.flags.diff import Diff
    from evaluator.flags.problems import Problem

MOST_PROBLEMS: Final = 50
MOST_HELD: Final = 100
MOST_HISTORY: Final = 10
_NAMED: Final = 5
"""Flags that a line names; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A revision and what it came to."""

    artifact: ArtifactStatus
    composition: Composition


def place(problem: Problem) -> str:
    """`file:line:column`, as far as it is known."""
    parts = [problem.file, *(str(number) for number in (problem.line, problem.column) if number)]
    return ":".join(part for part in parts if part)


def first_problem(problems: Sequence[Problem]) -> str:
    """The worst problem in a line, and how many more there are."""
    errors = [each for each in problems if each.severity is Severity.ERROR]
    worst = (errors or list(problems))[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{place(worst)}: {worst.message}{more}"


def changes(changed: Diff) -> str:
    """`1 added, 2 changed: banner, checkout-v2, …`, or that nothing did."""
    counts = (
        (len(changed.added), "added"),
        (len(changed.changed), "changed"),
        (len(changed.removed), "removed"),
    )
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    if not told:
        return "no flags changed"
    keys = changed.keys
    named = ", ".join(keys[:_NAMED]) + (", …" if len(keys) > _NAMED else "")
    return f"{told}: {named}"


def problem_list(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """The status' list, errors first, bounded."""
    ordered = sorted(problems, key=lambda each: each.severity is not Severity.ERROR)
    return [
        {
            "severity": each.severity.value,
            "file": each.file,
            "line": each.line,
            "column": each.column,
            "path": each.path,
            "message": each.message[:500],
        }
        for each in ordered[:MOST_PROBLEMS]
    ]


def held_list(composition: Composition) -> list[dict[str, Any]]:
    """Flags that are served as an older revision had them, with that revision."""
    flags = composition.flag_set.flags
    return [
        {"name": key, "revision": str(flags[key].metadata.get(HELD_FROM_KEY, ""))}
        for key in composition.held[:MOST_HELD]
        if key in flags
    ]


def history(
    before: Sequence[Mapping[str, Any]], attempt: Attempt, now: datetime
) -> list[dict[str, Any]]:
    """The last revisions, the newest first; one that is told already is not told again."""
    artifact, composition = attempt.artifact, attempt.composition
    known = [dict(each) for each in before]
    if known and known[0].get("revision") == artifact.revision:
        return known
    entry = {
        "revision": artifact.revision,
        "digest": composition.digest,
        "author": artifact.metadata.get(AUTHOR),
        "subject": artifact.metadata.get(SUBJECT),
        "committedAt": artifact.metadata.get(COMMITTED_AT),
        "appliedAt": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "changes": changes(composition.changed),
    }
    return [{name: value for name, value in entry.items() if value}, *known][:MOST_HISTORY]
