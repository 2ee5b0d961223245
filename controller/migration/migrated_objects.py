"""What becomes of each object of OpenFeature Operator's kinds, and of workloads that ask for flags. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api import (
    featureflagconfiguration,
    featureflagsource,
    flagd,
    flaggrant,
    inprocessconfiguration,
)
from controller.api.fields import InvalidSpecError, read
from controller.api.flagd import FlagdSpec
from controller.api.inprocessconfiguration import DEFAULTS, InProcessConfigurationSpec
from controller.api.meta import Resource
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.migration import migrated_settings
from controller.migration.finding import Fate, FieldFinding, Path, leaves
from controller.migration.migrated_settings import Trial
from controller.pods import installation
from controller.pods.installation import FLAG_SETS, TEMPLATES, FlagSetFound, Known, Options, PodRefused
from controller.pods.pod_injection import inject
from evaluator.flags.merge import parse
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_OPERATORS: Final = "openfeature.dev"
_DEFAULTS: Final[Mapping[str, Any]] = {
    "port": 8013, "managementPort": 8014, "ofrepPort": 8016, "logFormat": "json", "envVarPrefix": "FLAGD",
    "probesEnabled": True, "debugLogging": False,
}  # fmt: skip
"""What OpenFeature Operator's definition of FeatureFlagSource fills in as one is stored."""
_HISTORIC: Final = {
    _OPERATORS: f'write {installation.ENABLED}: "true"',
    installation.OLD_SOURCES: f"names FeatureFlagSources; write {installation.SOURCES}",
    installation.OLD_FLAGS: f"names flag sets; write {installation.FLAG_SET}, or {installation.SOURCES} for "
    "several",
}
_GONE: Final = "OpenFeature Operator has not read it since 0.5: nothing is injected for it"
_LEFT_OVER: Final = "nothing comes of it: the pod does not ask, or names what it follows in a newer way"
_EVALUATORS: Final = frozenset({installation.CONTAINER, installation.OPERATORS_CONTAINER})


def workload(
    manifest: Mapping[str, Any], namespace: str, options: Options, known: Known
) -> Iterator[FieldFinding]:
    """Every annotation of OpenFeature's on a workload or its template, and whether its pods are created."""
    steps = TEMPLATES[str(manifest["kind"])]
    template: Any = manifest
    for step in steps:
        template = template.get(step) if isinstance(template, dict) else None
    annotations = _annotations(template)
    if steps:
        for name in _annotations(manifest):
            if _is_operators(name):
                yield FieldFinding(
                    Fate.IGNORED, ("metadata", "annotations", name),
                    f"belongs on the pods' template, {'.'.join(steps)}.metadata.annotations",
                    "annotations of a workload itself are not read: nothing is injected for it",
                )  # fmt: skip
    path: Path = (*steps, "metadata", "annotations")
    asks = annotations.get(installation.ENABLED) == "true"
    bare = not steps and not (manifest.get("metadata") or {}).get("ownerReferences")
    for name, value in annotations.items():
        if _is_operators(name):
            if name in _HISTORIC:
                yield _historic(name, annotations, (*path, name))
            else:
                yield _annotation(name, value, asks=asks, bare=bare, path=path)
    if asks:
        yield from _overlaid(annotations, namespace, known, (*path, installation.SOURCES))
        yield from _check_creation(template, namespace, options, known, steps)


def _historic(name: str, annotations: Mapping[str, Any], here: Path) -> FieldFinding:
    """The finding on an annotation that the operator read until 0.5."""
    if name == _OPERATORS:
        return FieldFinding(Fate.IGNORED, here, _HISTORIC[name], _GONE)
    newer = annotations.keys() & {installation.SOURCES, installation.FLAG_SET, installation.IN_PROCESS}
    if newer or annotations.get(installation.ENABLED) != "true":
        return FieldFinding(Fate.IGNORED, here, _LEFT_OVER)
    return FieldFinding(Fate.CHANGED, here, _HISTORIC[name], _GONE)


def _annotation(name: str, value: Any, *, asks: bool, bare: bool, path: Path) -> FieldFinding:
    here = (*path, name)
    if name == installation.ENABLED and not asks:
        return FieldFinding(
            Fate.KEPT, here, "the pod does not ask" if value == "false" else 'only "true" asks'
        )
    if name == installation.ENABLED and bare:
        return FieldFinding(
            Fate.CHANGED, here, "pods without an owner are injected, too", "pods without an owner are refused"
        )
    if name == installation.ALLOW_SYNC:
        return FieldFinding(Fate.IGNORED, here, "written by OpenFeature Operator for itself")
    return FieldFinding(Fate.KEPT, here)


