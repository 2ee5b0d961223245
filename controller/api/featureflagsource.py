"""FeatureFlagSource: OpenFeature Operator's settings of evaluators that it puts into pods."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from controller.api.objects.fields import Duration, LocalReference, Model, between, that
from controller.api.parsing import InvalidTextError

KIND: Final = "FeatureFlagSource"
# As in OpenFeature Operator's definition, there are no bounds: what cannot be used is refused at injection.
Port = Annotated[int, between(0, 65_535)]


def _require_source(source: str) -> None:
    if not 0 < len(source) <= 1024:
        raise InvalidTextError("must have from 1 to 1024 characters")


def _without_claims(resources: Any) -> Any:
    named = resources.items() if isinstance(resources, dict) else ()
    return {part: amounts for part, amounts in named if part != "claims"} if named else resources


class SourceSpec(Model):
    """Where flags come from."""

    source: Annotated[str, that(_require_source)]
    provider: str | None = None
    http_sync_bearer_token: str | None = None
    secret_ref: LocalReference | None = None
    tls: bool | None = None
    cert_path: str | None = None
    provider_id: Annotated[str | None, Field(alias="providerID")] = None
    selector: str | None = None
    interval: int | None = None


class FeatureFlagSourceSpec(Model):
    """What the user asks for. No default stands here: a field that is not given leaves what another
    FeatureFlagSource of the pod says.
    """

    sources: Annotated[tuple[SourceSpec, ...], Field(min_length=1)]
    port: Port | None = None
    management_port: Port | None = None
    ofrep_port: Port | None = None
    log_format: str | None = None
    debug_logging: bool | None = None
    probes_enabled: bool | None = None
    env_vars: tuple[dict[str, Any], ...] = ()
    env_var_prefix: str | None = None
    default_sync_provider: str | None = None
    resources: Annotated[dict[str, dict[str, Any]], BeforeValidator(_without_claims)] | None = None
    """Requests and limits, as a container has them; claims are of devices, and an evaluator uses none."""
    context_values: dict[str, str] | None = None
    header_to_context_mappings: dict[str, str] | None = None
    cors: tuple[str, ...] = ()
    evaluator: str | None = None
    socket_path: str | None = None
    sync_provider_args: tuple[str, ...] = ()
    rollout_on_change: bool | None = None
    otel_collector_uri: str | None = None
    on_missing_flags: str | None = None
    start_deadline: Duration | None = None


IGNORED: Final = {
    "sync_provider_args": "give each source its fields",
    "rollout_on_change": "evaluators follow their flags without a restart; for the rest see EvaluatorUpgrade",
    "otel_collector_uri": "set OTEL_EXPORTER_OTLP_ENDPOINT in envVars of an image with the extra otel",
}
"""Fields that nothing comes of, with why or what to do instead."""
