"""The steps of a FlagRollout, and when it may take them."""

from __future__ import annotations

from datetime import datetime, time
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from controller.api.flagoverride import moment_of
from controller.api.objects.fields import Duration, Model, ShortText, that
from controller.api.objects.rules import Rule, RuledModel
from controller.api.objects.schema_words import TIME, in_schema
from controller.api.parsing import InvalidTextError

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def _require_hundredths(share: float) -> None:
    if abs(share * 100 - round(share * 100)) > 1e-6:
        raise InvalidTextError("must have at most two decimals")


def _require_time_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidTextError("must be a time zone such as UTC or Europe/Berlin") from None


def _require_clock_time(text: str) -> None:
    try:
        time.fromisoformat(text)
    except ValueError:
        raise InvalidTextError('must be a time of day such as "08:00"') from None


ClockTime = Annotated[
    str, Field(max_length=5), in_schema(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$"), that(_require_clock_time)
]
Moment = Annotated[str, Field(max_length=64), TIME, that(moment_of)]
"""RFC 3339."""


class Deadline(Model):
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
        Rule(
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
    min_duration: Duration | None = None
    """How long the step lasts at least, from the moment at which it is served."""
    min_samples: Annotated[int, Field(ge=1)] | None = None
    """How many samples each metric that counts them must have since the step is served, and one must: tests
    do, and templates with a query of samples.
    """
    approval: Literal["Required"] | None = None
    """`Required`: the step ends only once somebody approves it."""
    deadline: Deadline | None = None
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
