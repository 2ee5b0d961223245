"""What the API server and the controller would refuse of an object, as far as it alone says it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.meta import OPENFEATURE_GROUP, Resource
from controller.api.openfeature import featureflagconfiguration, featureflagsource
from controller.api.parsing.patterns import compile_pattern
from controller.validation.flag_problems import flag_problems
from controller.validation.kind_schemas import KEY, schemas
from controller.validation.schema_rules import places_around, rule_problems
from controller.validation.setting_problems import setting_problems
from controller.validation.structural_schema import SchemaProblem, schema_problems, with_defaults
from evaluator.flags.syntax.problems import Severity
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.kinds import ResourceType
    from evaluator.flags.model import Path

FLAG_KINDS: Final = (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
_ADDRESSES: Final = frozenset({"address", "endpoint", "otelCollectorUri", "source", "uri", "url"})
"""Fields that hold URLs."""
_CONTENT: Final = frozenset({"envVars", "featureFlagSpec", "flagSpec", "patches", "substitute"})
"""Fields that hold what is no setting of ours."""
_USER: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)@")
_QUERY: Final = re.compile(
    r"[?&](access[_-]?token|api[_-]?key|auth|key|passw(or)?d|private[_-]?token|secret|sig(nature)?|token)=",
    re.IGNORECASE,
)
_EXPOSED: Final = (
    "must not hold a password or token: whoever may read the object sees it; put it into a Secret"
)


def describe(body: Mapping[str, Any], problem: SchemaProblem) -> str:
    """Return the problem in words: kind and name of the object, the field, what is wrong and what to do."""
    # Of a problem of a key, the message names the key.
    path = problem.path[:-1] if problem.at_key else problem.path
    metadata = body.get("metadata")
    name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else ""
    title = f"{body.get('kind') or 'object'} {name or ''}".strip()
    field = json_path(path).removeprefix("$").removeprefix(".")
    return ": ".join(part for part in (title, field, problem.message) if part)


def object_problems(
    kind: ResourceType, body: Mapping[str, Any], repeated: Iterable[Path] = ()
) -> Iterator[SchemaProblem]:
    """Yield what is wrong with an object of `kind`, of a version that it has, by itself. `repeated`: the
    fields that its manifest has twice.
    """
    schema = schemas(kind)[body["apiVersion"].rpartition("/")[2]]
    problems = [
        SchemaProblem(path, f'"{path[-1]}" is there twice', "repeated-field", at_key=True)
        for path in repeated
    ]
    # The server drops the status of a new object, whatever it says.
    problems += (
        problem
        for problem in schema_problems(schema, body)
        if problem.path[0] != "status" or problem.code == "unknown-field"
    )
    problems += _metadata_problems(body)
    filled = with_defaults(schema, body)
    without = places_around(problem.path for problem in problems)
    problems += [*rule_problems(schema, filled, without=without)]
    problems += _apart(_secrets(kind, body.get("spec"), ("spec",)), problems)
    problems = _in_the_models_words(kind, filled.get("spec"), problems)
    if kind.kind in FLAG_KINDS:
        judged = {"kind": kind.kind, "metadata": {"name": ""}, "spec": filled.get("spec")}
        problems += _apart(flag_problems(Resource.of(judged)), problems)
    elif kind.kind == featureflagsource.KIND and not any(map(_refuses, problems)):
        problems += _apart(setting_problems(filled["spec"]), problems)
    yield from problems


def _refuses(problem: SchemaProblem) -> bool:
    return problem.severity is Severity.ERROR


def _metadata_problems(body: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return
    if all(metadata.get(name) is None for name in ("name", "generateName")):
        yield SchemaProblem(("metadata", "name"), "is required: the object's name")
    for name in ("labels", "annotations"):
        for key in metadata[name] if isinstance(metadata.get(name), dict) else ():
            if not compile_pattern(KEY).search(key) or len(key.rpartition("/")[0]) > 253:
                message = "is no key: write a name of letters, digits, - _ and ., or prefix.example.com/name"
                yield SchemaProblem(("metadata", name, key), message)


def _in_the_models_words(kind: ResourceType, spec: Any, problems: list[SchemaProblem]) -> list[SchemaProblem]:
    """Add what the controller refuses where the schema finds nothing, and say what a pattern asks for in the
    controller's words.
    """
    refused = kind.validate(spec) if isinstance(spec, dict) else ()
    words = {_steps(problem.field): problem.message for problem in refused}
    in_words = [
        SchemaProblem(problem.path, words[problem.path], problem.code)
        if problem.vague and problem.path in words
        else problem
        for problem in problems
    ]
    more = (SchemaProblem(path, message, "invalid-spec") for path, message in words.items())
    return [*in_words, *_apart(more, in_words)]


def _steps(field_path: str) -> Path:
    return tuple(int(step) if step.isdigit() else step for step in field_path.split("."))


def _apart(more: Iterable[SchemaProblem], known: Iterable[SchemaProblem]) -> list[SchemaProblem]:
    """Return those of `more` about fields with which, around which and within which nothing is wrong yet."""
    # As sets: an object of some MB may have a problem in each of its fields.
    paths = {problem.path for problem in known}
    around = places_around(paths)
    return [
        problem
        for problem in more
        if problem.path not in around
        and not any(problem.path[:length] in paths for length in range(len(problem.path)))
    ]


def _secrets(kind: ResourceType, value: Any, path: Path) -> Iterator[SchemaProblem]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(kind, item, (*path, index))
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _CONTENT:
                yield from _secrets(kind, inner, (*path, name))
    elif isinstance(value, str) and path[-1] in _ADDRESSES and _has_secret(value):
        # OpenFeature Operator takes its own kinds with such URLs.
        severity = Severity.WARNING if kind.group == OPENFEATURE_GROUP else Severity.ERROR
        yield SchemaProblem(path, _EXPOSED, "secret-in-url", severity=severity)


def _has_secret(url: str) -> bool:
    user = _USER.match(url)
    if user is not None and (user[1] != "ssh" or ":" in user[2]):
        return True
    return "://" in url and _QUERY.search(url) is not None