def _overlaid(
    annotations: Mapping[str, Any], namespace: str, known: Known, path: Path
) -> Iterator[FieldFinding]:
    """Fields that a later FeatureFlagSource resets, perhaps without its author's knowing."""
    templates: dict[str, tuple[str, Any]] = {}
    for name in str(annotations.get(installation.SOURCES) or "").split(","):
        try:
            spec = known.spec(featureflagsource.KIND, namespace, name.strip().rpartition("/")[2])
        except PodRefused:
            continue
        for field, default in _DEFAULTS.items():
            if field in spec and spec[field] == default and templates.get(field, ("", default))[1] != default:
                before, value = templates[field]
                yield FieldFinding(
                    Fate.CHANGED, path,
                    f"{field} {default} of {name.strip()} wins over {value} of {before}; "
                    "remove it from the later one",
                    "the definition of the kind fills it in, so that the earlier one is lost",
                )  # fmt: skip
            if field in spec:
                templates[field] = name.strip(), spec[field]


def _check_creation(
    template: Any, namespace: str, options: Options, known: Known, steps: Path
) -> Iterator[FieldFinding]:
    """Whether the webhook would take such a pod."""
    present = _containers(template) & _EVALUATORS
    if present and not steps and (template.get("metadata") or {}).get("uid"):
        # The pod runs: the webhook reviews it no more, whoever injected its evaluator.
        yield FieldFinding(
            Fate.CHANGED, (*steps, "spec"),
            f"has the evaluator {', '.join(sorted(present))} already; a new pod of this owner gets ours",
        )  # fmt: skip
        return
    try:
        changes = inject(template, namespace, options, known)
    except PodRefused as refusal:
        yield FieldFinding(Fate.REFUSED, (*steps, "spec"), str(refusal))
        return
    for warning in () if changes is None else changes.warnings:
        if not warning.startswith(featureflagsource.KIND):
            # What is said of these is found where they stand.
            yield FieldFinding(Fate.CHANGED, (*steps, "spec"), warning)
    if not options.compat and installation.OPERATORS_CONTAINER in present:
        yield FieldFinding(
            Fate.CHANGED, (*steps, "spec"),
            f"has a container {installation.OPERATORS_CONTAINER} of its own; our evaluator is put beside it",
        )  # fmt: skip


def lacks_evaluator(pod: Mapping[str, Any]) -> bool:
    """Return whether a running pod asks for an evaluator and has none."""
    return _annotations(pod).get(installation.ENABLED) == "true" and not _containers(pod) & _EVALUATORS


def _containers(pod: Any) -> set[Any]:
    spec = pod.get("spec") if isinstance(pod, dict) else None
    lists = (
        [spec.get(part) or () for part in ("initContainers", "containers")] if isinstance(spec, dict) else []
    )
    return {
        container.get("name")
        for containers in lists
        for container in containers
        if isinstance(container, dict)
    }


def _annotations(body: Any) -> Mapping[str, Any]:
    meta = body.get("metadata") if isinstance(body, dict) else None
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    return annotations if isinstance(annotations, dict) else {}


def _is_operators(name: str) -> bool:
    return name == _OPERATORS or name.startswith(f"{_OPERATORS}/")


GROUP: Final = "core.openfeature.dev"


@dataclass(frozen=True, slots=True)
class MigratedObject:
    """An object, and what becomes of it."""

    kind: str
    namespace: str
    name: str
    findings: tuple[FieldFinding, ...]


