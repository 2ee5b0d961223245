"""FeatureFlagSource: OpenFeature Operator's settings of evaluators that it puts into pods."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from controller.api import kind as record
from controller.api.fields import OPEN, Duration, LocalReference, Model, between, that
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import OPENFEATURE_VERSION
from controller.api.parsing import InvalidTextError
from controller.api.status import Status

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
    """Where the source is: see [providers](#providers). `defaultSyncProvider` if it is not set."""
    http_sync_bearer_token: str | None = None
    """Refused without `secretRef`: the token would be part of the pod's arguments."""
    secret_ref: LocalReference | None = None
    """For `http` and `grpc`: a Secret in the pod's namespace whose key `token` is sent as a [bearer
    token](#tokens).
    """
    tls: bool | None = None
    """For `grpc`: whether to connect with TLS."""
    cert_path: str | None = None
    """For `grpc`: a file with the authority's certificate."""
    provider_id: Annotated[str | None, Field(alias="providerID")] = None
    """For `grpc`: the name that the evaluator gives to the server."""
    selector: str | None = None
    """For `grpc`: the flag set to ask for."""
    interval: int | None = None
    """For `http` and object stores: seconds from one read to the next."""


class FeatureFlagSourceSpec(Model):
    """What the user asks for. No default stands here: a field that is not given leaves what another
    FeatureFlagSource of the pod says.
    """

    sources: Annotated[tuple[SourceSpec, ...], Field(min_length=1)]
    """Where flags come from; a later source has priority over an earlier one."""
    port: Port | None = None
    """The port of evaluation, `8013` if it is not set."""
    management_port: Port | None = None
    """The port of probes and metrics, `8014` if it is not set."""
    ofrep_port: Port | None = None
    """The port of OFREP, `8016` if it is not set."""
    log_format: str | None = None
    """`json` or `console`; `json` if it is not set."""
    debug_logging: bool | None = None
    """Whether the evaluator logs at level debug."""
    probes_enabled: bool | None = None
    """`false`: the evaluator's container has no probes."""
    env_vars: tuple[dict[str, Any], ...] = ()
    """Variables of the evaluator's and the application's containers, as in a container. Names get the
    prefix, except those that begin with `AWS_`, `GOOGLE_` or `AZURE_STORAGE`, which are the evaluator's
    alone. Names by which programs load code, such as `LD_PRELOAD`, are refused.
    """
    env_var_prefix: str | None = None
    """The prefix of the names of variables, `FLAGD` if it is not set."""
    default_sync_provider: str | None = None
    """The provider of sources that name none, `kubernetes` if it is not set."""
    resources: (
        Annotated[
            dict[str, dict[str, Any]],
            BeforeValidator(_without_claims),
            WithJsonSchema({"type": "object", OPEN: True}),
        ]
        | None
    ) = None
    """Requests and limits of the evaluator's container; `claims` have no effect."""
    context_values: dict[str, str] | None = None
    """Values that are merged into each evaluation context."""
    header_to_context_mappings: dict[str, str] | None = None
    """Context keys by the request header that supplies each."""
    cors: tuple[str, ...] = ()
    """Origins from which browsers may ask."""
    evaluator: str | None = None
    """Ignored; JSON and YAML are read alike."""
    socket_path: str | None = None
    """A Unix socket to serve evaluation at, in place of the port, in a folder that the application's
    containers share.
    """
    sync_provider_args: tuple[str, ...] = ()
    """Ignored, with a warning; set the fields of each source."""
    rollout_on_change: bool | None = None
    """Ignored, with a warning; evaluators follow their flags without a restart. See
    [EvaluatorUpgrade](evaluatorupgrade.md).
    """
    otel_collector_uri: str | None = None
    """Ignored, with a warning; set `OTEL_EXPORTER_OTLP_ENDPOINT` in `envVars`."""
    on_missing_flags: str | None = None
    """`Wait`: the application starts with flags, or after `startDeadline` without them; `Start`: at once;
    `Forever`: never without flags. `Wait` if it is not set.
    """
    start_deadline: Annotated[Duration, WithJsonSchema({"type": "string"})] | None = None
    """How long `Wait` waits, `30s` if it is not set."""


IGNORED: Final = {
    "sync_provider_args": "give each source its fields",
    "rollout_on_change": "evaluators follow their flags without a restart; for the rest see EvaluatorUpgrade",
    "otel_collector_uri": "set OTEL_EXPORTER_OTLP_ENDPOINT in envVars of an image with the extra otel",
}
"""Fields that nothing comes of, with why or what to do instead."""

RECORD: Final = Kind(
    OPENFEATURE_VERSION,
    KIND,
    "featureflagsources",
    short_name="ffs",
    description="FeatureFlagSource configures the evaluators of pods that name it.",
    spec=FeatureFlagSourceSpec,
    spec_description=(
        "What is asked for. Several FeatureFlagSources of one pod are merged; a field that is not "
        "given changes nothing."
    ),
    status=Status,
    columns=(
        READY_COLUMN,
        PrinterColumn("Source", ".spec.sources[0].source"),
        PrinterColumn("Provider", ".spec.sources[0].provider"),
        AGE_COLUMN,
        record.STATUS_COLUMN,
    ),
    note=(
        "Where OpenFeature Operator's own definition is installed already, leave this one out: objects are "
        "read either way."
    ),
    rights=(*record.RECONCILED, record.FOLLOWED_BY_ADMISSION),
    modules=(
        "pods/flag_files pods/flag_readers pods/flagd_objects pods/flagd_reconciler pods/marked_pods "
        "pods/proxy_scale pods/stage"
    ),
    quota=50,
    is_granted=True,
)
