"""Manifests of files and folders with the line of each field, and what would be refused of them."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.cli.printing import USAGE, Exit
from controller.flagsets.layers import is_beside_definitions
from controller.pods.near_misses import near_misses
from controller.validation.object_problems import GROUPS, KINDS, describe, object_problems, schemas
from controller.validation.structural_schema import SchemaProblem, nearest
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.recognition import TEMPLATE, Recognised, Unread, recognise_text
from evaluator.flags.text import json_path
from evaluator.flags.yaml_text import YAML_PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.api.kind import ResourceType
    from controller.migration.finding import Path as FieldPath


STDIN: Final = "-"
_BROKEN: Final = (yaml.YAMLError, UnicodeDecodeError, RecursionError)
_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})
_KUSTOMIZATIONS: Final = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})


class _Loader(yaml.CSafeLoader):
    """YAML 1.1 as Go's library, and so kubectl and Flux, read it: times and `12:30` are texts, `1e3` is a
    number, `y` a boolean, and each key is a text.
    """

    bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - the library's way

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        fields = super().construct_mapping(node, deep)
        return {_key(key): value for key, value in fields.items()}


def _key(key: Any) -> Any:
    return key if isinstance(key, str) else str(key).lower() if isinstance(key, bool) else str(key)


_INT: Final = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|(0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+)$")
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_TAG: Final = "tag:yaml.org,2002:"
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag.removeprefix(_TAG) not in {"timestamp", "int", "float", "value"}
    ]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.CSafeLoader.yaml_constructors.items()
    # JSON has no value for !!binary, !!set and the like.
    if tag is None or tag.removeprefix(_TAG) in {"null", "bool", "int", "float", "str", "seq", "map"}
}
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), list("yYnN"))
_Loader.add_implicit_resolver(f"{_TAG}int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+.0123456789"))


@dataclass(frozen=True, slots=True)
class ObjectManifest:
    """One object, and where it stands."""

    body: Any
    file: str
    """Empty: it is a live one."""
    node: Any
    """PyYAML's."""
    _fields: dict[int, dict[str, tuple[Any, Any]]] = field(default_factory=dict, compare=False, repr=False)
    """The keys and values of mappings in which a place was asked for, by the mapping's identity."""

    @property
    def is_object(self) -> bool:
        """Whether the API server could hold it: a patch or a Kustomization beside manifests has no name."""
        meta = self.body.get("metadata") if isinstance(self.body, dict) else None
        return isinstance(meta, dict) and {"apiVersion", "kind"} <= self.body.keys() and "name" in meta

    def line(self, path: FieldPath) -> int | None:
        """The line of the field, or of the nearest around it; None for a live object."""
        return self.place(path)[0] or None

    def place(self, path: FieldPath) -> tuple[int, int]:
        """(line, column) of the field, or of the nearest around it; 0 for a live object."""
        node = nearest = self.node
        for step in path:
            key, node = self._below(node, step)
            if node is None:
                break
            nearest = key or node
        return (0, 0) if nearest is None else (nearest.start_mark.line + 1, nearest.start_mark.column + 1)

    def _below(self, node: Any, step: str | int) -> tuple[Any, Any]:
        """(the key, the value) of a field."""
        if isinstance(node, yaml.MappingNode):
            if id(node) not in self._fields:
                self._fields[id(node)] = _fields(node)
            return self._fields[id(node)].get(str(step), (None, None))
        return _item(node, step)


def _fields(node: yaml.MappingNode) -> dict[str, tuple[Any, Any]]:
    # Of a field that is there twice, the last one is at fault, and counts.
    return {str(key.value): (key, value) for key, value in node.value}


def _item(node: Any, step: str | int) -> tuple[Any, Any]:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None, None


