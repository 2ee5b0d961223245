"""FlagRollout: a policy by which changes of flags are rolled out in steps, and what watches them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from controller.api import kind as record
from controller.api.addresses import require_usable
from controller.api.fields import (
    TIME,
    Duration,
    LocalReference,
    Model,
    RuledModel,
    ShortText,
    SpecRule,
    Timeout,
    in_schema,
    that,
)
from controller.api.flagoverride import moment_of
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.parsing import InvalidTextError
from controller.api.rollout_status import FlagRolloutStatus
from evaluator.host.times import read_clock, read_zone

if TYPE_CHECKING:
    from datetime import datetime

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
        SpecRule(
            "has(self.min) || has(self.max)",
            "set min, max or both",
            lambda value_range: value_range.min is not None or value_range.max is not None,
        ),
        SpecRule(
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
        SpecRule(
            "self.type == 'guardrail' || has(self.templateRef)",
            "types threshold and sampleRatio need templateRef",
            lambda metric: metric.type == "guardrail" or metric.template_ref is not None,
        ),
        SpecRule(
            "(self.type == 'threshold') == has(self.thresholdRange)",
            "type threshold needs thresholdRange, and no other type has one",
            lambda metric: (metric.type == "threshold") == (metric.threshold_range is not None),
        ),
        SpecRule(
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


Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def _require_hundredths(share: float) -> None:
    if abs(share * 100 - round(share * 100)) > 1e-6:
        raise InvalidTextError("must have at most two decimals")


def _require_time_zone(name: str) -> None:
    try:
        read_zone(name)
    except ValueError:
        raise InvalidTextError("must be a time zone such as UTC or Europe/Berlin") from None


def _require_clock_time(text: str) -> None:
    try:
        read_clock(text)
    except ValueError:
        raise InvalidTextError('must be a time of day such as "08:00"') from None


ClockTime = Annotated[
    str, Field(max_length=5), in_schema(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$"), that(_require_clock_time)
]
Moment = Annotated[str, Field(max_length=64), TIME, that(moment_of)]
"""RFC 3339."""


class HoldDeadline(Model):
    """How long a candidate may be held, and what happens then."""

    after: Duration
    """How long it may be held by one reason, such as `WaitingForApproval`."""
    action: Literal["Rollback", "Hold"] = "Hold"
    """`Rollback`: it is rolled back then. `Hold`: it stays held, and a warning says so."""
    announce: Duration = 3600.0
    """How long before its end the deadline is announced by an Event."""


class Step(RuledModel):
    """Who gets the new definition, and what must be so before the next step."""

    RULES = (
        SpecRule(
            "has(self.audience) != has(self.share)",
            "set exactly one of audience and share",
            lambda step: (step.audience is None) != (step.share is None),
        ),
    )

    audience: Annotated[dict[str, Any], in_schema(x_kubernetes_map_type="atomic")] | None = None
    """A rule in JSONLogic over the evaluation context, such as `{"ends_with": [{"var": "email"},
    "@example.com"]}`: users for whom it is true get the new definition, in this step and all later ones.
    """
    share: Annotated[float, Field(ge=0.01, le=100), that(_require_hundredths)] | None = None
    """Percent of users, with at most two decimals; greater than in each earlier step."""
    at: Moment | None = None
    """The step does not begin before this time, RFC 3339 with an offset such as `2026-12-01T08:00:00+01:00`.
    Later steps may not have an earlier one. Of a change that comes after it, the step begins as without it.
    """
    min_duration: Duration | None = None
    """How long the step lasts at least, from the moment at which it is served."""
    min_samples: Annotated[int, Field(ge=1)] | None = None
    """How many samples each metric that counts them must have since the step is served, and one must: tests
    do, and templates with a query of samples.
    """
    approval: Literal["Required"] | None = None
    """`Required`: the step ends only once somebody approves it."""
    deadline: HoldDeadline | None = None
    """How long the step may wait for people, webhooks or checks; in place of `spec.deadline`."""


class Window(Model):
    """Hours in which steps are taken."""

    days: Annotated[
        tuple[Day, ...], Field(min_length=1, max_length=7), in_schema(x_kubernetes_list_type="set")
    ]
    """Days of the week on which it opens."""
    from_: Annotated[ClockTime, Field(alias="from")]
    """When it opens, such as `08:00`."""
    to: ClockTime
    """When it closes; not after `from`: on the next day."""
    time_zone: Annotated[ShortText, that(_require_time_zone)] = "UTC"
    """A name of the IANA time zone database, such as `Europe/Berlin`."""


class Freeze(Model):
    """A time in which no step is taken."""

    from_: Annotated[Moment, Field(alias="from")]
    """When it begins, RFC 3339."""
    to: Moment
    """When it ends, RFC 3339."""
    reason: ShortText | None = None
    """Why, for people."""

    @property
    def bounds(self) -> tuple[datetime, datetime]:
        """(the beginning, the end), in UTC."""
        return moment_of(self.from_), moment_of(self.to)


class Propagation(Model):
    """When a step counts as served."""

    ready_threshold: Annotated[int, Field(ge=1, le=100)] = 100
    """Percent of the evaluators that must serve the step before its clock starts."""
    deadline: Duration = 300.0
    """How long a step may take to be served by so many; the rollout is held then, and says so."""


KIND: Final = "FlagRollout"
LABEL: Final = "flagstaff.dev/rollout"
"""The label on the FlagShards of promoted definitions; its value is the FlagRollout's name."""

