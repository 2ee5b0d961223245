"""What becomes of a FeatureFlagSource, field by field, and a trial of it with a pod. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagsource, inprocessconfiguration
from controller.api.featureflagsource import IGNORED, FeatureFlagSourceSpec
from controller.migration.finding import Fate, FieldFinding, Path
from controller.pods import installation
from controller.pods.evaluator_container import KEPT
from controller.pods.flag_file import PROVIDER, TOKEN_PROVIDERS
from controller.pods.installation import FLAG_SETS, SERVED, FlagSetFound, Known, Options, PodRefused
from controller.pods.pod_injection import inject
from controller.pods.source_settings import CREDENTIALS, FIELDS, PROXIED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_KNOWN: Final = {field.alias: name for name, field in FeatureFlagSourceSpec.model_fields.items()}
_THROUGH_PROXY: Final = (
    "flags come through our proxy; the pod's account needs no right to read them unless the proxy runs with "
    "--auth enforce"
)
_COLLECTOR: Final = (
    "is passed on: flagd, or an image of ours with the extra otel, sends there; ours without it warns, and "
    "serves flags all the same"
)
_LEAK: Final = "any namespace may read the flags and tokens of any other"
_BROKEN: Final = {
    "syncProviderArgs": "becomes --sync-provider-args, which ends flagd since 0.8",
    "socketPath": "no folder is shared and the root file system is read-only, so there is no socket",
    "rolloutOnChange": "restarts Deployments whenever the operator restarts, and not when flags change",
}


def judge_flag_source(
    spec: Mapping[str, Any], namespace: str, known: Known, *, compat: bool
) -> Iterator[FieldFinding]:
    """Every field of `spec`; `compat`: under the option of this name."""
    default = spec.get("defaultSyncProvider") or "kubernetes"
    for name, value in spec.items():
        path: Path = ("spec", name)
        if name == "sources" and isinstance(value, list):
            for number, source in enumerate(value):
                if isinstance(source, dict):
                    provider = str(source.get("provider") or default)
                    for finding in _source(source, provider, namespace, known, (*path, number)):
                        yield _ease(finding, provider) if compat else finding
        elif name == "envVars" and isinstance(value, list):
            yield from _variables(value, path)
        elif compat and _KNOWN.get(name) in KEPT:
            yield FieldFinding(Fate.CHANGED, path, _COLLECTOR)
        else:
            yield _field(name, value, path)


def _ease(finding: FieldFinding, provider: str) -> FieldFinding:
    """Return it as it behaves under --compat."""
    if finding.path[-1] == "secretRef":
        return replace(finding, fate=Fate.REFUSED, message="the evaluator reads no token from a file")
    if finding.path[-1] != "httpSyncBearerToken" or finding.fate is not Fate.REFUSED:
        return finding
    if provider != "http":
        return replace(finding, fate=Fate.IGNORED, message="the evaluator sends none by gRPC; remove it")
    return replace(
        finding, fate=Fate.CHANGED, message="becomes authHeader, in the pod's arguments, with a warning"
    )


def _field(name: str, value: Any, path: Path) -> FieldFinding:
    broken = _BROKEN.get(name, "") if value else ""
    if name not in _KNOWN:
        return FieldFinding(Fate.IGNORED, path, "no such field; OpenFeature Operator drops it, too")
    if name == "defaultSyncProvider" and value == "flagd-proxy":
        broken = "the proxy is not deployed for it, and pods are refused for ever"
        return FieldFinding(Fate.KEPT, path, _THROUGH_PROXY, broken)
    if name == "evaluator":
        return FieldFinding(Fate.IGNORED, path, "there is one, for JSON and YAML")
    if name == "socketPath" and value:
        return FieldFinding(
            Fate.CHANGED, path, "the folder is shared, and the evaluator listens there", broken
        )
    if (why := IGNORED.get(_KNOWN[name])) and value:
        return FieldFinding(Fate.IGNORED, path, why, broken)
    return FieldFinding(Fate.KEPT, path)


def _source(
    source_spec: Mapping[str, Any], provider: str, namespace: str, known: Known, path: Path
) -> Iterator[FieldFinding]:
    for name, value in source_spec.items():
        here = (*path, name)
        if name == "provider":
            continue
        if name == "source":
            place, _, own = str(value).removeprefix("core.openfeature.dev/").rpartition("/")
            if provider == PROVIDER and place not in {"", namespace}:
                yield FieldFinding(
                    Fate.REFUSED, here,
                    "a pod mounts ConfigMaps of its own namespace alone; write the provider kubernetes",
                    "the ConfigMap is made in the other namespace, and the pod never starts",
                )  # fmt: skip
            elif provider in PROXIED and place not in {"", namespace}:
                yield elsewhere(place, own, namespace, known, here, _LEAK)
            else:
                yield FieldFinding(Fate.KEPT, here)
        elif name in {"secretRef", "httpSyncBearerToken"}:
            yield _token(name, source_spec, provider, here)
        elif provider in FIELDS and name in FIELDS[provider]:
            lost = "no volume brings this file into the container" if name == "certPath" else ""
            yield FieldFinding(
                Fate.KEPT, here, "mount the file by an image of your own" if lost else "", lost
            )
        else:
            yield FieldFinding(Fate.IGNORED, here, f"provider {provider} has no use for it")
    yield _provider(provider, (*path, "provider") if "provider" in source_spec else path)


def _token(name: str, source_spec: Mapping[str, Any], provider: str, here: Path) -> FieldFinding:
    if name == "secretRef":
        if provider in TOKEN_PROVIDERS:
            return FieldFinding(Fate.KEPT, here)
        return FieldFinding(Fate.REFUSED, here, f"provider {provider[:63]} sends no token; remove it")
    if source_spec.get("secretRef"):
        return FieldFinding(Fate.IGNORED, here, "secretRef has the token; remove this one")
    if provider not in TOKEN_PROVIDERS:
        return FieldFinding(Fate.IGNORED, here, f"provider {provider[:63]} sends no token; remove it")
    broken = (
        "becomes bearerToken, which flagd ignores since 0.13: the source is asked without a token"
        if provider == "http"
        else "is not passed on: the source is asked without a token"
    )
    return FieldFinding(
        Fate.REFUSED, here,
        "would stand in the pod's arguments; keep it in a Secret, and name that in secretRef "
        "(with --compat openfeature-operator it is passed on by http, with a warning)",
        broken,
    )  # fmt: skip


def elsewhere(
    place: str, name: str, namespace: str, known: Known, path: Path, broken: str = ""
) -> FieldFinding:
    """The finding on a flag set of another namespace."""
    try:
        known.refer(namespace, SERVED, place, name)
    except PodRefused as refusal:
        return FieldFinding(Fate.REFUSED, path, str(refusal), broken)
    return FieldFinding(Fate.KEPT, path, "a FlagGrant lets it", broken)


def _provider(provider: str, path: Path) -> FieldFinding:
    if provider == PROVIDER:
        return FieldFinding(
            Fate.CHANGED, path,
            "needs flagstaff controller --flag-files, which keeps the ConfigMap up to date",
            "the ConfigMap is written once, when the first pod is created, and never follows the flags",
        )  # fmt: skip
    if provider in PROXIED:
        return FieldFinding(Fate.KEPT if provider == "flagd-proxy" else Fate.CHANGED, path, _THROUGH_PROXY)
    if provider in FIELDS:
        blob = "" if provider in {"http", "grpc"} else "needs an evaluator's image with obstore added"
        return FieldFinding(Fate.CHANGED if blob else Fate.KEPT, path, blob)
    known = ", ".join((*sorted(PROXIED), PROVIDER, *FIELDS))
    return FieldFinding(Fate.REFUSED, path, f"provider {provider[:63]!r} is unknown; use one of {known}")


def _variables(given: list[Any], path: Path) -> Iterator[FieldFinding]:
    for number, variable in enumerate(given):
        name = str(variable.get("name")) if isinstance(variable, dict) else ""
        if name.startswith(CREDENTIALS):
            yield FieldFinding(
                Fate.CHANGED, (*path, number), f"{name} is the evaluator's alone",
                f"{name}, a credential, is given to every container of the application",
            )  # fmt: skip
        else:
            yield FieldFinding(Fate.KEPT, (*path, number))


_ANNOTATIONS: Final = {
    featureflagsource.KIND: installation.SOURCES,
    inprocessconfiguration.KIND: installation.IN_PROCESS,
}
_NEEDED: Final[Mapping[str, dict[str, Any]]] = {
    featureflagsource.KIND: {"sources": [{"source": "flags"}]},
    inprocessconfiguration.KIND: {"selector": "flags"},
}
"""The least that is injected, by kind."""
_NUMBERED: Final = re.compile(r"sources[\[.](\d+)")
"""The source that a refusal is about."""


@dataclass(frozen=True, slots=True)
class _Only:
    """Implements injection's `Known`: every object has this spec."""

    given: Mapping[str, Any]

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        # Each field's own finding reports references to other namespaces.
        del reader, namespace, name
        return tuple(kinds), ""

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        del namespace, kinds
        return FlagSetFound(name)

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        del kind, namespace, name
        return self.given


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of a FeatureFlagSource or an InProcessConfiguration."""

    kind: str
    namespace: str
    name: str
    options: Options

    def judge(
        self, findings_of_fields: Iterable[FieldFinding], spec: Mapping[str, Any]
    ) -> list[FieldFinding]:
        """The findings of each field of `spec`, made to agree with what is refused and warned of."""
        findings = [self._with_warning(finding, spec) for finding in findings_of_fields]
        for path, text in self._refusals(spec):
            refused = [finding for finding in findings if finding.fate is Fate.REFUSED and len(path) > 1]
            if any(finding.path[: len(path)] == path for finding in refused):
                continue
            broken = next((finding.broken for finding in findings if finding.path == path), "")
            findings = [finding for finding in findings if finding.path != path]
            findings.append(FieldFinding(Fate.REFUSED, path, text, broken))
        return findings

    def _with_warning(self, finding: FieldFinding, spec: Mapping[str, Any]) -> FieldFinding:
        field, needed = finding.path[-1], _NEEDED[self.kind]
        if finding.fate is not Fate.KEPT or len(finding.path) != 2 or field in needed:
            return finding
        warnings = self._try_pod({**needed, str(field): spec[str(field)]})[1]
        return replace(finding, fate=Fate.IGNORED, message="; ".join(warnings)) if warnings else finding

    def _refusals(self, spec: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """(field, why) of each refusal: without the field there is another refusal, or none."""
        needed, rest = _NEEDED[self.kind], dict(spec)
        while refusal := self._try_pod(rest)[0]:
            for field in sorted(rest, key=lambda name: name in needed):
                path, without = self._without(rest, field, refusal)
                if self._try_pod(without)[0] != refusal:
                    break
            else:
                yield ("spec",), refusal
                return
            alone = self._try_pod({**needed, field: rest[field]})[0]
            yield path, alone or refusal
            rest = without

    def _without(self, spec: Mapping[str, Any], field: str, refusal: str) -> tuple[Path, dict[str, Any]]:
        """(the path of what is left out, the rest of `spec`); what is needed is replaced."""
        value, needed = spec[field], _NEEDED[self.kind]
        if field not in needed:
            return ("spec", field), {name: other for name, other in spec.items() if name != field}
        numbered = _NUMBERED.search(refusal) if isinstance(value, list) else None
        if numbered is None:
            return ("spec", field), {**spec, field: needed[field]}
        number = int(numbered[1])
        return ("spec", field, number), {
            **spec,
            field: [*value[:number], *needed[field], *value[number + 1 :]],
        }

    def _try_pod(self, spec: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """(why a pod that names the object is refused, empty where it is not; warnings)."""
        annotations = {installation.ENABLED: "true", _ANNOTATIONS[self.kind]: self.name}
        pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app"}]}}
        try:
            changes = inject(pod, self.namespace, self.options, _Only(spec))
        except PodRefused as refusal:
            return str(refusal), ()
        return "", () if changes is None else tuple(changes.warnings)
