"""What watches a FlagRollout: metrics, and webhooks."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from controller.api.objects.fields import Duration, LocalReference, Model, ShortText, Timeout, that
from controller.api.objects.rules import Rule, RuledModel
from controller.api.objects.schema_words import in_schema
from controller.api.parsing.addresses import require_usable

SHORTEST_INTERVAL: Final = 10.0
"""Seconds between checks."""
WebhookType = Literal[
    "confirm-rollout",
    "pre-rollout",
    "rollout",
    "confirm-increase",
    "confirm-promotion",
    "post-rollout",
    "rollback",
]
Texts = Annotated[
    dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=1024)]], Field(max_length=32)
]


def _require_url(url: str) -> None:
    # Metric servers are in the cluster; whether they may be asked is an option of the installation.
    require_usable(url, allow_local=True)


Url = Annotated[str, Field(min_length=1, max_length=2048), that(_require_url)]
"""An `http://` or `https://` address."""


class ThresholdRange(RuledModel):
    """The values that are good."""

    RULES = (
        Rule(
            "has(self.min) || has(self.max)",
            "set min, max or both",
            lambda value_range: value_range.min is not None or value_range.max is not None,
        ),
        Rule(
            "!has(self.min) || !has(self.max) || self.min <= self.max",
            "min must not be greater than max",
            lambda value_range: (
                value_range.min is None or value_range.max is None or value_range.min <= value_range.max
            ),
        ),
    )

    min: float | None = None
    """The least good value."""
    max: float | None = None
    """The greatest good value."""


class MetricQuery(Model):
    """A MetricTemplate with values for its variables."""

    template_ref: LocalReference
    """The MetricTemplate in the same namespace."""
    template_variables: Texts = Field(default_factory=dict)
    """Values of `{{ variables.NAME }}` in the template's query."""


class Metric(RuledModel):
    """One check, made in each interval."""

    RULES = (
        Rule(
            "self.type == 'guardrail' || has(self.templateRef)",
            "types threshold and sampleRatio need templateRef",
            lambda metric: metric.type == "guardrail" or metric.template_ref is not None,
        ),
        Rule(
            "(self.type == 'threshold') == has(self.thresholdRange)",
            "type threshold needs thresholdRange, and no other type has one",
            lambda metric: (metric.type == "threshold") == (metric.threshold_range is not None),
        ),
        Rule(
            "(self.type == 'guardrail') == (has(self.numerator) && has(self.denominator))",
            "type guardrail needs numerator and denominator, and no other type has them",
            lambda metric: (
                (metric.type == "guardrail")
                == (metric.numerator is not None and metric.denominator is not None)
            ),
        ),
    )

    name: ShortText
    """The name in status, Events and metrics."""
    type: Literal["threshold", "guardrail", "sampleRatio"] = "threshold"
    """`threshold`: the value is in `thresholdRange`. `guardrail`: the candidate's rate of events is not
    `margin` times that of the others. `sampleRatio`: the candidate has the share of users that it should.
    """
    template_ref: LocalReference | None = None
    """The MetricTemplate in the same namespace. `sampleRatio` asks it once for each `arm`."""
    template_variables: Texts = Field(default_factory=dict)
    """Values of `{{ variables.NAME }}` in the template's query."""
    threshold_range: ThresholdRange | None = None
    """The good values of type `threshold`."""
    interval: Duration = 60.0
    """The variable `interval` of the query: how much of the past it is about. Never more than since the step
    is served.
    """
    min_samples: Annotated[int, Field(ge=1)] | None = None
    """How many samples a value needs to count; the template must have a query of samples."""
    numerator: MetricQuery | None = None
    """Of type `guardrail`: counts bad events of one `arm` since the step is served."""
    denominator: MetricQuery | None = None
    """Of type `guardrail`: counts all events of one `arm` since the step is served."""
    margin: Annotated[float, Field(ge=1, le=100)] = 1.25
    """Of type `guardrail`: how many times the others' rate is still good."""
    alpha: Annotated[float, Field(ge=0.000001, le=0.5)] | None = None
    """Of types `guardrail` and `sampleRatio`: how likely a false alarm may be in a whole step; 0.05 and 0.001
    if it is not set.
    """
    dry_run: bool = False
    """Report the check, and let nothing depend on it."""


class Analysis(Model):
    """The checks of each step."""

    interval: Annotated[Duration, AfterValidator(lambda seconds: max(seconds, SHORTEST_INTERVAL))] = 60.0
    """How often all metrics are checked. A shorter one than 10s is read as 10s, as Flagger does."""
    failure_limit: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many failed checks of one step roll back."""
    consecutive_error_limit: Annotated[int, Field(ge=1, le=1000)] = 4
    """How many errors one after the other, such as no answer by a metric server or a webhook, count for
    `onError`.
    """
    on_inconclusive: Literal["Hold", "Rollback", "Advance"] = "Hold"
    """What happens at the end of a step whose checks have no value, or too few samples."""
    on_error: Literal["Hold", "Rollback"] = "Hold"
    """What happens when metrics cannot be read, or webhooks do not answer."""
    metrics: Annotated[
        tuple[Metric, ...],
        Field(max_length=32),
        in_schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
    ] = ()
    """The checks. None: steps last for their `minDuration`."""


class Webhook(Model):
    """A URL that decides, too."""

    name: ShortText
    """The name in status and Events."""
    type: WebhookType
    """When it is asked, and what its answer means; see [Webhooks](#webhooks)."""
    url: Url
    """The address. It is sent a POST with JSON."""
    timeout: Timeout = 10.0
    """How long one try may take."""
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """How often a try that was not answered is repeated at once."""
    metadata: Texts = Field(default_factory=dict)
    """Sent along."""
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace, whose `token` is sent as `Authorization: Bearer`."""
