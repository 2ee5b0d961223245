"""What a commit of anybody does to users of a FlagSet, as a comment. Pure.

It is built as the FlagSet is, but without what reads Secrets and ConfigMaps, and compared with what the
FlagSet delivers. Nothing of it is delivered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from controller.api.artifact_status import ArtifactStatus
from controller.api.flagset import FlagTestsSpec, TestMode
from controller.artifacts.archive import ArchiveRefused, take_skipped, unpack
from controller.authoring.change_tests import covering_tests
from controller.authoring.flag_calendar import schedule_entries, to_come
from controller.authoring.plan_words import calendar_parts, comment
from controller.authoring.plans import Beside, plan_flags
from controller.flagsets.build import build
from controller.flagsets.inputs import steps
from controller.flagsets.layers import read_tests
from controller.runtime.setbacks import Stalled
from evaluator.flags.candidates import changed_flags
from evaluator.flags.model import FlagSet

if TYPE_CHECKING:
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource
    from controller.flagsets.applied import LastDelivered


def untrusted(spec: FlagSetSpec, *, of_fork: bool) -> FlagSetSpec:
    """The spec without what reads Secrets and ConfigMaps, and holding nothing back; `of_fork`: without values
    of variables, too. A flag with a variable that has no value stays as it is, and is reported.
    """
    has_variables = spec.substitute is not None or spec.substitute_from
    literals = {} if of_fork else spec.substitute or {}
    return spec.model_copy(
        update={
            "decryption": None,
            "substitute": literals if has_variables else None,
            "substitute_from": (),
            "prune_guard": False,
            "tests": FlagTestsSpec(mode=TestMode.OFF),
        }
    )


class SetProgress(NamedTuple):
    """What stands between a FlagSet's definitions and its users."""

    rollouts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Names of FlagRollouts, the oldest first, with the patterns of their flags."""
    overrides: tuple[tuple[str, str], ...] = ()
    """(Flag, name) of FlagOverrides in force."""

    def beside(self, before: FlagSet, after: FlagSet) -> Beside:
        """What a plan says of it."""
        by_flag: dict[str, str] = {}
        for name, patterns in self.rollouts:
            for key in changed_flags(after, before, patterns):
                by_flag.setdefault(key, name)
        return Beside(rollouts=by_flag, overrides=dict(self.overrides))


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit that anybody may have made."""

    archive: bytes
    """Its files."""
    revision: str
    now: int
    """Unix seconds."""
    limit: int
    """The longest comment, in bytes."""
    progress: SetProgress


def plan_text(
    commit: ForeignCommit, spec: FlagSetSpec, resource: Resource, last: LastDelivered | None
) -> str:
    """The comment; empty where nothing changes. Raises Stalled for an archive that cannot be read."""
    archive = commit.archive
    digest = f"sha256:{hashlib.sha256(archive).hexdigest()}"
    # It is never stored.
    artifact = ArtifactStatus(url="https://localhost", revision=commit.revision, digest=digest)
    try:
        built = build(archive, spec, artifact, resource, last, steps(spec.substitute))
        files = unpack(archive)
    except ArchiveRefused as refused:
        raise Stalled("InvalidArtifact", str(refused)) from None
    before = FlagSet() if last is None else last.flag_set
    made = built.composition
    flags = plan_flags(before, made.flag_set, commit.now, commit.progress.beside(before, made.flag_set))
    tests = read_tests(files, spec.paths, take_skipped(files)).cases
    found = covering_tests(
        before, made.flag_set, [flag.key for flag in flags], tests, (*made.held, *made.missing)
    )
    told = [replace(flag, tests=found.get(flag.key)) for flag in flags]
    moment = datetime.fromtimestamp(commit.now, UTC)
    calendar = to_come(schedule_entries(made.flag_set, [flag.key for flag in flags]), moment)
    sides = f"FlagSet {resource.name}", _short(commit.revision)
    return comment(
        told,
        sides,
        commit.limit,
        problems=[str(problem) for problem in made.problems],
        more=calendar_parts(calendar),
    )


def _short(revision: str) -> str:
    name, _, digest = revision.rpartition("@")
    algorithm, _, digits = digest.partition(":")
    return f"{name}@{algorithm}:{digits[:12]}"
