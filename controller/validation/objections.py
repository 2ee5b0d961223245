"""What admission answers about an object: a refusal, or warnings, in the words of `flagstaff lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from controller.delivery.written_flags import CHARACTERS, MOST_NAMED, summary
from controller.runtime.user_text.plain_text import one_line
from controller.validation.kind_schemas import KINDS
from controller.validation.object_problems import describe, object_problems
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping


def objection_to_review(content: bytes) -> tuple[str, tuple[str, ...]]:
    """The objection to the object of an AdmissionReview, in JSON."""
    return objection(orjson.loads(content)["request"]["object"])


def objection(body: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return why an object of ours is refused, with each place and what to do, or an empty text; and what its
    writer is warned of, notes after warnings. Takes as long as the content is large.
    """
    # The API server has judged the rest of it, and what is not stored may still be empty.
    given = body.get("metadata") or {}
    names = {field: given[field] for field in ("name", "generateName") if given.get(field)}
    judged = {**{key: body[key] for key in ("apiVersion", "kind", "spec") if key in body}, "metadata": names}
    problems = [*object_problems(KINDS[body["kind"]], judged)]
    bad = [problem for problem in problems if problem.severity is Severity.ERROR]
    shown = bad or sorted(problems, key=lambda problem: problem.severity is Severity.NOTE)
    texts = [one_line(describe(judged, problem), CHARACTERS) for problem in shown]
    return (summary(texts), ()) if bad else ("", tuple(texts[:MOST_NAMED]))
