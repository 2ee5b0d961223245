"""What becomes of a FeatureFlagSource, field by field. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.api.openfeature.featureflagsource import IGNORED, FeatureFlagSourceSpec
from controller.migration.finding import Fate, Finding
from controller.pods.injection.operators_sidecar import KEPT
from controller.pods.settings.flag_file import PROVIDER, TOKEN_PROVIDERS
from controller.pods.settings.installation import SERVED, Refused
from controller.pods.settings.source_settings import CREDENTIALS, FIELDS, PROXIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.migration.finding import Path
    from controller.pods.settings.installation import Known

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


def featureflagsource(
    spec: Mapping[str, Any], namespace: str, known: Known, *, compat: bool
) -> Iterator[Finding]:
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
            yield Finding(Fate.CHANGED, path, _COLLECTOR)
        else:
            yield _field(name, value, path)


def _ease(finding: Finding, provider: str) -> Finding:
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


def _field(name: str, value: Any, path: Path) -> Finding:
    broken = _BROKEN.get(name, "") if value else ""
    if name not in _KNOWN:
        return Finding(Fate.IGNORED, path, "no such field; OpenFeature Operator drops it, too")
    if name == "defaultSyncProvider" and value == "flagd-proxy":
        broken = "the proxy is not deployed for it, and pods are refused for ever"
        return Finding(Fate.KEPT, path, _THROUGH_PROXY, broken)
    if name == "evaluator":
        return Finding(Fate.IGNORED, path, "there is one, for JSON and YAML")
    if name == "socketPath" and value:
        return Finding(Fate.CHANGED, path, "the folder is shared, and the evaluator listens there", broken)
    if (why := IGNORED.get(_KNOWN[name])) and value:
        return Finding(Fate.IGNORED, path, why, broken)
    return Finding(Fate.KEPT, path)


def _source(
    source_spec: Mapping[str, Any], provider: str, namespace: str, known: Known, path: Path
) -> Iterator[Finding]:
    for name, value in source_spec.items():
        here = (*path, name)
        if name == "provider":
            continue
        if name == "source":
            place, _, own = str(value).removeprefix("core.openfeature.dev/").rpartition("/")
            if provider == PROVIDER and place not in {"", namespace}:
                yield Finding(
                    Fate.REFUSED, here,
                    "a pod mounts ConfigMaps of its own namespace alone; write the provider kubernetes",
                    "the ConfigMap is made in the other namespace, and the pod never starts",
                )  # fmt: skip
            elif provider in PROXIED and place not in {"", namespace}:
                yield elsewhere(place, own, namespace, known, here, _LEAK)
            else:
                yield Finding(Fate.KEPT, here)
        elif name in {"secretRef", "httpSyncBearerToken"}:
            yield _token(name, source_spec, provider, here)
        elif provider in FIELDS and name in FIELDS[provider]:
            lost = "no volume brings this file into the container" if name == "certPath" else ""
            yield Finding(Fate.KEPT, here, "mount the file by an image of your own" if lost else "", lost)
        else:
            yield Finding(Fate.IGNORED, here, f"provider {provider} has no use for it")
    yield _provider(provider, (*path, "provider") if "provider" in source_spec else path)


def _token(name: str, source_spec: Mapping[str, Any], provider: str, here: Path) -> Finding:
    if name == "secretRef":
        if provider in TOKEN_PROVIDERS:
            return Finding(Fate.KEPT, here)
        return Finding(Fate.REFUSED, here, f"provider {provider[:63]} sends no token; remove it")
    if source_spec.get("secretRef"):
        return Finding(Fate.IGNORED, here, "secretRef has the token; remove this one")
    if provider not in TOKEN_PROVIDERS:
        return Finding(Fate.IGNORED, here, f"provider {provider[:63]} sends no token; remove it")
    broken = (
        "becomes bearerToken, which flagd ignores since 0.13: the source is asked without a token"
        if provider == "http"
        else "is not passed on: the source is asked without a token"
    )
    return Finding(
        Fate.REFUSED, here,
        "would stand in the pod's arguments; keep it in a Secret, and name that in secretRef "
        "(with --compat openfeature-operator it is passed on by http, with a warning)",
        broken,
    )  # fmt: skip


def elsewhere(place: str, name: str, namespace: str, known: Known, path: Path, broken: str = "") -> Finding:
    """The finding on a flag set of another namespace."""
    try:
        known.refer(namespace, SERVED, place, name)
    except Refused as refusal:
        return Finding(Fate.REFUSED, path, str(refusal), broken)
    return Finding(Fate.KEPT, path, "a FlagGrant lets it", broken)


def _provider(provider: str, path: Path) -> Finding:
    if provider == PROVIDER:
        return Finding(
            Fate.CHANGED, path,
            "needs flagstaff controller --flag-files, which keeps the ConfigMap up to date",
            "the ConfigMap is written once, when the first pod is created, and never follows the flags",
        )  # fmt: skip
    if provider in PROXIED:
        return Finding(Fate.KEPT if provider == "flagd-proxy" else Fate.CHANGED, path, _THROUGH_PROXY)
    if provider in FIELDS:
        blob = "" if provider in {"http", "grpc"} else "needs an evaluator's image with obstore added"
        return Finding(Fate.CHANGED if blob else Fate.KEPT, path, blob)
    known = ", ".join((*sorted(PROXIED), PROVIDER, *FIELDS))
    return Finding(Fate.REFUSED, path, f"provider {provider[:63]!r} is unknown; use one of {known}")


def _variables(given: list[Any], path: Path) -> Iterator[Finding]:
    for number, variable in enumerate(given):
        name = str(variable.get("name")) if isinstance(variable, dict) else ""
        if name.startswith(CREDENTIALS):
            yield Finding(
                Fate.CHANGED, (*path, number), f"{name} is the evaluator's alone",
                f"{name}, a credential, is given to every container of the application",
            )  # fmt: skip
        else:
            yield Finding(Fate.KEPT, (*path, number))
