"""The events of local mode, which are reported to people and programs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.api.meta import AUTHOR, SUBJECT
from controller.flagsets.layers import PathRefused, select
from controller.local.commits import files_of
from controller.local.worktree import with_advice
from controller.runtime.setbacks import Setback
from controller.sources.backend import LineAuthor, LocalBackend, Revision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.artifact_status import ArtifactStatus
    from controller.flagsets.compose import BulkRemoval, Composition
    from evaluator.flags.problems import Problem
    from evaluator.flags.saved import Saved

_BLAMED: Final = 5
"""Problems of one revision whose lines are looked up; each takes a run of git."""


@dataclass(frozen=True, slots=True)
class RevisionBuilt:
    """A new revision went through every stage; `composition.accepted` says whether it is served."""

    revision: str
    composition: Composition
    serving: bool
    """Whether there is a flag set to serve now: this revision's or, where it was refused, an earlier one's.
    """
    removal: BulkRemoval | None = None
    """What it removes, where that is most of the flags."""
    author: str = ""
    subject: str = ""
    blames: Mapping[Problem, LineAuthor] = field(default_factory=lambda: MappingProxyType({}))
    """Who last changed the line of a problem, for the first of them, as far as that is known."""
    uncommitted: tuple[str, ...] = ()
    """Files that would be read, and differ on disk from the commit."""


@dataclass(frozen=True, slots=True)
class SourceChecked:
    """The source was polled. This is reported where it cannot be read, and once it can be read again."""

    reason: str = ""
    """Why it could not be read, while what is served stays; empty: it was read."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """The last good flag set was read back from disk, before the source answered."""

    saved: Saved


@dataclass(frozen=True, slots=True)
class RolloutHappened:
    """A rollout began, took a step, was held, rolled back or promoted: what a cluster has as an Event."""

    rollout: str
    """The FlagRollout's name."""
    reason: str
    """The Event's, such as StepAdvanced."""
    message: str
    warning: bool
    candidate: str = ""
    """The digest of the candidate that it is about; empty: none."""


@dataclass(frozen=True, slots=True)
class RolloutFilesRead:
    """The files of --rollout were read, at the start or after a change. What they say now is applied, and
    served, unless it is refused.
    """

    refused: str = ""
    """What is wrong with them, and where, while what they said before stays in force; empty: nothing."""
    rollouts: tuple[str, ...] = ()
    """The names of their FlagRollouts."""
    overrides: tuple[str, ...] = ()
    """The names of their FlagOverrides."""


@dataclass(frozen=True, slots=True)
class OverridesChanged:
    """An override of the files took effect, or ended."""

    message: str
    """The overrides that are in force now, or what ended."""
    active: bool


@dataclass(frozen=True, slots=True)
class LeaderServes:
    """What the followed `flagstaff up` serves is served here, too."""

    revision: str
    digest: str
    flags: int
    """How many there are."""


RolloutNews: TypeAlias = RolloutHappened | RolloutFilesRead | OverridesChanged
LocalEvent: TypeAlias = RevisionBuilt | RolloutNews | SourceChecked | Restored | LeaderServes


async def explain_build(
    built: RevisionBuilt, source: LocalBackend, artifact: ArtifactStatus | None, paths: Sequence[str]
) -> RevisionBuilt:
    """The same with its commit, as far as `artifact`, the source's newest, is of it; with advice on paths,
    with who last changed the lines of its first problems, and with what `paths` mean and is not committed.
    """
    metadata = {} if artifact is None or artifact.revision != built.revision else artifact.metadata
    name, _, digest = built.revision.rpartition("@")
    revision = Revision(name, digest)
    composition = await _with_path_advice(built.composition, source, revision)
    placed = [problem for problem in composition.problems if problem.line][:_BLAMED]
    blames = {problem: await source.last_change(revision, problem.file, problem.line) for problem in placed}
    known = {problem: blame for problem, blame in blames.items() if blame is not None}
    return replace(
        built,
        composition=composition,
        author=metadata.get(AUTHOR, ""),
        subject=metadata.get(SUBJECT, ""),
        blames=MappingProxyType(known),
        uncommitted=_select(await source.uncommitted_files(revision), paths),
    )


def _select(names: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that `paths` mean."""
    selected: set[str] = set()
    for path in paths:
        with contextlib.suppress(PathRefused):
            selected.update(select(names, path))
    return tuple(sorted(selected))


async def _with_path_advice(
    composition: Composition, source: LocalBackend, revision: Revision
) -> Composition:
    """Where a path matched nothing: with advice from the whole tree, of which only matches were read."""
    if not any(problem.code == "path-not-found" for problem in composition.problems):
        return composition
    try:
        _, tree = await files_of(source.whole(), revision)
    except Setback:
        return composition
    return with_advice(composition, tree)