def subject(body: Any, namespace: str, options: Options, known: Known) -> MigratedObject | None:
    """What becomes of an object; None for other kinds. `namespace` is that of objects that name none."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return None
    kind, meta = str(body.get("kind")), body["metadata"]
    where, name = str(meta.get("namespace") or namespace), str(meta.get("name", ""))
    trial = Trial(kind, where, name, options)
    given = body.get("spec")
    spec = given if isinstance(given, dict) else {}
    if kind in TEMPLATES:
        findings = [*workload(body, where, options, known)]
        if not findings:
            return None
    elif str(body.get("apiVersion")).partition("/")[0] != GROUP:
        return None
    elif kind == featureflagsource.KIND:
        findings = trial.judge(
            migrated_settings.judge_flag_source(spec, where, known, compat=options.compat), spec
        )
    elif kind == inprocessconfiguration.KIND:
        findings = trial.judge(_in_process(spec, where, known, compat=options.compat), spec)
    elif kind == flagd.KIND:
        findings = [*_flagd(spec)]
    elif kind in {featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND}:
        findings = [*_flags(body, spec)]
    elif kind == "FlagSourceConfiguration":
        message = "is of OpenFeature Operator before 0.5; write a FeatureFlagSource"
        findings = [FieldFinding(Fate.REFUSED, ("spec",), message, "no version since 0.5 reads it")]
    else:
        return None
    return MigratedObject(kind, where, name, tuple(findings))


def _flagd(spec: Mapping[str, Any]) -> Iterator[FieldFinding]:
    known = {field.alias for field in FlagdSpec.model_fields.values()}
    for name in spec:
        yield FieldFinding(Fate.KEPT if name in known else Fate.IGNORED, ("spec", name))
    try:
        read(FlagdSpec, spec)
    except InvalidSpecError as error:
        yield FieldFinding(Fate.REFUSED, ("spec",), str(error))
        return
    yield FieldFinding(
        Fate.CHANGED, ("spec",),
        "our evaluator takes the place of stock flagd, unless --evaluator-image names that",
        "a changed FeatureFlagSource does not reach it, what is deleted is not made anew, and what is "
        "switched off stays",
    )  # fmt: skip


def _in_process(
    spec: Mapping[str, Any], namespace: str, known: Known, *, compat: bool
) -> Iterator[FieldFinding]:
    fields = {field.alias for field in InProcessConfigurationSpec.model_fields.values()}
    served = spec.get("offlineFlagSourcePath") or spec.get("socketPath")
    proxied = spec.get("host") in {None, "", DEFAULTS["host"]} and not served
    for name, value in spec.items():
        place, _, own = str(value).removeprefix("core.openfeature.dev/").rpartition("/")
        if name == "selector" and proxied and not compat and place not in {"", namespace}:
            yield migrated_settings.elsewhere(place, own, namespace, known, ("spec", name))
        else:
            yield FieldFinding(Fate.KEPT if name in fields else Fate.IGNORED, ("spec", name))
    if proxied:
        yield FieldFinding(
            Fate.KEPT if compat else Fate.CHANGED, ("spec",),
            "write the host of a server" if compat else "our proxy is asked, for selector's flag set",
            "localhost is asked, where nothing listens unless the pod brings a server of its own",
        )  # fmt: skip


def _flags(body: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[FieldFinding]:
    """Flags are read by the parser that serves them."""
    for name, value in spec.items():
        if name in {"flagSpec", "featureFlagSpec"}:
            yield from _definitions(body, name)
        elif name in {"shards", "revision"}:
            yield FieldFinding(Fate.KEPT, ("spec", name))
        else:
            for path in leaves(value, ("spec", name)):
                yield FieldFinding(
                    Fate.IGNORED, path, "evaluators are configured by annotations and FeatureFlagSources",
                    "OpenFeature Operator has not read it since 0.5",
                )  # fmt: skip


def _definitions(body: Mapping[str, Any], field: str) -> Iterator[FieldFinding]:
    path = ("spec", field)
    meta = {"name": "", **body["metadata"]}
    try:
        document = featureflagconfiguration.flag_document(Resource.of({**body, "metadata": meta}))
    except (InvalidSpecError, featureflagconfiguration.MissingShardsError) as error:
        yield FieldFinding(Fate.REFUSED, path, str(error))
        return
    yield FieldFinding(Fate.KEPT, path)
    for problem in parse(document.content, file="flags.json").problems:
        if problem.severity is Severity.ERROR:
            yield FieldFinding(Fate.REFUSED, path, f"{problem.path}: {problem.message}")
        elif problem.severity is Severity.WARNING:
            yield FieldFinding(
                Fate.CHANGED, path,
                f"{problem.path}: {problem.message}; a FlagSet with validation Strict holds it back",
            )  # fmt: skip


class GivenObjects:
    """Implements injection's `Known` over the objects that are given."""

    def __init__(self, bodies: Sequence[Any], namespace: str, *, whole: bool) -> None:
        """`whole`: whether these are all objects of a cluster, so that a flag set may be missing."""
        self._whole = whole
        self._specs: dict[tuple[str, str, str], Any] = {}
        self._flags: set[tuple[str, str]] = set()
        self._grants: dict[str, list[Resource]] = {}
        for body in bodies:
            meta = body.get("metadata") if isinstance(body, dict) else None
            if isinstance(meta, dict):
                key = str(meta.get("namespace") or namespace), str(meta.get("name"))
                self._specs[str(body.get("kind")), *key] = body.get("spec")
                if body.get("kind") in FLAG_SETS:
                    self._flags.add(key)
                if body.get("kind") == flaggrant.KIND and key[0]:
                    grant = Resource.of({**body, "metadata": {**meta, "name": key[1]}})
                    self._grants.setdefault(key[0], []).append(grant)

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        """See Known; decides by the grants among the objects."""
        who = pods(reader)
        granted = granted_kinds(self._grants.get(namespace, ()), who, name, kinds)
        if not granted:
            raise PodRefused(denial_message(who, namespace, name, kinds))
        return granted, ""

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        """Return the name itself, assumed to be that of the served object."""
        del kinds
        if self._whole and (namespace, name) not in self._flags:
            raise PodRefused(
                f"namespace {namespace} has no FlagSet, FeatureFlagConfiguration or FeatureFlag {name}"
            )
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the spec of one of the objects."""
        spec = self._specs.get((kind, namespace, name))
        if not isinstance(spec, dict):
            where = "is not there" if self._whole else "is not among the manifests; add its file with -f"
            raise PodRefused(f"{kind} {namespace}/{name}: {where}")
        return spec
