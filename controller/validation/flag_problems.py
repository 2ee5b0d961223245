"""What the parser that serves finds in the flags of a FeatureFlagConfiguration or FeatureFlag. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Final

from controller.api.objects.fields import InvalidSpecError
from controller.api.openfeature.featureflagconfiguration import MissingShardsError
from controller.configurations.validation import judge
from controller.delivery.written_flags import refusals
from controller.validation.structural_schema import SchemaProblem
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource
    from evaluator.flags.model import Path

_STEP: Final = re.compile(r'(?:^|\.)([A-Za-z_$][\w$-]*)|\[(\d+|"(?:[^"\\]|\\.)*")\]')
"""One step of a path as `json_path` writes it."""


def flag_problems(resource: Resource) -> Iterator[SchemaProblem]:
    """Yield the problems of the flags, and notes about them. Takes as long as the content is large."""
    try:
        verdict = judge(resource, lambda _: None)
    except MissingShardsError:
        # They may be written after their index, which then is not in force yet.
        return
    except InvalidSpecError as error:
        field, _, message = str(error).partition(": ")
        yield SchemaProblem(_steps(field), message, "invalid-spec")
        return
    except RecursionError:
        message = "the flags are nested too deeply to be read; make them flatter"
        yield SchemaProblem(("spec",), message, "too-deep")
        return
    problems = (*verdict.problems, *verdict.notes)
    bad = {id(problem) for problem in refusals(problems)}
    for problem in problems:
        severity = Severity.ERROR if id(problem) in bad else problem.severity
        yield SchemaProblem(_steps(problem.file), problem.message, problem.code, severity=severity)


def _steps(field: str) -> Path:
    """The path of a problem's field, as far as it can be read."""
    steps: list[str | int] = []
    for step in _STEP.finditer(field):
        steps.append(step[1] or step[2])
        if step[2]:
            with contextlib.suppress(ValueError):
                steps[-1] = json.loads(step[2])
    return tuple(steps)
