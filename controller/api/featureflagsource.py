"""FeatureFlagSource: OpenFeature Operator's settings of evaluators that it puts into pods."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from controller.api.objects.definition import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Column, Definition
from controller.api.objects.fields import Duration, LocalReference, Model, between, that
from controller.api.objects.meta import OPENFEATURE_VERSION
from controller.api.objects.schema_words import OPEN
from controller.api.objects.status import Status
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
    """The name of a flag set, or a URI."""
    provider: str | None = None
    """Kubernetes, flagd-proxy, file, http, grpc, gcs, azblob or s3; default: defaultSyncProvider."""
    http_sync_bearer_token: str | None = None
    """Refused without a secretRef: it would stand in the pod's arguments."""
    secret_ref: LocalReference | None = None
    """Of http and grpc: a Secret of the pod's namespace, whose key `token` is sent as a bearer token."""
    tls: bool | None = None
    """Of grpc: whether it is asked over TLS."""
    cert_path: str | None = None
    """Of grpc: file of the authority's certificate."""
    provider_id: Annotated[str | None, Field(alias="providerID")] = None
    """Of grpc: what the evaluator calls itself."""
    selector: str | None = None
    """Of grpc: which flag set is asked for."""
    interval: int | None = None
    """Of http and object stores: seconds from one look to the next."""


class FeatureFlagSourceSpec(Model):
    """What the user asks for. No default stands here: a field that is not given leaves what another
    FeatureFlagSource of the pod says.
    """

    sources: Annotated[tuple[SourceSpec, ...], Field(min_length=1)]
    """Where flags come from; a later one wins over an earlier one."""
    port: Port | None = None
    """Of evaluation; default 8013."""
    management_port: Port | None = None
    """Of probes and metrics; default 8014."""
    ofrep_port: Port | None = None
    """Of OFREP; default 8016."""
    log_format: str | None = None
    """Json (the default) or console."""
    debug_logging: bool | None = None
    """Whether the evaluator logs at level debug."""
    probes_enabled: bool | None = None
    """False: the evaluator's container has no probes."""
    env_vars: tuple[dict[str, Any], ...] = ()
    """Variables of the evaluator and of the application's containers, as a container has them. Their names
    get the prefix.
    """
    env_var_prefix: str | None = None
    """Before the names of variables; default FLAGD."""
    default_sync_provider: str | None = None
    """Of sources that name no provider; default kubernetes."""
    resources: (
        Annotated[
            dict[str, dict[str, Any]],
            BeforeValidator(_without_claims),
            WithJsonSchema({"type": "object", OPEN: True}),
        ]
        | None
    ) = None
    """Of the evaluator's container."""
    context_values: dict[str, str] | None = None
    """Merged into every evaluation context."""
    header_to_context_mappings: dict[str, str] | None = None
    """Context keys by the request header that gives each."""
    cors: tuple[str, ...] = ()
    """Origins that browsers may ask from."""
    evaluator: str | None = None
    """Ignored: there is one, for JSON and YAML."""
    socket_path: str | None = None
    """Unix socket in place of the port of evaluation, in a folder that the application's containers share."""
    sync_provider_args: tuple[str, ...] = ()
    """Ignored: give each source its fields."""
    rollout_on_change: bool | None = None
    """Ignored: evaluators follow their flags without a restart."""
    otel_collector_uri: str | None = None
    """Ignored: set OTEL_EXPORTER_OTLP_ENDPOINT in envVars."""
    on_missing_flags: str | None = None
    """Wait (the default): the application starts with flags, or without them after startDeadline; Start: at
    once; Forever: never without.
    """
    start_deadline: Annotated[Duration, WithJsonSchema({"type": "string"})] | None = None
    """How long Wait waits; default 30s."""


IGNORED: Final = {
    "sync_provider_args": "give each source its fields",
    "rollout_on_change": "evaluators follow their flags without a restart; for the rest see EvaluatorUpgrade",
    "otel_collector_uri": "set OTEL_EXPORTER_OTLP_ENDPOINT in envVars of an image with the extra otel",
}
"""Fields that nothing comes of, with why or what to do instead."""

DEFINITION: Final = Definition(
    KIND,
    "featureflagsources",
    "ffs",
    "FeatureFlagSource configures the evaluators of pods that name it.",
    spec=FeatureFlagSourceSpec,
    spec_description=(
        "What is asked for. Several FeatureFlagSources of one pod are merged; a field that is not "
        "given changes nothing."
    ),
    status=Status,
    columns=(
        READY_COLUMN,
        Column("Source", ".spec.sources[0].source"),
        Column("Provider", ".spec.sources[0].provider"),
        AGE_COLUMN,
        STATUS_COLUMN,
    ),
    api_version=OPENFEATURE_VERSION,
    note=(
        "Where OpenFeature Operator's own definition is installed already, leave this one out: objects are "
        "read either way."
    ),
)
