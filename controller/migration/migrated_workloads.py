"""What becomes of pods that ask for flags: of their annotations, and of the template as a whole. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.openfeature import featureflagsource
from controller.migration.finding import Fate, Finding
from controller.pods.injection.pod_injection import inject
from controller.pods.injection.templates import TEMPLATES
from controller.pods.settings import well_known
from controller.pods.settings.installation import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.migration.finding import Path
    from controller.pods.settings.installation import Known, Options

_OPERATORS: Final = "openfeature.dev"
_DEFAULTS: Final[Mapping[str, Any]] = {
    "port": 8013, "managementPort": 8014, "ofrepPort": 8016, "logFormat": "json", "envVarPrefix": "FLAGD",
    "probesEnabled": True, "debugLogging": False,
}  # fmt: skip
"""What OpenFeature Operator's definition of FeatureFlagSource fills in as one is stored."""
_HISTORIC: Final = {
    _OPERATORS: f'write {well_known.ENABLED}: "true"',
    well_known.OLD_SOURCES: f"names FeatureFlagSources; write {well_known.SOURCES}",
    well_known.OLD_FLAGS: f"names flag sets; write {well_known.FLAG_SET}, or {well_known.SOURCES} for "
    "several",
}
_GONE: Final = "OpenFeature Operator has not read it since 0.5: nothing is injected for it"
_LEFT_OVER: Final = "nothing comes of it: the pod does not ask, or names what it follows in a newer way"
_EVALUATORS: Final = frozenset({well_known.CONTAINER, well_known.OPERATORS_CONTAINER})


def workload(
    manifest: Mapping[str, Any], namespace: str, options: Options, known: Known
) -> Iterator[Finding]:
    """Every annotation of OpenFeature's on a workload or its template, and whether its pods are created."""
    steps = TEMPLATES[str(manifest["kind"])]
    template: Any = manifest
    for step in steps:
        template = template.get(step) if isinstance(template, dict) else None
    annotations = _annotations(template)
    if steps:
        for name in _annotations(manifest):
            if _is_operators(name):
                yield Finding(
                    Fate.IGNORED, ("metadata", "annotations", name),
                    f"belongs on the pods' template, {'.'.join(steps)}.metadata.annotations",
                    "annotations of a workload itself are not read: nothing is injected for it",
                )  # fmt: skip
    path: Path = (*steps, "metadata", "annotations")
    asks = annotations.get(well_known.ENABLED) == "true"
    bare = not steps and not (manifest.get("metadata") or {}).get("ownerReferences")
    for name, value in annotations.items():
        if _is_operators(name):
            if name in _HISTORIC:
                yield _historic(name, annotations, (*path, name))
            else:
                yield _annotation(name, value, asks=asks, bare=bare, path=path)
    if asks:
        yield from _overlaid(annotations, namespace, known, (*path, well_known.SOURCES))
        yield from _check_creation(template, namespace, options, known, steps)


def _historic(name: str, annotations: Mapping[str, Any], here: Path) -> Finding:
    """The finding on an annotation that the operator read until 0.5."""
    if name == _OPERATORS:
        return Finding(Fate.IGNORED, here, _HISTORIC[name], _GONE)
    newer = annotations.keys() & {well_known.SOURCES, well_known.FLAG_SET, well_known.IN_PROCESS}
    if newer or annotations.get(well_known.ENABLED) != "true":
        return Finding(Fate.IGNORED, here, _LEFT_OVER)
    return Finding(Fate.CHANGED, here, _HISTORIC[name], _GONE)


def _annotation(name: str, value: Any, *, asks: bool, bare: bool, path: Path) -> Finding:
    here = (*path, name)
    if name == well_known.ENABLED and not asks:
        return Finding(Fate.KEPT, here, "the pod does not ask" if value == "false" else 'only "true" asks')
    if name == well_known.ENABLED and bare:
        return Finding(
            Fate.CHANGED, here, "pods without an owner are injected, too", "pods without an owner are refused"
        )
    if name == well_known.ALLOW_SYNC:
        return Finding(Fate.IGNORED, here, "written by OpenFeature Operator for itself")
    return Finding(Fate.KEPT, here)


def _overlaid(annotations: Mapping[str, Any], namespace: str, known: Known, path: Path) -> Iterator[Finding]:
    """Fields that a later FeatureFlagSource resets, perhaps without its author's knowing."""
    templates: dict[str, tuple[str, Any]] = {}
    for name in str(annotations.get(well_known.SOURCES) or "").split(","):
        try:
            spec = known.spec(featureflagsource.KIND, namespace, name.strip().rpartition("/")[2])
        except Refused:
            continue
        for field, default in _DEFAULTS.items():
            if field in spec and spec[field] == default and templates.get(field, ("", default))[1] != default:
                before, value = templates[field]
                yield Finding(
                    Fate.CHANGED, path,
                    f"{field} {default} of {name.strip()} wins over {value} of {before}; "
                    "remove it from the later one",
                    "the definition of the kind fills it in, so that the earlier one is lost",
                )  # fmt: skip
            if field in spec:
                templates[field] = name.strip(), spec[field]


def _check_creation(
    template: Any, namespace: str, options: Options, known: Known, steps: Path
) -> Iterator[Finding]:
    """Whether the webhook would take such a pod."""
    present = _containers(template) & _EVALUATORS
    if present and not steps and (template.get("metadata") or {}).get("uid"):
        # The pod runs: the webhook reviews it no more, whoever injected its evaluator.
        yield Finding(
            Fate.CHANGED, (*steps, "spec"),
            f"has the evaluator {', '.join(sorted(present))} already; a new pod of this owner gets ours",
        )  # fmt: skip
        return
    try:
        changes = inject(template, namespace, options, known)
    except Refused as refusal:
        yield Finding(Fate.REFUSED, (*steps, "spec"), str(refusal))
        return
    for warning in () if changes is None else changes.warnings:
        if not warning.startswith(featureflagsource.KIND):
            # What is said of these is found where they stand.
            yield Finding(Fate.CHANGED, (*steps, "spec"), warning)
    if not options.compat and well_known.OPERATORS_CONTAINER in present:
        yield Finding(
            Fate.CHANGED, (*steps, "spec"),
            f"has a container {well_known.OPERATORS_CONTAINER} of its own; our evaluator is put beside it",
        )  # fmt: skip


def lacks_evaluator(pod: Mapping[str, Any]) -> bool:
    """Return whether a running pod asks for an evaluator and has none."""
    return _annotations(pod).get(well_known.ENABLED) == "true" and not _containers(pod) & _EVALUATORS


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
