"""What the API server and the controller would refuse of an object, in the words of `flagstaff lint`."""

from __future__ import annotations

import contextlib
import json
import re
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import controller
from controller.api import featureflagconfiguration, featureflagsource, flagsource, kinds
from controller.api.expression_syntax import ExpressionError
from controller.api.featureflagconfiguration import MissingShardsError
from controller.api.featureflagsource import FeatureFlagSourceSpec
from controller.api.fields import OPEN, RULES, InvalidSpecError, read
from controller.api.meta import GROUP, OPENFEATURE_GROUP, Resource
from controller.api.parsing import compile_pattern
from controller.configurations.validation import judge
from controller.delivery.problem_text import CHARACTERS, MOST_NAMED, refusals, summary
from controller.pods.installation import PodRefused
from controller.pods.source_settings import check_source, provider_of, variables, warnings
from controller.runtime.expressions import Expression
from controller.runtime.plain_text import one_line
from controller.validation.structural_schema import (
    WORDS,
    SchemaProblem,
    compile_schema,
    schema_problems,
    with_defaults,
)
from evaluator.flags.problems import Severity
from evaluator.flags.text import json_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from jsonschema_rs import Validator

    from controller.api.kind import Kind
    from evaluator.flags.model import Path as FieldPath


SELF: Final = frozenset({"self"})
_BUDGET: Final = 10_000_000
"""Steps of one rule: the rules are ours, and whoever runs them waits for nobody else."""


def rule_problems(
    schema: Mapping[str, Any], value: Any, path: FieldPath = (), *, without: Set[FieldPath] = frozenset()
) -> Iterator[SchemaProblem]:
    """Yield the rules that `value`, which has its defaults, breaks. Places `without` are not judged: their
    fields are not as the rules expect them.
    """
    if path not in without:
        for rule in schema.get(RULES, ()):
            # A rule over `oldSelf` is about a change.
            if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
                yield SchemaProblem(path, rule["message"], "broken-rule")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_problems(schema.get("items", {}), item, (*path, index), without=without)
    if isinstance(value, dict):
        more = schema.get("additionalProperties")
        for name, inner in value.items():
            below = schema.get("properties", {}).get(name, more)
            if isinstance(below, dict):
                yield from rule_problems(below, inner, (*path, name), without=without)


def places_around(paths: Iterable[FieldPath]) -> set[FieldPath]:
    """These paths, and those of everything that holds one of them."""
    return {path[:length] for path in paths for length in range(len(path) + 1)}


def _holds(rule: str, value: Any) -> bool:
    try:
        return Expression.of(rule, SELF).holds({"self": value}, _BUDGET)
    except ExpressionError:
        # To the API server a rule that cannot be evaluated is a broken one.
        return False


GROUPS: Final = (GROUP, OPENFEATURE_GROUP)
KINDS: Final = {kind.kind: kind for kind in kinds.KINDS}

_PACKAGE: Final = Path(controller.__file__).parent
_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final[Mapping[str, Any]] = {
    "pattern": rf"^{_PART}(\.{_PART})*$",
    "maxLength": 253,
    WORDS: "a name of lower-case letters, digits, - and . that begins and ends with a letter or digit",
}
_NAMESPACE: Final[Mapping[str, Any]] = {
    "pattern": f"^{_PART}$",
    "maxLength": 63,
    WORDS: "a name of lower-case letters, digits and - that begins and ends with a letter or digit",
}
_LABEL: Final[Mapping[str, Any]] = {
    "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
    "maxLength": 63,
    WORDS: "letters, digits, - _ and ., with a letter or digit at both ends",
}
KEY: Final = rf"^({_PART}(\.{_PART})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
"""The key of a label or annotation: `prefix/name`, where the prefix may be missing."""
_TEXT: Final = {"type": "string"}
_ANYTHING: Final = {OPEN: True}
METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, **_NAME},
        "generateName": _TEXT,
        "namespace": {"type": "string", **_NAMESPACE},
        "labels": {"type": "object", "additionalProperties": {"type": "string", **_LABEL}},
        "annotations": {"type": "object", "additionalProperties": _TEXT},
        "finalizers": {"type": "array", "items": _TEXT},
        "ownerReferences": {"type": "array", "items": {"type": "object", **_ANYTHING}},
        "creationTimestamp": {"type": "string", "nullable": True},
        "deletionTimestamp": {"type": "string", "nullable": True},
        "deletionGracePeriodSeconds": {"type": "integer", "nullable": True},
        "generation": {"type": "integer"},
        "managedFields": {"type": "array", "items": {"type": "object", **_ANYTHING}},
        "resourceVersion": _TEXT,
        "selfLink": _TEXT,
        "uid": _TEXT,
    },
}
"""What Kubernetes takes of each object's metadata; no CustomResourceDefinition repeats it."""


@lru_cache(maxsize=64)
def schemas(kind: Kind) -> Mapping[str, Mapping[str, Any]]:
    """Return the schema of an object of `kind` by version. Raises OSError where the files are missing."""
    folder = _PACKAGE / "crds"
    if not folder.is_dir():
        # In a checkout they are beside the package.
        folder = _PACKAGE.parent / "crds"
    definition = yaml.load((folder / f"{kind.plural}.yaml").read_bytes(), yaml.CSafeLoader)
    return {
        version["name"]: _whole(version["schema"]["openAPIV3Schema"])
        for version in definition["spec"]["versions"]
    }


