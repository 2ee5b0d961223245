"""Variables of applications that evaluate by themselves, as OpenFeature Operator gives them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.openfeature import inprocessconfiguration
from controller.api.openfeature.inprocessconfiguration import DEFAULTS
from controller.pods.injection.addition import Addition, record_of
from controller.pods.injection.evaluator_container import authority, proxy_marks
from controller.pods.settings import source_settings as source
from controller.pods.settings import well_known
from controller.pods.settings.foreign_settings import ForeignVariable
from controller.pods.settings.installation import SERVED, Refused
from controller.pods.settings.pod_settings import read_in_process
from controller.pods.settings.remarks import EXTERNAL, REFRESHABLE, flags_of, remark_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.openfeature.inprocessconfiguration import InProcessConfigurationSpec
    from controller.pods.settings.annotation_values import PodReferences
    from controller.pods.settings.installation import Known, Options

_VARIABLES: Final = {
    "HOST": "host",
    "PORT": "port",
    "TLS": "tls",
    "CACHE": "cache",
    "MAX_CACHE_SIZE": "cache_max_size",
    "RESOLVER": "resolver",
    "SOCKET_PATH": "socket_path",
    "OFFLINE_FLAG_SOURCE_PATH": "offline_flag_source_path",
    "SOURCE_SELECTOR": "selector",
    "SERVER_CERT_PATH": "server_cert_path",
}


def make_in_process(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known
) -> tuple[Addition, str]:
    """(what the InProcessConfigurations that the annotations name require; the flag set that the application
    asks our proxy for, as `NAMESPACE/NAME`, empty where it asks another server). Raises Refused.
    """
    asked, specs, chosen, referring = read_in_process(annotations, namespace, known, compat=options.compat)
    given = _merge(specs)
    elsewhere = {"host", "socket_path", "offline_flag_source_path"}
    asks = not options.compat and elsewhere.isdisjoint(given)
    proxied = _proxy_settings(given, options, referring) if asks else {}
    variables = _variables({**DEFAULTS, **given, **proxied, "resolver": "in-process"}, specs)
    mounts = authority(options) if asks else ()
    followed = {"from": ",".join(f"InProcessConfiguration/{name}" for name in asked)}
    selector = proxied.get("selector", "")
    remark = remark_of(_scope(given, selector, namespace), flags_of(followed), "evaluates in process")
    addition = Addition(
        record=record_of(followed, None, variables, mounts[0].folder if mounts else "", chosen),
        variables=variables,
        mounts=mounts,
        volumes=mounts,
        chosen=chosen,
        early=not options.compat,
        marks=(*(proxy_marks(options) if proxied else ()),),
        remark=remark,
        warnings=tuple(referring.warnings),
    )
    return addition, selector


def _scope(given: Mapping[str, Any], selector: str, namespace: str) -> tuple[str, ...]:
    """The words of remarks; `selector`: of our proxy's flag set, empty for another server or a file."""
    if "offline_flag_source_path" in given:
        return (EXTERNAL,)
    if not selector:
        return (EXTERNAL, REFRESHABLE)
    return scope_of([{"selector": selector}], namespace)


def _merge(specs: Sequence[InProcessConfigurationSpec]) -> dict[str, Any]:
    """Merge the settings: a later one wins; values that it lacks, or has by default, stay."""
    merged: dict[str, Any] = {}
    for spec in specs:
        for name in spec.model_fields_set - {"env_vars"}:
            value = getattr(spec, name)
            if value not in (None, "") and value != DEFAULTS.get(name):
                merged[name] = value
    return merged


def _variables(
    settings: Mapping[str, Any], specs: Sequence[InProcessConfigurationSpec]
) -> list[dict[str, Any]]:
    variables = []
    for name, field in _VARIABLES.items():
        value = settings.get(field)
        if value not in (None, ""):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            variables.append({"name": _add_prefix(settings, name), "value": text})
    theirs = [_variable(variable, settings) for variable in source.operators_variables(specs)]
    own = {variable["name"] for variable in theirs}
    return [*theirs, *(variable for variable in variables if variable["name"] not in own)]


def _variable(variable: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """One of the envVars as containers have it. Raises Refused."""
    if isinstance(variable, ForeignVariable):
        return dict(variable)
    name = _add_prefix(settings, source.variable_name(variable, inprocessconfiguration.KIND))
    source.check_harmless(name, inprocessconfiguration.KIND)
    return {**variable, "name": name}


def _proxy_settings(given: Mapping[str, Any], options: Options, referring: PodReferences) -> dict[str, Any]:
    """Return the settings with which an in-process provider asks our proxy."""
    selector = str(given.get("selector") or "")
    if not selector:
        raise Refused(
            "InProcessConfiguration: selector is missing; write the name of a flag set, or the host of "
            "a server of your own"
        )
    where = "InProcessConfiguration: selector"
    place, name = source.flag_set_place(selector, where)
    referring.permit(SERVED, place, name, where)
    host, _, port = options.proxy_address.rpartition(":")
    secured = {"tls": True, "server_cert_path": f"{well_known.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    selector = f"{place or referring.namespace}/{name}"
    return {"host": host, "port": port, "tls": False, "selector": selector, **secured}


def _add_prefix(settings: Mapping[str, Any], name: str) -> str:
    prefix = str(settings["env_var_prefix"]).strip()
    return f"{prefix}_{name}" if prefix else name
