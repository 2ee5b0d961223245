"""What a commit of anybody does to users of a FlagSet, as a comment. Pure.

It is built as the FlagSet is, but without what reads Secrets and ConfigMaps, and compared with what the
FlagSet delivers. Nothing of it is delivered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from controller.api.artifact_status import ArtifactStatus
from controller.api.flagset import FlagTestsSpec, TestMode
from controller.artifacts.archive import ArchiveRefused, take_skipped, unpack
from controller.authoring.change_tests import covering_tests
from controller.authoring.flag_calendar import schedule_entries, to_come
from controller.authoring.plan_words import calendar_parts, comment
from controller.authoring.plans import Beside, plan_flags, rollouts_by_flag
from controller.authoring.policies import given_policies
from controller.flagsets.build import build
from controller.flagsets.compose import unmet_policies
from controller.flagsets.inputs import steps
from controller.flagsets.layers import places_in, read_own_policies, read_tests
from controller.runtime.setbacks import Stalled
from evaluator.flags.model import FlagSet

if TYPE_CHECKING:
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import Resource
    from controller.authoring.policies import Circumstances
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


@dataclass(frozen=True, slots=True)
class ForeignCommit:
    """A commit that anybody may have made."""

    archive: bytes
    """Its files."""
    revision: str
    limit: int
    """The longest comment, in bytes."""
    around: Circumstances
    """How it comes, without what is served."""


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
    made, skipped = built.composition, take_skipped(files)
    around = commit.around
    beside = Beside(
        rollouts=rollouts_by_flag(around.rollouts, before, made.flag_set), overrides=around.overrides
    )
    flags = plan_flags(before, made.flag_set, int(around.now.timestamp()), beside)
    own = read_own_policies(files, spec.paths, skipped)
    # As the FlagSet does: a repository that takes up policies has flags that do not meet them.
    policies = own._replace(policies=(*given_policies(around.given), *(() if last is None else own.policies)))
    around = around._replace(
        before=before, environments=spec.paths, places=places_in(files, spec.paths, skipped)
    )
    problems = sorted([*made.problems, *unmet_policies(made.flag_set, policies, around, flags)])
    tests = read_tests(files, spec.paths, skipped).cases
    found = covering_tests(
        before, made.tested, [flag.key for flag in flags], tests, (*made.held, *made.missing)
    )
    told = [replace(flag, tests=found.get(flag.key)) for flag in flags]
    calendar = to_come(schedule_entries(made.flag_set, [flag.key for flag in flags]), around.now)
    sides = f"FlagSet {resource.name}", _short(commit.revision)
    return comment(
        told,
        sides,
        commit.limit,
        problems=[str(problem) for problem in problems],
        more=calendar_parts(calendar),
    )


def _short(revision: str) -> str:
    name, _, digest = revision.rpartition("@")
    algorithm, _, digits = digest.partition(":")
    return f"{name}@{algorithm}:{digits[:12]}"
