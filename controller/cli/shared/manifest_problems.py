"""What the controller would refuse of manifests, as far as they alone say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.api.kinds import type_of
from controller.cli.shared.manifests import read_manifests
from evaluator.flags.syntax.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.objects.fields import SpecProblem
    from controller.cli.shared.manifests import ObjectManifest


def lint_manifests(paths: Sequence[str]) -> tuple[int, list[Problem]]:
    """(manifests that the controller would take, what it would refuse), of our kinds alone. Raises Exit."""
    valid, problems = 0, []
    for each in read_manifests(paths):
        kind = type_of(each.body) if each.is_object else None
        if kind is not None:
            found = [_problem(each, one) for one in kind.validate(each.body.get("spec"))]
            valid += not found
            problems += found
    return valid, sorted(problems, key=lambda each: (each.file, each.line, each.column))


def _problem(manifest: ObjectManifest, found: SpecProblem) -> Problem:
    steps = tuple(int(step) if step.isdigit() else step for step in found.field.split("."))
    what = f"{manifest.body['kind']} {manifest.body['metadata']['name']}: {found}"
    place = manifest.place(steps)
    return Problem(manifest.file, *place, Severity.ERROR, "invalid-spec", what, f"$.{found.field}")
