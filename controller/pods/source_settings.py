"""FeatureFlagSources of a pod, merged: what a later one says wins, field by field. Pure.

An object of another namespace says little. A FlagGrant lets a pod use the object; it does not let the
object's author read or change the pod. So the object names no Secret and no ConfigMap of the pod's namespace,
and the application gets only variables of it that begin with FLAGD_ and do not say where evaluation contexts
are sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from controller.api import featureflagsource
from controller.api.featureflagsource import IGNORED, FeatureFlagSourceSpec, SourceSpec
from controller.api.inprocessconfiguration import InProcessConfigurationSpec
from controller.pods import flag_file as files
from controller.pods.installation import NAME, SERVED, PodRefused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from controller.pods.annotation_values import PodReferences


S = TypeVar("S", FeatureFlagSourceSpec, InProcessConfigurationSpec)

PREFIX: Final = "FLAGD"
_NAME: Final = re.compile(r"FLAGD_[A-Z0-9_]{1,120}", re.ASCII)
_ADDRESSES: Final = frozenset(
    f"{PREFIX}_{name}"
    for name in (
        "CERT_PATH", "DEFAULT_AUTHORITY", "HOST", "MANAGEMENT_PORT", "OFFLINE_FLAG_SOURCE_PATH", "OFREP_PORT",
        "PORT", "RESOLVER", "SERVER_CERT_PATH", "SOCKET_PATH", "SYNC_PORT", "TARGET_URI", "TLS", "URI",
    )
)  # fmt: skip
"""What providers of OpenFeature read to find their evaluator, which learns what applications say of users."""
_SOCKETS: Final = ("/var/run/", "/run/", "/tmp/")  # noqa: S108 - of the application's container


class ForeignVariable(dict[str, Any]):
    """A variable with its final name: the application's containers get it, the evaluator's does not."""


def restrict(spec: S, shown: str, namespace: str) -> S:
    """The spec as pods of `namespace` may use it; `shown` is the object's kind and name. Raises Refused."""
    for problem in _problems(spec, namespace):
        raise PodRefused(
            f"{shown}: {problem}, which an object of another namespace may not; write one in {namespace}"
        )
    variables = tuple(
        ForeignVariable(name=_final_name(spec, variable), value=_literal(variable))
        for variable in spec.env_vars
    )
    return spec.model_copy(update={"env_vars": variables}) if variables else spec


def _problems(spec: S, namespace: str) -> Iterator[str]:
    prefix = spec.env_var_prefix
    if prefix and not f"{prefix.strip()}_".startswith(f"{PREFIX}_"):
        yield f"envVarPrefix: {prefix[:63]!r} is another than {PREFIX}"
    for number, variable in enumerate(spec.env_vars):
        where, name = f"envVars[{number}]", _final_name(spec, variable)
        if more := sorted(variable.keys() - {"name", "value"}):
            yield f"envVars[{number}].{more[0][:63]} reads what the pod or {namespace} holds"
        if not _NAME.fullmatch(name):
            yield f"{where}: sets {name[:63]!r}, and no {PREFIX}_NAME of capital letters, digits and _"
        if name in _ADDRESSES:
            yield f"{where}: {name} says where the application sends its evaluation contexts"
    path = spec.socket_path or ""
    if path and (not path.startswith(_SOCKETS) or "/../" in path):
        yield f"socketPath: {path[:100]!r} is outside of {', '.join(_SOCKETS)}"
    if isinstance(spec, FeatureFlagSourceSpec):
        for number, source in enumerate(spec.sources):
            if source.secret_ref:
                yield f"sources[{number}].secretRef names a Secret of {namespace}"


def _final_name(spec: S, variable: Mapping[str, Any]) -> str:
    prefix = (spec.env_var_prefix or PREFIX).strip()
    return f"{prefix}_{variable.get('name')}"


def _literal(variable: Mapping[str, Any]) -> str:
    """The value, in which the kubelet expands no `$(NAME)` of the pod's own variables."""
    value = variable.get("value")
    return "" if value is None else str(value).replace("$", "$$")


NOTHING: Final = FeatureFlagSourceSpec.model_construct(sources=())
KUBERNETES: Final = "kubernetes"
PROXIED: Final = frozenset({KUBERNETES, "flagd-proxy"})
FIELDS: Final = {
    "http": ("interval",),
    "grpc": ("certPath", "tls", "providerID", "selector"),
    "gcs": ("interval",),
    "azblob": ("interval",),
    "s3": ("interval",),
}
"""The fields of a source that each provider reads."""
CREDENTIALS: Final = ("AZURE_STORAGE", "AWS_", "GOOGLE_")
"""Variables that the clients of object stores read: they get no prefix, and are the evaluator's alone."""
_LOADERS: Final = re.compile(
    r"(LD|DYLD|GCONV|GLIBC|CORECLR|COR|COMPlus)_|DOTNET_(STARTUP_HOOKS|ADDITIONAL_DEPS|SHARED_STORE)"
    r"|(_|JDK_)?JAVA_(TOOL_OPTIONS|OPTIONS|OPTS|HOME)|CLASSPATH|NODE_(OPTIONS|PATH)|RUBY(OPT|LIB)|PERL5|PERLLIB"
    r"|PYTHON(PATH|HOME|STARTUP|INSPECT|USERBASE|BREAKPOINT|EXECUTABLE|PLATLIBDIR|WARNINGS)|PHP_INI|PHPRC|LUA_"
    r"|GIT_|(BASH_ENV|ENV|PATH|IFS)\Z"
)
"""Names of variables by which loaders, shells and runtimes load code."""