def repeated_keys(node: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield each field that its mapping has more than once."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from repeated_keys(item, (*path, index))
    elif isinstance(node, yaml.MappingNode):
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        yield from ((*path, name) for name, count in Counter(names).items() if count > 1)
        for key, value in node.value:
            yield from repeated_keys(value, (*path, str(key.value)))


@contextlib.contextmanager
def exit_if_unreadable(file: object) -> Iterator[None]:
    """Raises Exit where the block cannot read a file, or the file is no YAML."""
    try:
        yield
    except OSError as error:
        raise Exit(f"{file}: {error.strerror}", USAGE) from None
    except _BROKEN as error:
        problem = _yaml_problem(error, str(file), b"")
        place = f":{problem.line}:{problem.column}" if problem.line else ""
        raise Exit(f"{file}{place}: {problem.message}", USAGE) from None


def _yaml_problem(error: Exception, file: str, content: bytes) -> Problem:
    mark = getattr(error, "problem_mark", None)
    line, column = (0, 0) if mark is None else (mark.line + 1, mark.column + 1)
    why = " ".join((getattr(error, "problem", None) or str(error)).split())
    if isinstance(error, RecursionError):
        why = "it is nested too deeply"
    elif "<stream end>" in why:
        why = "it ends too early: a bracket or quote is not closed"
    elif (seen := _recognise(content, line, column)) is not None:
        helm = ": helm template … | flagstaff lint -f -" if seen.message == TEMPLATE else ""
        why = seen.message + helm
    elif "cannot start any token" in why:
        tab = _line(content, line)[column - 1 : column] == "\t"
        why = "a tab stands where only spaces may be" if tab else "a text that begins so must be in quotes"
    elif why.startswith("could not determine a constructor"):
        why = f"a value has the tag {why.rpartition(' ')[2]}, and JSON has no such values"
    elif "unhashable" in why:
        why = "a key must be text, not a list or a mapping"
    else:
        why = YAML_PROBLEMS.get(why, why)
    return Problem(file, line, column, Severity.ERROR, "broken-yaml", f"not YAML: {why}")


def _recognise(content: bytes, line: int, column: int) -> Recognised | None:
    text = content.decode(errors="replace")
    offset = sum(len(row) for row in text.splitlines(keepends=True)[: max(0, line - 1)]) + max(0, column - 1)
    return recognise_text(Unread(content, text, offset, yaml=True))


def _line(content: bytes, line: int) -> str:
    """The line with this number, from 1; "" for 0."""
    return "".join(content.decode(errors="replace").splitlines()[max(0, line - 1) : line])


def read_manifests(paths: Sequence[str], broken: list[Problem] | None = None) -> list[ObjectManifest]:
    """The objects in these files, in folders' YAML and JSON files, and of standard input (`-`); Lists taken
    apart. In folders, what a Kustomization names as a patch is left out. What is no YAML is added to
    `broken`, if that is given. Raises Exit.
    """
    manifests: list[ObjectManifest] = []
    for file in [file for path in paths for file in _files(path)]:
        shown, content = "stdin" if file == STDIN else file, b""
        with exit_if_unreadable(shown):
            content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        try:
            # Objects before the fault are kept.
            manifests.extend(_documents(content, shown))
        except _BROKEN as error:
            problem = _yaml_problem(error, shown, content)
            if broken is None:
                raise Exit(f"{shown}:{problem.line}:{problem.column}: {problem.message}", USAGE) from None
            broken.append(problem)
    return manifests


def _files(path: str) -> list[str]:
    place = Path(path)
    if path == STDIN or not place.is_dir():
        return [path]
    found = (
        file for file in place.rglob("*") if file.suffix in _ENDINGS and not is_beside_definitions(file.name)
    )
    files = sorted(filter(Path.is_file, found))
    patches = {patch for file in place.rglob("*") if file.name in _KUSTOMIZATIONS for patch in _patches(file)}
    return [str(file) for file in files if file.resolve() not in patches]


def _patches(file: Path) -> Iterator[Path]:
    """The files that a Kustomization names as patches: parts of objects, which nobody can judge alone."""
    with exit_if_unreadable(file):
        body = yaml.load(file.read_bytes(), yaml.CSafeLoader)
    for name in ("patches", "patchesJson6902", "patchesStrategicMerge"):
        patches = body.get(name) if isinstance(body, dict) else None
        for patch in patches if isinstance(patches, list) else ():
            path = patch.get("path") if isinstance(patch, dict) else patch
            # A patch may be written in place.
            if isinstance(path, str) and "\n" not in path:
                yield (file.parent / path).resolve()


def _documents(content: bytes, file: str) -> Iterator[ObjectManifest]:
    loader = _Loader(content)
    try:
        while loader.check_node():
            node = loader.get_node()
            body = loader.construct_document(node)
            _require_tree(body)
            items = (
                _fields(node).get("items", (None, None))[1] if isinstance(node, yaml.MappingNode) else None
            )
            listed = isinstance(body, dict) and str(body.get("kind")).endswith("List")
            if listed and isinstance(items, yaml.SequenceNode):
                for item, item_node in zip(body["items"], items.value, strict=True):
                    yield ObjectManifest(item, file, item_node)
            elif body is not None:
                yield ObjectManifest(body, file, node)
    finally:
        loader.dispose()


def _require_tree(body: object) -> None:
    """Raise YAMLError for a value within itself, which JSON cannot have."""
    try:
        json.dumps(body, default=str)
    except ValueError:
        raise yaml.YAMLError("an alias stands within the value that it names") from None


_MOST_STORED: Final = 3 << 19
"""Bytes of a request to etcd, by default 1.5 MiB."""
_MOST_ANNOTATED: Final = 256 << 10
"""Bytes of all annotations of an object."""
_LOOK_ALIKE: Final = 0.75
"""How near to one of ours a group is that means it."""


@dataclass(slots=True)
class ManifestVerdict:
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


def judge(manifests: Iterable[ObjectManifest]) -> ManifestVerdict:
    """Judge manifests of our groups as the API server does where unknown fields are errors, and as the
    controller does where the API server takes what it could not use.
    """
    verdict = ManifestVerdict()
    for manifest in manifests:
        if not isinstance(manifest.body, dict):
            continue
        problems = _identity_problems(manifest.body)
        if problems is None:
            if {"apiVersion", "kind"} <= manifest.body.keys():
                verdict.others[str(manifest.body["kind"])] += 1
            verdict.problems += (
                _place(
                    manifest,
                    SchemaProblem(miss.path, miss.message, "near-miss", at_key=True, severity=Severity.NOTE),
                )
                for miss in near_misses(manifest.body)
            )
            continue
        if not problems:
            kind, repeated = KINDS[manifest.body["kind"]], repeated_keys(manifest.node)
            problems = [*object_problems(kind, manifest.body, repeated)]
            problems += _size_problems(manifest.body)
        verdict.valid += all(problem.severity is not Severity.ERROR for problem in problems)
        verdict.problems += (_place(manifest, problem) for problem in problems)
    return verdict


def _size_problems(body: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """Yield whether etcd takes the object, and what a FlagSet does with the same flags."""
    size = len(json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str).encode())
    if size > _MOST_STORED:
        message = f"the object has {size} bytes, more than the {_MOST_STORED} that etcd takes by default"
        yield SchemaProblem((), f"{message}; {_what_a_flag_set_does(body)}", "too-large")
    elif size > _MOST_ANNOTATED:
        message = (
            f"the object has {size} bytes, and kubectl apply keeps a copy of at most {_MOST_ANNOTATED} in an "
            "annotation; apply it with --server-side"
        )
        yield SchemaProblem((), message, "too-large", severity=Severity.NOTE)


def _what_a_flag_set_does(body: Mapping[str, Any]) -> str:
    spec = body.get("spec")
    document = spec.get("flagSpec") if isinstance(spec, dict) else None
    if not isinstance(document, dict) or not isinstance(document.get("flags"), dict):
        return "make it smaller"
    # Imported here: it takes long, and few objects are so large.
    from controller.delivery.delivered import TooLargeError, parts

    try:
        count = sum(1 for _ in parts(document))
    except TooLargeError as error:
        return f"a FlagSet refuses these flags, too: {error}"
    return (
        f"keep these flags in files, which a FlagSet writes into {count} FlagShards, or make several objects"
    )


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
