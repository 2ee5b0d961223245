"""MetricTemplate: a query for FlagRollouts, with the fields of Flagger's kind of this name."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.objects.definition import AGE_COLUMN, Column, Definition
from controller.api.objects.fields import LocalReference, Model
from controller.api.objects.rules import Rule, RuledModel
from controller.api.rollouts.rollout_analysis import Url

KIND: Final = "MetricTemplate"


Query = Annotated[str, Field(min_length=1, max_length=8192)]


class MetricProvider(RuledModel):
    """Where the query is sent."""

    RULES = (
        Rule(
            "self.type != 'http' || has(self.jsonPath)",
            "type http needs jsonPath",
            lambda provider: provider.type != "http" or provider.json_path is not None,
        ),
    )

    type: Literal["prometheus", "datadog", "http"]
    """`prometheus`: an instant query. `datadog`: the metrics query API, the last point. `http`: a GET of the
    address with the query behind it, and the number at `jsonPath` of the answer.
    """
    address: Url
    """The server's URL."""
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


class MetricTemplateSpec(Model):
    """A query and its server."""

    provider: MetricProvider
    """Where the query is sent."""
    query: Query
    """The query, with variables such as `{{ flag }}`, `{{ variant }}`, `{{ arm }}`, `{{ revision }}`,
    `{{ interval }}`, `{{ namespace }}`, `{{ name }}`, `{{ target }}` and `{{ variables.NAME }}`.
    """
    samples: Query | None = None
    """A query, with the same variables, of how many samples a value of `query` is of: for `minSamples`."""


DEFINITION: Final = Definition(
    KIND,
    "metrictemplates",
    "mtmpl",
    "MetricTemplate is a query of metrics, which FlagRollouts ask.",
    spec=MetricTemplateSpec,
    spec_description="A query and its server.",
    columns=(Column("Provider", ".spec.provider.type"), AGE_COLUMN),
)
