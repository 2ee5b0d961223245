"""Checks the metrics of a step at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.rollouts.analysis.one_check import MetricCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from controller.api.rollouts.rollout_analysis import Metric
    from controller.api.rollouts.rollout_status import MetricStatus
    from controller.rollouts.analysis.allowed_servers import AllowedServers
    from controller.rollouts.analysis.rollout_ports import MeasuredStep
    from controller.runtime.objects.cache import Cache


@dataclass(frozen=True, slots=True)
class MetricChecks:
    """The metrics of all rollouts; see the port Checks."""

    objects: Cache
    servers: AllowedServers
    count: Callable[[str], None] = lambda _verdict: None
    """Counts a check by its verdict."""

    async def measure(
        self,
        step: MeasuredStep,
        metrics: Sequence[Metric],
        before: Sequence[MetricStatus],
        now: datetime,
        seconds: float,
    ) -> tuple[MetricStatus, ...]:
        """See Checks."""
        known = {status.name: status for status in before}
        checks = [MetricCheck(self.objects, self.servers, step, metric, now) for metric in metrics]
        runs = (check.run(known.get(check.metric.name), seconds) for check in checks)
        statuses = tuple(await asyncio.gather(*runs))
        if step.min_samples is not None and not any(check.counts_samples for check in checks):
            statuses = tuple(map(_without_samples, statuses))
        for status in statuses:
            self.count(status.verdict)
        return statuses


def _without_samples(status: MetricStatus) -> MetricStatus:
    """Return the status in a step that needs samples, where no metric counts them."""
    if status.verdict != "Pass":
        return status
    message = (
        "minSamples of the step needs a metric that counts them: a MetricTemplate with samples, or a test"
    )
    return status.model_copy(update={"verdict": "Inconclusive", "message": message})