APPROVE: Final = "flagstaff.dev/rollout-approve"
"""Annotation: what is approved, `sha256:<hex>/<step>` with the candidate's digest and the step, from 1, or
`sha256:<hex>/promotion`. Here and in the others that name candidates, 12 digits of a digest are enough, what
follows behind another `/` makes a request a new one, and commas separate several requests.
"""
PROMOTE: Final = "flagstaff.dev/rollout-promote"
"""Annotation: the digest of the candidate that is promoted at once."""
ABORT: Final = "flagstaff.dev/rollout-abort"
"""Annotation: the digest of the candidate that is rolled back."""
RESUME: Final = "flagstaff.dev/rollout-resume"
"""Annotation: the digest of the candidate that goes on after an override has interrupted it."""
RETRY: Final = "flagstaff.dev/rollout-retry"
"""Annotation: a new value has candidates that were stopped rolled out again: those whose digests it names, or
all, as `spec.retry` does.
"""
PAUSE: Final = "flagstaff.dev/rollout-pause"
"""Annotation: `true` holds all candidates at their steps, as `spec.pause` does; digests hold those."""


_FEWEST_DIGITS: Final = 12


def names_candidate(request: str, digest: str) -> bool:
    """Whether the value of an annotation names a candidate by its digest, or by its first 12 digits or more,
    with or without `sha256:`.
    """
    digits = digest.removeprefix("sha256:")
    named = (part.partition("/")[0].strip().removeprefix("sha256:") for part in request.split(","))
    return any(len(name) >= _FEWEST_DIGITS and digits.startswith(name) for name in named)


class RollbackWindow(Model):
    """Which earlier definitions need no steps."""

    revisions: Annotated[int, Field(ge=1, le=10)] = 3
    """How many promoted definitions of a flag back."""


