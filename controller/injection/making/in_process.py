"""Variables for providers that evaluate by themselves: by OpenFeature Operator's names and in its order, and
unless a server is named, for our proxy. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api import inprocess
from controller.api.inprocess import DEFAULTS
from controller.injection import names
from controller.injection.options import SERVED, Refused
from controller.injection.reading import source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.api.inprocess import InProcessConfigurationSpec
    from controller.injection.options import Options

_VARIABLES: Final = {
    "HOST": "host",
    "PORT": "port",
    "TLS": "tls",
    "CACHE": "cache",
    "MAX_CACHE_SIZE": "cache_max_size",
    "RESOLVER": "",
    "SOCKET_PATH": "socket_path",
    "OFFLINE_FLAG_SOURCE_PATH": "offline_flag_source_path",
    "SOURCE_SELECTOR": "selector",
    "SERVER_CERT_PATH": "server_cert_path",
}


def merged(specs: Sequence[InProcessConfigurationSpec]) -> dict[str, Any]:
    """All of them as one: a later one wins, and what it does not say, or says by a default, stays."""
    found: dict[str, Any] = {}
    for spec in specs:
        for name in spec.model_fields_set - {"env_vars"}:
            value = getattr(spec, name)
            if value not in (None, "") and value != DEFAULTS.get(name):
                found[name] = value
    return found


def variables(
    specs: Sequence[InProcessConfigurationSpec], namespace: str, options: Options, permitted: source.Permitted
) -> list[dict[str, Any]]:
    """What the application's containers get. `permitted` refuses a flag set of another namespace. Raises
    Refused.
    """
    given = merged(specs)
    asks = asks_the_proxy(specs, options)
    proxied = _proxied(given, namespace, options, permitted) if asks else {}
    settings = {**DEFAULTS, **given, **proxied}
    variables = []
    for name, field in _VARIABLES.items():
        value = settings.get(field) if field else "in-process"
        if value not in (None, ""):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            variables.append({"name": _prefixed(settings, name), "value": text})
    theirs = [
        {**each, "name": _prefixed(settings, source.name_of(each, inprocess.KIND))}
        for each in source.operators_variables(specs)
    ]
    own = {each["name"] for each in theirs}
    return [*theirs, *(each for each in variables if each["name"] not in own)]


def authority(specs: Sequence[InProcessConfigurationSpec], options: Options) -> str:
    """Where the containers have the authority of the proxy's certificate; empty where they do not need it."""
    return names.CA_PATH if options.proxy_ca and asks_the_proxy(specs, options) else ""


def asks_the_proxy(specs: Sequence[InProcessConfigurationSpec], options: Options) -> bool:
    """Whether the application is pointed at our proxy."""
    elsewhere = {"host", "socket_path", "offline_flag_source_path"}
    return not options.compat and elsewhere.isdisjoint(merged(specs))


def _proxied(
    given: Mapping[str, Any], namespace: str, options: Options, permitted: source.Permitted
) -> dict[str, Any]:
    selector = str(given.get("selector") or "")
    if not selector:
        raise Refused(
            "InProcessConfiguration: selector is missing; write the name of a flag set, or the host of "
            "a server of your own"
        )
    where = "InProcessConfiguration: selector"
    place, name = source.flag_set_place(selector, where)
    permitted(SERVED, place, name, where)
    host, _, port = options.proxy_address.rpartition(":")
    secured = {"tls": True, "server_cert_path": f"{names.CA_PATH}/ca.crt"} if options.proxy_ca else {}
    return {"host": host, "port": port, "tls": False, "selector": f"{place or namespace}/{name}", **secured}


def _prefixed(settings: Mapping[str, Any], name: str) -> str:
    prefix = str(settings["env_var_prefix"]).strip()
    return f"{prefix}_{name}" if prefix else name
