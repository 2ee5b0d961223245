"""The ports of a rollout: checks of metrics, and calls of webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from controller.api.flagrollout import Metric, Webhook
    from controller.api.meta import ObjectKey
    from controller.api.rollout_status import MetricStatus


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The step that metrics are about."""

    rollout: ObjectKey
    target: str
    """The name of the rollout's flag set."""
    flags: tuple[str, ...]
    """Keys of the flags that the candidate changes."""
    variant: str
    """The default variant of the first flag's new definition; empty if there is none."""
    candidate: str
    """The candidate's digest, as metadata of answers and labels of metrics have it."""
    share: float | None
    """Percent of users who get the candidate; None where audiences get it, too."""
    served_since: datetime
    """When enough evaluators served the step."""
    min_samples: int | None = None
    """How many samples the step needs."""


class StepChecks(Protocol):
    """Checks metrics."""

    async def measure(
        self,
        step: MeasuredStep,
        metrics: Sequence[Metric],
        before: Sequence[MetricStatus],
        now: datetime,
        seconds: float,
    ) -> tuple[MetricStatus, ...]:
        """Check all metrics at the same time, and return their statuses in the same order; never raises.
        `before`: the statuses of the check before. `seconds`: for all of them.
        """


@dataclass(frozen=True, slots=True)
class HookCall:
    """The content of a call of a webhook."""

    rollout: ObjectKey
    phase: str
    checksum: str
    """The candidate's digest: an answer is about this change alone."""
    revision: str
    """The candidate's commit, by which other clusters know it; empty: none is known."""
    step: str
    """For people: `2/4`."""
    share: float | None
    """Percent of users who get the candidate."""
    flags: tuple[str, ...]
    """Keys of the flags that the candidate changes."""


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The answer of a webhook."""

    verdict: Literal["Pass", "Fail", "Error"]
    """`Pass`: a status from 200 to 299. `Fail`: another one below 500. `Error`: 500 or more, or no answer."""
    message: str
    """The answer in words, without secrets."""


class Hooks(Protocol):
    """Asks webhooks."""

    async def ask(self, hook: Webhook, call: HookCall) -> HookAnswer:
        """Ask, again where nothing answers and the webhook has retries; never raises."""