@lru_cache(maxsize=64)
def _compiled(kind: Kind, version: str) -> Validator:
    return compile_schema(schemas(kind)[version])


def _whole(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    required = ["metadata", *schema.get("required", ())]
    return {**schema, "required": required, "properties": {**schema["properties"], "metadata": METADATA}}


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
        yield SchemaProblem(_steps_of_field(field), message, "invalid-spec")
        return
    except RecursionError:
        message = "the flags are nested too deeply to be read; make them flatter"
        yield SchemaProblem(("spec",), message, "too-deep")
        return
    problems = (*verdict.problems, *verdict.notes)
    bad = {id(problem) for problem in refusals(problems)}
    for problem in problems:
        severity = Severity.ERROR if id(problem) in bad else problem.severity
        yield SchemaProblem(_steps_of_field(problem.file), problem.message, problem.code, severity=severity)


def _steps_of_field(field: str) -> FieldPath:
    """The path of a problem's field, as far as it can be read."""
    steps: list[str | int] = []
    for step in _STEP.finditer(field):
        steps.append(step[1] or step[2])
        if step[2]:
            with contextlib.suppress(ValueError):
                steps[-1] = json.loads(step[2])
    return tuple(steps)


def setting_problems(settings: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Yield the problems of a spec that its model takes, whatever pod names the object and whichever options
    injection has.
    """
    spec = read(FeatureFlagSourceSpec, settings)
    for number, source in enumerate(spec.sources):
        try:
            check_source(source, provider_of(source, spec), "")
        except PodRefused as refusal:
            yield SchemaProblem(("spec", "sources", number), str(refusal).removeprefix(": "), "invalid-spec")
    try:
        tuple(variables(spec))
    except PodRefused as refusal:
        message = str(refusal).removeprefix("FeatureFlagSource: ")
        yield SchemaProblem(("spec",), message, "invalid-spec")
    for warning in warnings(spec):
        message = warning.removeprefix("FeatureFlagSource: ")
        yield SchemaProblem(("spec",), message, "ignored-field", severity=Severity.NOTE)


_REFERENCES: Final = {
    "git": ("commit", "name", "tag", "semver", "branch"),
    "oci": ("digest", "semver", "tag"),
}
"""Fields of a FlagSource's reference, of which the first that is set is followed."""
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
    kind: Kind, body: Mapping[str, Any], repeated: Iterable[FieldPath] = ()
) -> Iterator[SchemaProblem]:
    """Yield what is wrong with an object of `kind`, of a version that it has, by itself. `repeated`: the
    fields that its manifest has twice.
    """
    version = body["apiVersion"].rpartition("/")[2]
    schema = schemas(kind)[version]
    filled = with_defaults(schema, body)
    problems = [
        SchemaProblem(path, f'"{path[-1]}" is there twice', "repeated-field", at_key=True)
        for path in repeated
    ]
    # The server drops the status of a new object, whatever it says.
    problems += (
        problem
        for problem in schema_problems(schema, _compiled(kind, version), filled)
        if problem.path[0] != "status" or problem.code == "unknown-field"
    )
    problems += _metadata_problems(body)
    without = places_around(problem.path for problem in problems)
    problems += [*rule_problems(schema, filled, without=without)]
    problems += _apart(_secrets(kind, body.get("spec"), ("spec",)), problems)
    problems = _in_the_models_words(kind, filled.get("spec"), problems)
    if kind.kind in FLAG_KINDS:
        judged = {"kind": kind.kind, "metadata": {"name": ""}, "spec": filled.get("spec")}
        problems += _apart(flag_problems(Resource.of(judged)), problems)
    elif kind.kind == featureflagsource.KIND and not any(map(_refuses, problems)):
        problems += _apart(setting_problems(filled["spec"]), problems)
    elif kind.kind == flagsource.KIND:
        problems += _apart(_unused_references(filled.get("spec")), problems)
    yield from problems


def _unused_references(spec: Any) -> Iterator[SchemaProblem]:
    for source, order in _REFERENCES.items():
        part = spec.get(source) if isinstance(spec, dict) else None
        reference = part.get("ref") if isinstance(part, dict) else None
        given = [name for name in order if reference.get(name)] if isinstance(reference, dict) else []
        for name in given[1:]:
            # The revision of a commit names the branch.
            if (given[0], name) != ("commit", "branch"):
                message = f"has no effect: {given[0]} wins, as with Flux; leave one of the two out"
                yield SchemaProblem(
                    ("spec", source, "ref", name), message, "ignored-field", severity=Severity.NOTE
                )


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


def _in_the_models_words(kind: Kind, spec: Any, problems: list[SchemaProblem]) -> list[SchemaProblem]:
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


def _steps(field_path: str) -> FieldPath:
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


def _secrets(kind: Kind, value: Any, path: FieldPath) -> Iterator[SchemaProblem]:
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
    texts = (one_line(describe(judged, problem), CHARACTERS) for problem in shown)
    return (summary(texts, len(bad)), ()) if bad else ("", tuple(islice(texts, MOST_NAMED)))