class FlagRolloutSpec(RuledModel):
    """Which changes are rolled out, and how."""

    RULES = (
        SpecRule(
            "self.steps.filter(s, has(s.share)).map(s, double(s.share)).isSorted() && "
            "self.steps.filter(s, has(s.share)).all(s, "
            "self.steps.filter(t, has(t.share)).exists_one(t, double(t.share) == double(s.share)))",
            "shares must increase from step to step",
            lambda spec: _increases([step.share for step in spec.steps if step.share is not None]),
        ),
        SpecRule(
            "self.steps.filter(s, has(s.at)).map(s, timestamp(s.at)).isSorted()",
            "at must not be earlier than in a step before",
            lambda spec: all(
                moment_of(one) <= moment_of(other)
                for one, other in pairwise(step.at for step in spec.steps if step.at is not None)
            ),
        ),
    )

    flag_set_ref: LocalReference
    """The FlagSet, FeatureFlagConfiguration or FeatureFlag in the same namespace that has the flags."""
    flags: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(min_length=1, max_length=64),
        in_schema(x_kubernetes_list_type="set"),
    ]
    """Keys, or patterns of keys, in which `*` stands for any characters: `new-*`, `checkout/*`."""
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=32)]
    """Who gets a new definition, step by step. Everybody does after the last one."""
    promotion: Literal["Auto", "Manual"] = "Auto"
    """`Manual`: after the last step somebody promotes."""
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    """When a rollout starts, advances and promotes; always if none is set. It rolls back at any time."""
    freeze: Annotated[tuple[Freeze, ...], Field(max_length=64)] = ()
    """When it does not, whatever the windows say."""
    progress_deadline: Duration | None = None
    """How long a step may take, without the time in which it waits for people or windows; it is rolled back
    then.
    """
    propagation: Propagation = Propagation()
    """When a step counts as served."""
    analysis: Analysis = Analysis()
    """The checks of each step."""
    webhooks: Annotated[
        tuple[Webhook, ...],
        Field(max_length=16),
        in_schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
    ] = ()
    """URLs that decide, too."""
    pause: bool = False
    """Stay at the step. Checks go on, and roll back."""
    suspend: bool = False
    """Change nothing: neither steps nor checks. What is served stays as it is."""
    skip_analysis: bool = False
    """Promote without steps and checks. Windows, freezes, approvals, webhooks of the types confirm-*,
    pre-rollout and rollback, and `promotion: Manual` are waited for.
    """
    rollback_window: RollbackWindow | None = None
    """Changes back to a definition that was in force before the present one, and was never stopped, need no
    steps; they wait for windows, freezes, approvals, webhooks and `promotion: Manual` like any other. Off
    unless it is set.
    """
    max_concurrent: Annotated[int, Field(ge=1, le=20)] = 10
    """How many candidates run beside each other; further ones wait as `Queued`."""
    after_override: Literal["Hold", "Continue"] = "Hold"
    """What becomes of a candidate once an override that interrupted it has ended: `Hold` waits for
    `flagstaff rollout resume`, `abort` or `promote`.
    """
    deadline: HoldDeadline | None = None
    """How long a candidate may wait for people, webhooks or checks at one step. A step's own comes first."""
    retention: Annotated[Duration, Field(ge=3600, le=31_536_000)] = 2_592_000.0
    """How long definitions that were stopped, and promoted definitions of flags that disappeared, stay
    known.
    """
    retry: Annotated[str, Field(max_length=253)] = ""
    """Any new value has candidates that were stopped rolled out again."""


def _increases(shares: list[float]) -> bool:
    return all(before < after for before, after in pairwise(shares))


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagrollouts",
    short_name="froll",
    description="FlagRollout rolls out changes of flags in steps, watched by metrics.",
    spec=FlagRolloutSpec,
    spec_description="The flags, the steps, and what watches them.",
    status=FlagRolloutStatus,
    columns=(
        PrinterColumn("Set", ".spec.flagSetRef.name"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Running", ".status.running", type="integer"),
        PrinterColumn("Queued", ".status.queued", type="integer", priority=1),
        PrinterColumn("Furthest", ".status.furthest"),
        PrinterColumn("Promoted", ".status.promoted.revision", priority=1),
        READY_COLUMN,
        AGE_COLUMN,
        record.STATUS_COLUMN,
    ),
    rights=(*record.RECONCILED, record.SHOWN_BY_PAGE, record.FOLLOWED_BY_PROXY, record.FOLLOWED_BY_ADMISSION),
    modules=(
        "rollouts rollouts/advance rollouts/candidates rollouts/clocks rollouts/decide rollouts/gates "
        "rollouts/judgement rollouts/metric_checks rollouts/metric_servers rollouts/metric_values "
        "rollouts/observation rollouts/rollout_ports rollouts/verdicts"
    ),
    quota=20,
    is_granted=True,
    has_alerts=True,
)
