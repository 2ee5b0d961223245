"""What becomes of each object of OpenFeature Operator's kinds, and of workloads that ask for flags. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api import flaggrant
from controller.api.objects.fields import InvalidSpecError, read
from controller.api.objects.meta import Resource
from controller.api.openfeature import (
    featureflagconfiguration,
    featureflagsource,
    flagd,
    inprocessconfiguration,
)
from controller.api.openfeature.flagd import FlagdSpec
from controller.api.openfeature.inprocessconfiguration import DEFAULTS, InProcessConfigurationSpec
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.migration import sources
from controller.migration.finding import Fate, Finding, leaves
from controller.migration.migrated_workloads import workload
from controller.migration.trial import Trial
from controller.pods.injection.templates import TEMPLATES
from controller.pods.settings.installation import FLAG_SETS, FlagSetFound, Refused
from evaluator.flags.layers.merge import parse
from evaluator.flags.syntax.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.pods.settings.installation import Known, Options

GROUP: Final = "core.openfeature.dev"


@dataclass(frozen=True, slots=True)
class MigratedObject:
    """An object, and what becomes of it."""

    kind: str
    namespace: str
    name: str
    findings: tuple[Finding, ...]


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
        findings = trial.judge(sources.featureflagsource(spec, where, known, compat=options.compat), spec)
    elif kind == inprocessconfiguration.KIND:
        findings = trial.judge(_in_process(spec, where, known, compat=options.compat), spec)
    elif kind == flagd.KIND:
        findings = [*_flagd(spec)]
    elif kind in {featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND}:
        findings = [*_flags(body, spec)]
    elif kind == "FlagSourceConfiguration":
        message = "is of OpenFeature Operator before 0.5; write a FeatureFlagSource"
        findings = [Finding(Fate.REFUSED, ("spec",), message, "no version since 0.5 reads it")]
    else:
        return None
    return MigratedObject(kind, where, name, tuple(findings))


def _flagd(spec: Mapping[str, Any]) -> Iterator[Finding]:
    known = {field.alias for field in FlagdSpec.model_fields.values()}
    for name in spec:
        yield Finding(Fate.KEPT if name in known else Fate.IGNORED, ("spec", name))
    try:
        read(FlagdSpec, spec)
    except InvalidSpecError as error:
        yield Finding(Fate.REFUSED, ("spec",), str(error))
        return
    yield Finding(
        Fate.CHANGED, ("spec",),
        "our evaluator takes the place of stock flagd, unless --evaluator-image names that",
        "a changed FeatureFlagSource does not reach it, what is deleted is not made anew, and what is "
        "switched off stays",
    )  # fmt: skip


def _in_process(spec: Mapping[str, Any], namespace: str, known: Known, *, compat: bool) -> Iterator[Finding]:
    fields = {field.alias for field in InProcessConfigurationSpec.model_fields.values()}
    served = spec.get("offlineFlagSourcePath") or spec.get("socketPath")
    proxied = spec.get("host") in {None, "", DEFAULTS["host"]} and not served
    for name, value in spec.items():
        place, _, own = str(value).removeprefix("core.openfeature.dev/").rpartition("/")
        if name == "selector" and proxied and not compat and place not in {"", namespace}:
            yield sources.elsewhere(place, own, namespace, known, ("spec", name))
        else:
            yield Finding(Fate.KEPT if name in fields else Fate.IGNORED, ("spec", name))
    if proxied:
        yield Finding(
            Fate.KEPT if compat else Fate.CHANGED, ("spec",),
            "write the host of a server" if compat else "our proxy is asked, for selector's flag set",
            "localhost is asked, where nothing listens unless the pod brings a server of its own",
        )  # fmt: skip


def _flags(body: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Flags are read by the parser that serves them."""
    for name, value in spec.items():
        if name in {"flagSpec", "featureFlagSpec"}:
            yield from _definitions(body, name)
        elif name in {"shards", "revision"}:
            yield Finding(Fate.KEPT, ("spec", name))
        else:
            for path in leaves(value, ("spec", name)):
                yield Finding(
                    Fate.IGNORED, path, "evaluators are configured by annotations and FeatureFlagSources",
                    "OpenFeature Operator has not read it since 0.5",
                )  # fmt: skip


def _definitions(body: Mapping[str, Any], field: str) -> Iterator[Finding]:
    path = ("spec", field)
    meta = {"name": "", **body["metadata"]}
    try:
        document = featureflagconfiguration.flag_document(Resource.of({**body, "metadata": meta}))
    except (InvalidSpecError, featureflagconfiguration.MissingShardsError) as error:
        yield Finding(Fate.REFUSED, path, str(error))
        return
    yield Finding(Fate.KEPT, path)
    for problem in parse(document.content, file="flags.json").problems:
        if problem.severity is Severity.ERROR:
            yield Finding(Fate.REFUSED, path, f"{problem.path}: {problem.message}")
        elif problem.severity is Severity.WARNING:
            yield Finding(
                Fate.CHANGED, path,
                f"{problem.path}: {problem.message}; a FlagSet with validation Strict holds it back",
            )  # fmt: skip


class Given:
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
            raise Refused(denial_message(who, namespace, name, kinds))
        return granted, ""

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        """Return the name itself, assumed to be that of the served object."""
        del kinds
        if self._whole and (namespace, name) not in self._flags:
            raise Refused(
                f"namespace {namespace} has no FlagSet, FeatureFlagConfiguration or FeatureFlag {name}"
            )
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the spec of one of the objects."""
        spec = self._specs.get((kind, namespace, name))
        if not isinstance(spec, dict):
            where = "is not there" if self._whole else "is not among the manifests; add its file with -f"
            raise Refused(f"{kind} {namespace}/{name}: {where}")
        return spec