def merge(specs: Iterable[FeatureFlagSourceSpec]) -> FeatureFlagSourceSpec:
    """Merge the settings. Sources are joined; variables, context and resources are merged name by name."""
    merged: dict[str, Any] = {}
    for spec in specs:
        for name in spec.model_fields_set:
            value, before = getattr(spec, name), merged.get(name)
            if not value and value is not False:
                continue
            merged[name] = _join(name, before, value) if before else value
    return FeatureFlagSourceSpec.model_construct(**merged)


def _join(name: str, before: Any, value: Any) -> Any:
    if name == "sources":
        return (*before, *value)
    if name == "env_vars":
        return tuple({entry.get("name"): entry for entry in (*before, *value)}.values())
    if name == "resources":
        parts = {**before, **value}
        return {part: {**before.get(part, {}), **value.get(part, {})} for part in parts}
    return {**before, **value} if isinstance(value, dict) else value


def operators_variables(
    specs: Iterable[FeatureFlagSourceSpec | InProcessConfigurationSpec],
) -> tuple[dict[str, Any], ...]:
    """Return the variables in OpenFeature Operator's order: each merge reverses the list."""
    variables: tuple[dict[str, Any], ...] = ()
    for spec in specs:
        if spec.env_vars:
            kept: dict[Any, dict[str, Any]] = {}
            for variable in reversed((*variables, *spec.env_vars)):
                kept.setdefault(variable.get("name"), variable)
            variables = tuple(kept.values())
    return variables


class Followed(NamedTuple):
    """The merged sources of one pod."""

    sources: tuple[Mapping[str, Any], ...]
    """Entries of `--sources`; those of the proxy have a selector alone."""
    files: tuple[files.FlagFile, ...]
    """The entries that are files, each once."""
    cluster_flags: frozenset[str]
    """Selectors among them of flag sets of the pod's namespace that stock flagd could read itself."""


def follow_sources(spec: FeatureFlagSourceSpec, referring: PodReferences, *, compat: bool) -> Followed:
    """What the evaluator is to follow. With `compat`, tokens may stand in arguments. Raises Refused."""
    namespace = referring.namespace
    entries: list[Mapping[str, Any]] = []
    in_files: dict[files.FlagFile, None] = {}
    cluster_flags: set[str] = set()
    for number, source in enumerate(spec.sources):
        provider = provider_of(source, spec)
        where = f"FeatureFlagSource: sources[{number}]"
        files.check_token(source, provider, where, compat=compat)
        check_source(source, provider, where)
        if provider == files.PROVIDER:
            file = _file(source, namespace, where)
            in_files[file] = None
            entries.append(file.source)
        elif provider in PROXIED:
            place, name = flag_set_place(source.source, where)
            referring.permit(SERVED, place, name, where)
            entries.append({"selector": f"{place or namespace}/{name}"})
            if provider == KUBERNETES and place in {"", namespace}:
                cluster_flags.add(f"{namespace}/{name}")
        else:
            entries.append(_pass_settings(source, provider, number, where, compat=compat))
    return Followed(tuple(entries), tuple(in_files), frozenset(cluster_flags))


def provider_of(source: SourceSpec, spec: FeatureFlagSourceSpec) -> str:
    """The one that it names, or that the FeatureFlagSource gives to those that name none."""
    return source.provider or spec.default_sync_provider or KUBERNETES


def check_source(source: SourceSpec, provider: str, where: str) -> None:
    """Raise Refused where no pod could follow the source."""
    if provider in PROXIED or provider == files.PROVIDER:
        flag_set_place(source.source, where)
    elif provider not in FIELDS:
        known = ", ".join((*sorted(PROXIED), files.PROVIDER, *FIELDS))
        raise PodRefused(f"{where}: provider {provider[:63]!r} is not supported; use one of {known}")


def flag_set_place(given: str, where: str) -> tuple[str, str]:
    """The namespace, or nothing, and the name of a flag set."""
    place, slash, name = given.removeprefix("core.openfeature.dev/").rpartition("/")
    if not NAME.fullmatch(name) or (slash and not NAME.fullmatch(place)):
        raise PodRefused(f"{where}: {given[:253]!r} is no object's name; write the name of a flag set")
    return place, name


