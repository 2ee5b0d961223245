"""What the API server and the controller would refuse of manifests, as far as they alone say it."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.parsing.patterns import compiled
from controller.cli.manifests.kind_schemas import GROUPS, KEY, KINDS, schemas
from controller.cli.manifests.manifest_files import repeated_keys
from controller.cli.manifests.schema_rules import rule_problems
from controller.cli.manifests.structural_schema import SchemaProblem, defaulted, nearest, schema_problems
from evaluator.flags.syntax.problems import Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.kinds import ResourceType
    from controller.cli.manifests.manifest_files import ObjectManifest
    from controller.migration.finding import Path

_LOOK_ALIKE: Final = 0.75
"""How near to one of ours a group is that means it."""
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


@dataclass(slots=True)
class Verdict:
    """What became of some manifests."""

    valid: int = 0
    """Manifests of our kinds that nothing is wrong with."""
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
        problems = problems or list(_problems(manifest))
        verdict.valid += not problems
        verdict.problems += (_placed(manifest, problem) for problem in problems)
    return verdict


def _placed(manifest: ObjectManifest, problem: SchemaProblem) -> Problem:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.path)
    if problem.at_key:
        # The message names the key.
        shown = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in problem.path[:-1])
    else:
        shown = path
    metadata = manifest.body.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    title = f"{manifest.body.get('kind') or 'object'} {name}".strip()
    words = ": ".join(part for part in (title, shown.removeprefix("."), problem.message) if part)
    place = manifest.place(problem.path)
    return Problem(manifest.file, *place, Severity.ERROR, problem.code, words, f"${path}")


# -- which kind it is ----------------------------------------------------------------------------------------


def _identity_problems(body: Mapping[str, Any]) -> list[SchemaProblem] | None:
    """What is wrong with apiVersion and kind; None for an object of somebody else's."""
    group, _, version = str(body.get("apiVersion") or "").rpartition("/")
    name = str(body.get("kind") or "")
    kind = KINDS.get(name)
    if group not in GROUPS:
        return _of_another_group(body, kind or KINDS.get(_near_kind(name)))
    if kind is None:
        ours = [each.kind for each in KINDS.values() if each.group == group]
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


# -- what is wrong with it -----------------------------------------------------------------------------------


def _problems(manifest: ObjectManifest) -> Iterator[SchemaProblem]:
    body = manifest.body
    kind = KINDS[body["kind"]]
    schema = schemas(kind)[body["apiVersion"].rpartition("/")[2]]
    problems = [
        SchemaProblem(path, f'"{path[-1]}" is there twice', "repeated-field", at_key=True)
        for path in repeated_keys(manifest.node)
    ]
    # The server drops the status of a new object, whatever it says.
    problems += (
        problem
        for problem in schema_problems(schema, body)
        if problem.path[0] != "status" or problem.code == "unknown-field"
    )
    problems += _metadata_problems(body)
    paths = [problem.path for problem in problems]
    filled = defaulted(schema, body)
    problems += list(rule_problems(schema, filled, without=paths))
    paths = [problem.path for problem in problems]
    problems += (each for each in _secrets(body.get("spec"), ("spec",)) if not _overlaps(each.path, paths))
    yield from _with_the_models(kind, filled.get("spec"), problems)


def _metadata_problems(body: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return
    if all(metadata.get(name) is None for name in ("name", "generateName")):
        yield SchemaProblem(("metadata", "name"), "is required: the object's name")
    for name in ("labels", "annotations"):
        for key in metadata[name] if isinstance(metadata.get(name), dict) else ():
            if not compiled(KEY).search(key) or len(key.rpartition("/")[0]) > 253:
                message = "is no key: write a name of letters, digits, - _ and ., or prefix.example.com/name"
                yield SchemaProblem(("metadata", name, key), message)


def _with_the_models(kind: ResourceType, spec: Any, problems: list[SchemaProblem]) -> Iterator[SchemaProblem]:
    """Add what the controller refuses where the schema finds nothing, and say what a pattern asks for in the
    controller's words.
    """
    refused = kind.validate(spec) if isinstance(spec, dict) else ()
    words = {_steps(problem.field): problem.message for problem in refused}
    for problem in problems:
        own = words.get(problem.path) if problem.vague else None
        yield problem if own is None else SchemaProblem(problem.path, own, problem.code)
    paths = [problem.path for problem in problems]
    for path, message in words.items():
        if not _overlaps(path, paths):
            yield SchemaProblem(path, message, "invalid-spec")


def _steps(field_path: str) -> Path:
    return tuple(int(step) if step.isdigit() else step for step in field_path.split("."))


def _overlaps(path: Path, others: Iterable[Path]) -> bool:
    """Whether one of `others` is the same field, or one around it or within it."""
    return any(path[: len(other)] == other[: len(path)] for other in others)


def _secrets(value: Any, path: Path) -> Iterator[SchemaProblem]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in _CONTENT:
                yield from _secrets(inner, (*path, name))
    elif isinstance(value, str) and path[-1] in _ADDRESSES and _has_secret(value):
        yield SchemaProblem(path, _EXPOSED, "secret-in-url")


def _has_secret(url: str) -> bool:
    user = _USER.match(url)
    if user is not None and (user[1] != "ssh" or ":" in user[2]):
        return True
    return "://" in url and _QUERY.search(url) is not None
