"""What the API server and the controller would refuse of manifests, as far as they alone say it."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.cli.manifests.manifest_files import repeated_keys
from controller.validation.kind_schemas import GROUPS, KINDS, schemas
from controller.validation.object_problems import describe, object_problems
from controller.validation.structural_schema import SchemaProblem, nearest
from evaluator.flags.syntax.problems import Problem, Severity
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from controller.api.kinds import ResourceType
    from controller.cli.manifests.manifest_files import ObjectManifest

_LOOK_ALIKE: Final = 0.75
"""How near to one of ours a group is that means it."""


@dataclass(slots=True)
class Verdict:
    """What became of some manifests."""

    valid: int = 0
    """Manifests of our kinds without an error."""
    problems: list[Problem] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    """Objects of other kinds, which are not judged, by kind."""

    def summary(self) -> str:
        """Return what was found, where nothing was judged."""
        counted = [
            f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in sorted(self.others.items())
        ]
        others = f", only {', '.join(counted)}" if counted else ""
        return f"nothing to check: no manifests of {' or '.join(GROUPS)}{others}"


def judge(manifests: Iterable[ObjectManifest]) -> Verdict:
    """Judge manifests of our groups as the API server does where unknown fields are errors, and as the
    controller does where the API server takes what it could not use.
    """
    verdict = Verdict()
    for manifest in manifests:
        if not isinstance(manifest.body, dict):
            continue
        problems = _identity_problems(manifest.body)
        if problems is None:
            if {"apiVersion", "kind"} <= manifest.body.keys():
                verdict.others[str(manifest.body["kind"])] += 1
            continue
        if not problems:
            kind, repeated = KINDS[manifest.body["kind"]], repeated_keys(manifest.node)
            problems = [*object_problems(kind, manifest.body, repeated)]
        verdict.valid += all(problem.severity is not Severity.ERROR for problem in problems)
        verdict.problems += (_place(manifest, problem) for problem in problems)
    return verdict


def _place(manifest: ObjectManifest, problem: SchemaProblem) -> Problem:
    words = describe(manifest.body, problem)
    place = manifest.place(problem.path)
    path = json_path(problem.path)
    return Problem(manifest.file, *place, problem.severity, problem.code, words, path)


# -- which kind it is ----------------------------------------------------------------------------------------


def _identity_problems(body: Mapping[str, Any]) -> list[SchemaProblem] | None:
    """What is wrong with apiVersion and kind; None for an object of somebody else's."""
    group, _, version = str(body.get("apiVersion") or "").rpartition("/")
    name = str(body.get("kind") or "")
    kind = KINDS.get(name)
    if group not in GROUPS:
        return _of_another_group(body, kind or KINDS.get(_near_kind(name)))
    if kind is None:
        ours = [known.kind for known in KINDS.values() if known.group == group]
        guess = nearest(name, ours) or f"; there is {', '.join(sorted(ours))}"
        message = f'unknown kind "{name}" in {group}{guess}' if name else "is required"
        return [SchemaProblem(("kind",), message, "unknown-kind")]
    if kind.group != group or version not in schemas(kind):
        message = f"{kind.kind} has no version {body['apiVersion']}; write {kind.api_version}"
        return [SchemaProblem(("apiVersion",), message, "unknown-kind")]
    return []


def _of_another_group(body: Mapping[str, Any], meant: ResourceType | None) -> list[SchemaProblem] | None:
    """What is wrong where a kind of ours is meant; None where it is somebody else's."""
    api_version = body.get("apiVersion")
    if meant is None or not (api_version is None or _resembles_ours(str(api_version))):
        return None
    message = "is required" if api_version is None else f'unknown version "{api_version}"'
    return [SchemaProblem(("apiVersion",), f"{message}; write {meant.api_version}", "unknown-kind")]


def _near_kind(name: str) -> str:
    return next(iter(difflib.get_close_matches(name[:100], KINDS, n=1, cutoff=0.8)), "")


def _resembles_ours(api_version: str) -> bool:
    group = api_version.partition("/")[0]
    return any(difflib.SequenceMatcher(None, group[:100], ours).ratio() >= _LOOK_ALIKE for ours in GROUPS)
