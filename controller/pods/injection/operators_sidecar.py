"""The evaluator's container as OpenFeature Operator 0.9 makes it, for `--compat` and stock flagd. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.pods.injection.sidecar import SECURITY
from controller.pods.settings import source_settings as source
from controller.pods.settings import well_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.pods.settings.pod_settings import PodSettings

KEPT: Final = frozenset({"otel_collector_uri"})
"""Fields of a FeatureFlagSource that mean something here alone."""
_TOKENS: Final = {
    "http": "stands in the pod's arguments, where everyone who may read pods reads it; bring these flags "
    "into the cluster by a FlagSource",
    "grpc": "is ignored: the evaluator sends none by gRPC; everyone who may read FeatureFlagSources reads "
    "this one, so remove it",
}
"""How a plain-text token is handled, by provider."""


def container(wanted: PodSettings) -> dict[str, Any]:
    """The sidecar."""
    management = wanted.ports[well_known.MANAGEMENT_PORT]
    probes = {
        name: {"httpGet": {"path": path, "port": management, "scheme": "HTTP"}, "initialDelaySeconds": 5}
        for name, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"))
    }
    return {
        "name": well_known.OPERATORS_CONTAINER,
        "image": wanted.image or wanted.options.image,
        "imagePullPolicy": "Always",
        **({"restartPolicy": "Always"} if wanted.native else {}),
        "args": _arguments(wanted),
        "ports": [
            {"name": "management", "containerPort": management},
            {"name": "flagd", "containerPort": wanted.ports[well_known.PORT]},
        ],
        "env": [
            # Ours lets every user of the pod connect, by a variable that stock flagd does not read.
            *([{"name": "FLAGSTAFF_SOCKET_MODE", "value": "0666"}] if wanted.socket_path else []),
            *(variable for variable, evaluators, _ in source.variables(wanted.settings) if evaluators),
            *_addresses(wanted),
        ],
        **({} if wanted.settings.probes_enabled is False else probes),
        "resources": {part: dict(amounts) for part, amounts in wanted.resources.items()},
        "securityContext": SECURITY,
    }


def variables(wanted: PodSettings) -> list[dict[str, Any]]:
    """What an application reads. The operator gives it the credentials of object stores, too; we do not."""
    given = (variable for variable, _, applications in source.variables(wanted.settings) if applications)
    return [*given, *_addresses(wanted)]


def _addresses(wanted: PodSettings) -> list[dict[str, Any]]:
    settings = wanted.settings
    values = {
        "MANAGEMENT_PORT": str(wanted.ports[well_known.MANAGEMENT_PORT]),
        "PORT": str(wanted.ports[well_known.PORT]),
        "EVALUATOR": source.escape(settings.evaluator or "json"),
        "LOG_FORMAT": wanted.log_format,
        "RESOLVER": "rpc",
        "SOCKET_PATH": wanted.socket_path,
    }
    return [
        {"name": source.add_prefix(settings, name), "value": text} for name, text in values.items() if text
    ]


def _arguments(wanted: PodSettings) -> list[str]:
    ports, settings = wanted.ports, wanted.settings
    sources = [_source(entry, wanted) for entry in wanted.follows]
    uri = settings.otel_collector_uri
    words = [
        "start",
        "--management-port", str(ports[well_known.MANAGEMENT_PORT]),
        "--port", str(ports[well_known.PORT]),
        "--sources", source.escape(json.dumps(sources, separators=(",", ":"))),
        *(["--debug"] if wanted.log_level == "debug" else []),
        *(["--metrics-exporter", "otel", "--otel-collector-uri", source.escape(uri)] if uri else []),
    ]  # fmt: skip
    for argument in source.arguments(settings):
        words += argument.split("=", 1)
    if wanted.socket_path and source.add_prefix(settings, "PORT") != "FLAGD_PORT":
        # The evaluator does not read the variable of this name; the operator forgets that.
        words += ["--socket-path", wanted.socket_path]
    return [*words, "--ofrep-port", str(ports[well_known.OFREP_PORT])]


def asks_for_kubernetes(wanted: PodSettings) -> bool:
    """Whether the operator would let the pod's account read the API server."""
    settings = wanted.settings
    return any(source.provider_of(entry, settings) == source.KUBERNETES for entry in settings.sources)


def _source(given: Mapping[str, Any], wanted: PodSettings) -> dict[str, Any]:
    if "provider" in given:
        return dict(given)
    selector = given["selector"]
    if selector in wanted.direct:
        return {"uri": selector, "provider": source.KUBERNETES}
    address = wanted.options.proxy_address
    return {"uri": address, "provider": "grpc", "selector": f"core.openfeature.dev/{selector}"}


def warnings(wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings about settings that the operator accepts and that cause trouble."""
    messages = [
        f"FeatureFlagSource: sources[{number}]: httpSyncBearerToken {_TOKENS[provider]}"
        for number, entry in enumerate(wanted.settings.sources)
        if (provider := source.provider_of(entry, wanted.settings)) in _TOKENS
        and entry.http_sync_bearer_token
    ]
    if wanted.settings.on_missing_flags or wanted.settings.start_deadline:
        messages.append(
            "FeatureFlagSource: onMissingFlags and startDeadline need the controller without --compat"
        )
    return tuple(messages)
