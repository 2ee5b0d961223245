"""MetricTemplate: a query for FlagRollouts, with the fields of Flagger's kind of this name."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.fields import LocalReference, RuledModel, SpecRule, that
from controller.api.flagrollout import Url
from controller.api.kind import AGE_COLUMN, READ_BY_CONTROLLER, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import require_query

KIND: Final = "MetricTemplate"


Query = Annotated[str, Field(min_length=1, max_length=8192), that(require_query)]


class MetricProvider(RuledModel):
    """Where the query is sent."""

    RULES = (
        SpecRule(
            "self.type != 'http' || has(self.jsonPath)",
            "type http needs jsonPath",
            lambda provider: provider.type != "http" or provider.json_path is not None,
        ),
        SpecRule(
            "self.type == 'datadog' || has(self.address)",
            "types prometheus and http need address",
            lambda provider: provider.type == "datadog" or provider.address is not None,
        ),
        SpecRule(
            "!has(self.insecureSkipVerify) || !self.insecureSkipVerify",
            "certificates are always verified: name the server's authority in certSecretRef",
            lambda provider: not provider.insecure_skip_verify,
        ),
    )

    type: Literal["prometheus", "datadog", "http"]
    """`prometheus`: an instant query. `datadog`: the metrics query API, the last point. `http`: a GET of the
    address with the query behind it, and the number at `jsonPath` of the answer.
    """
    address: Url | None = None
    """The server's URL; of type `datadog` `https://api.datadoghq.com` if it is not set."""
    json_path: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Of type `http`: where the number is, such as `$.data.value`."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace: `token`, or `username` and `password`; of type `datadog`
    `datadog_api_key` and `datadog_application_key`, as Flagger names them.
    """
    cert_secret_ref: LocalReference | None = None
    """A Secret in the same namespace, whose `ca.crt` is trusted in addition to the system's authorities."""
    headers: dict[str, Any] = Field(default_factory=dict)
    """Sent along; each value is a text or, as Flagger has it, a list of texts."""
    insecure_skip_verify: bool = False
    """A field of Flagger's, of which `true` is refused: `certSecretRef` names an authority."""


class MetricTemplateSpec(RuledModel):
    """A query and its server."""

    RULES = (
        SpecRule(
            "self.provider.type != 'http' || (self.query.matches('^[[:space:]]*[/?]') && "
            "(!has(self.samples) || self.samples.matches('^[[:space:]]*[/?]')))",
            "queries of type http are the end of a URL: they begin with / or ?",
            lambda spec: (
                spec.provider.type != "http"
                or all(query.lstrip().startswith(("/", "?")) for query in (spec.query, spec.samples or "/"))
            ),
        ),
    )

    provider: MetricProvider
    """Where the query is sent."""
    query: Query
    """The query, with variables such as `{{ flag }}`, `{{ variant }}`, `{{ arm }}`, `{{ revision }}`,
    `{{ interval }}`, `{{ namespace }}`, `{{ name }}`, `{{ target }}` and `{{ variables.NAME }}`.
    """
    samples: Query | None = None
    """A query, with the same variables, of how many samples a value of `query` is of: for `minSamples`."""


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "metrictemplates",
    short_name="mtmpl",
    description="MetricTemplate is a query of metrics, which FlagRollouts ask.",
    spec=MetricTemplateSpec,
    spec_description="A query and its server.",
    columns=(PrinterColumn("Provider", ".spec.provider.type"), AGE_COLUMN),
    status=None,
    rights=(READ_BY_CONTROLLER,),
    quota=50,
)
