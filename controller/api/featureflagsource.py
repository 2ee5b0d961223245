"""FeatureFlagSource: OpenFeature Operator's settings of evaluators that it puts into pods."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from controller.api.objects.fields import Duration, LocalReference, Model

KIND: Final = "FeatureFlagSource"
Port = Annotated[int, Field(ge=0, le=65_535)]


class SourceSpec(Model):
    """Where flags come from."""

    source: Annotated[str, Field(min_length=1, max_length=1024)]
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
    resources: dict[str, dict[str, Any]] | None = None
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