def _file(source: SourceSpec, namespace: str, where: str) -> files.FlagFile:
    place, name = flag_set_place(source.source, where)
    if place not in {"", namespace}:
        raise PodRefused(
            f"{where}: a pod mounts ConfigMaps of its own namespace alone; for flags of {place} write the "
            "provider kubernetes"
        )
    file = files.FlagFile(namespace, name)
    if len(file.key) > files.MOST_KEY:
        raise PodRefused(
            f"{where}: {file.key!r} is too long for a key of a ConfigMap; shorten the flag set's name"
        )
    return file


def _pass_settings(
    source: SourceSpec, provider: str, number: int, where: str, *, compat: bool
) -> dict[str, Any]:
    token = source.http_sync_bearer_token
    header = {"bearerTokenFile": files.token_file(number)} if source.secret_ref else {}
    if token and not header and provider in files.TOKEN_PROVIDERS:
        if not compat:
            raise PodRefused(
                f"{where}: httpSyncBearerToken would stand in the pod's arguments; keep it in a Secret, as "
                f"the key {files.TOKEN_KEY}, and name that in secretRef"
            )
        # flagd dropped bearerToken, which OpenFeature Operator still writes.
        header = {"authHeader": f"Bearer {token}"} if provider == "http" else {}
    given = source.model_dump(by_alias=True, exclude_none=True)
    return {"uri": source.source, "provider": provider, **header} | {
        name: given[name] for name in FIELDS[provider] if given.get(name)
    }


def add_prefix(spec: FeatureFlagSourceSpec, name: str) -> str:
    """A variable's name as applications read it."""
    prefix = (PREFIX if spec.env_var_prefix is None else spec.env_var_prefix).strip()
    return f"{prefix}_{name}" if prefix else name


def variable_name(variable: Mapping[str, Any], kind: str) -> str:
    """The name of one of the envVars of an object of this kind. Raises Refused."""
    name = variable.get("name")
    if not isinstance(name, str) or not name:
        raise PodRefused(f"{kind}: envVars: each must have a name; add it")
    return name


def check_harmless(name: str, kind: str) -> None:
    """Raise Refused for the name of a variable by which programs load code."""
    if _LOADERS.match(name):
        raise PodRefused(
            f"{kind}: envVars with envVarPrefix: {name[:63]} has programs load code; rename it, or set it "
            "in the pod's own containers"
        )


def variables(spec: FeatureFlagSourceSpec) -> Iterator[tuple[dict[str, Any], bool, bool]]:
    """(a variable as containers have it, whether the evaluator gets it, whether applications do). Raises
    Refused.
    """
    own = set()
    for variable in spec.env_vars:
        if not isinstance(variable, ForeignVariable):
            name = variable_name(variable, featureflagsource.KIND)
            secret = name.startswith(CREDENTIALS)
            final = name if secret else add_prefix(spec, name)
            check_harmless(final, featureflagsource.KIND)
            own.add(final)
            yield {**variable, "name": final}, True, not secret
    for variable in spec.env_vars:
        if isinstance(variable, ForeignVariable) and variable["name"] not in own:
            yield dict(variable), False, True


def arguments(spec: FeatureFlagSourceSpec) -> list[str]:
    """What is passed on to the evaluator, in a fixed order."""
    return [
        *_pairs("--context-value", spec.context_values),
        *_pairs("--context-from-header", spec.header_to_context_mappings),
        *(escape(f"--cors-origin={origin}") for origin in spec.cors),
    ]


def _pairs(option: str, given: Mapping[str, str] | None) -> Iterator[str]:
    return (escape(f"{option}={key}={text}") for key, text in sorted((given or {}).items()))


def escape(argument: str) -> str:
    """An argument in which the kubelet expands no `$(NAME)`: it makes one dollar sign of two."""
    return argument.replace("$", "$$")


def warnings(spec: FeatureFlagSourceSpec, kept: Collection[str] = ()) -> tuple[str, ...]:
    """Return warnings of settings that are ignored; the fields `kept` are not."""
    fields = (
        f"FeatureFlagSource: {FeatureFlagSourceSpec.model_fields[name].alias} is ignored: {why}"
        for name, why in IGNORED.items()
        if getattr(spec, name) and name not in kept
    )
    unused = (
        f"FeatureFlagSource: sources[{number}]: httpSyncBearerToken is ignored: {why}; "
        "everyone who may read FeatureFlagSources reads this one, so remove it"
        for number, entry in enumerate(spec.sources)
        if (why := entry.http_sync_bearer_token and _why_unused(entry, provider_of(entry, spec)))
    )
    return (*fields, *unused)


def _why_unused(source: SourceSpec, provider: str) -> str:
    """Return why its plain-text token has no effect; empty where it has one."""
    if source.secret_ref:
        return "secretRef has the token"
    return "" if provider in files.TOKEN_PROVIDERS else f"provider {provider[:63]} sends no token"
