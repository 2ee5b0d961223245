"""Checks the metrics of a step at the same time: reads templates, queries servers, and judges values."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api import metrictemplate
from controller.api.fields import InvalidSpecError, parse_spec
from controller.api.flagrollout import Metric, MetricQuery
from controller.api.meta import ObjectKey
from controller.api.metrictemplate import MetricTemplateSpec
from controller.api.parsing import names_in
from controller.api.rollout_status import MetricStatus
from controller.rollouts.metric_servers import AllowedServers, Question, read_value
from controller.rollouts.metric_values import NoValueError, UnusableError, write_query
from controller.rollouts.verdicts import judge_guardrail, judge_ratio, judge_threshold, threshold_of, too_few
from controller.runtime.plain_text import one_line
from evaluator.host.times import parse_time, query_duration, timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime

    from controller.rollouts.rollout_ports import MeasuredStep
    from controller.runtime.cache import Cache


CANDIDATE: Final = "candidate"
OTHERS: Final = "baseline"
"""Values of `{{ arm }}`: users with the new definitions, and with the promoted ones."""
_ANY_SIGN: Final = re.compile(r"[^\w/:-]")
_MOST_FLAGS: Final = 100
"""Flags that `{{ flags }}` names; where there are more, it has no value."""
_MOST_QUERY: Final = 4096
_MOST_MESSAGE: Final = 1024


@contextlib.asynccontextmanager
async def _parallel_requests() -> AsyncIterator[asyncio.TaskGroup]:
    """Make requests at the same time: the first that fails cancels the others, and its error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass(frozen=True, slots=True)
class MetricCheck:
    """One check, made once."""

    objects: Cache
    servers: AllowedServers
    step: MeasuredStep
    metric: Metric
    now: datetime

    async def run(self, before: MetricStatus | None, seconds: float) -> MetricStatus:
        """Return the status after the check; never raises. `seconds`: for all its requests."""
        status = self._blank(before)
        try:
            status = status.model_copy(update={"query": self._shown_query()})
            async with asyncio.timeout(seconds):
                if self.metric.type == "threshold":
                    return await self._check_threshold(status)
                if self.metric.type == "guardrail":
                    return await self._check_guardrail(status)
                return await self._check_ratio(status)
        except NoValueError as error:
            return status.model_copy(update={"verdict": "Inconclusive", "message": str(error)})
        except UnusableError as error:
            message = one_line(str(error), _MOST_MESSAGE)
        except TimeoutError:
            message = f"no answer within {seconds:g} s"
        return status.model_copy(update={"verdict": "Error", "message": message})

    @property
    def counts_samples(self) -> bool:
        """Whether the metric counts samples: tests do, and templates with a query of them."""
        if self.metric.type != "threshold":
            return True
        try:
            return self._template(self._query()).samples is not None
        except UnusableError:
            return False

    def _blank(self, before: MetricStatus | None) -> MetricStatus:
        """Return a status without a verdict, with what was counted in this step until now."""
        kept = before if before is not None and _is_since(before.at, self.step.served_since) else None
        return MetricStatus(
            name=self.metric.name,
            verdict="Error",
            threshold=threshold_of(self.metric),
            at=timestamp(self.now),
            weights=kept.weights if kept else (),
            counts=kept.counts if kept else (),
            recent=before.recent if before else (),
        )

    async def _check_threshold(self, status: MetricStatus) -> MetricStatus:
        query, allowed = self._query(), self.metric.threshold_range
        window = self._window(self.metric.interval)
        needed = self.step.min_samples if self._template(query).samples else None
        async with _parallel_requests() as group:
            reading = group.create_task(self._read(query, CANDIDATE, window))
            in_window = group.create_task(self._samples(query, self.metric.min_samples, window))
            in_step = group.create_task(self._samples(query, needed, None))
        value, recent, whole = reading.result(), in_window.result(), in_step.result()
        few = too_few(recent, self.metric.min_samples) or too_few(whole, self.step.min_samples)
        newer = status.model_copy(update={"samples": whole if recent is None else recent})
        if allowed is None:
            raise UnusableError("type threshold needs thresholdRange")
        return judge_threshold(newer, allowed, value, few)

    async def _check_guardrail(self, status: MetricStatus) -> MetricStatus:
        bad, total = self.metric.numerator, self.metric.denominator
        if bad is None or total is None:
            raise UnusableError("type guardrail needs numerator and denominator")
        counts = await self._counts(bad, total)
        if None in counts[2:]:
            arm = CANDIDATE if counts[2] is None else OTHERS
            raise NoValueError(f"the denominator has no value for {{{{ arm }}}} {arm}")
        if counts[0] is None and counts[1] is None:
            raise NoValueError("the numerator has no value; add `or vector(0)` where no event is the rule")
        # A counter begins with the first event, which one arm may not have had yet.
        known = tuple(count or 0.0 for count in counts)
        return judge_guardrail(status, self.metric, known, self._needed_samples())

    async def _check_ratio(self, status: MetricStatus) -> MetricStatus:
        share = self.step.share
        if share is None:
            raise NoValueError("audiences get the candidate, too: no share of users is expected")
        if share >= 100:
            raise NoValueError("everybody gets the candidate: there is no ratio")
        candidates, others = (count or 0.0 for count in await self._counts(self._query()))
        return judge_ratio(status, self.metric, (candidates, others), share / 100, self._needed_samples())

    def _needed_samples(self) -> int:
        """How many samples a test needs to pass."""
        return max(self.metric.min_samples or 0, self.step.min_samples or 0)

    def _query(self) -> MetricQuery:
        if self.metric.template_ref is None:
            raise UnusableError(f"type {self.metric.type} needs templateRef")
        return MetricQuery(
            template_ref=self.metric.template_ref, template_variables=self.metric.template_variables
        )

    async def _counts(self, *queries: MetricQuery) -> list[float | None]:
        """Return what `_count` returns of each query, for the candidate and then for the others."""
        async with _parallel_requests() as group:
            tasks = [
                group.create_task(self._count(query, arm)) for query in queries for arm in (CANDIDATE, OTHERS)
            ]
        return [task.result() for task in tasks]

    async def _count(self, query: MetricQuery, arm: str) -> float | None:
        """Return the value of a query for one arm since the step is served, None if it has none."""
        if "arm" not in names_in(self._template(query).query):
            name = query.template_ref.name
            raise UnusableError(f"MetricTemplate {name} has no {{{{ arm }}}}: both sides would be the same")
        try:
            return await self._read(query, arm, None)
        except NoValueError:
            return None

    async def _samples(self, query: MetricQuery, needed: int | None, window: float | None) -> float | None:
        """Return the number of samples in a window, None if none are needed."""
        if needed is None:
            return None
        if self._template(query).samples is None:
            name = query.template_ref.name
            raise UnusableError(f"MetricTemplate {name} has no query of samples, which minSamples needs")
        try:
            return await self._read(query, CANDIDATE, window, samples=True)
        except NoValueError:
            return 0.0

    async def _read(
        self, query: MetricQuery, arm: str, window: float | None, *, samples: bool = False
    ) -> float:
        """Return one value. `window`: seconds of the past, None: since the step is served."""
        template = self._template(query)
        seconds = self._window(window)
        text = template.samples if samples and template.samples else template.query
        written = write_query(
            template.provider.type, text, self._values(arm, seconds), query.template_variables
        )
        question = Question(template.provider, written, seconds)
        times = self.step.served_since, self.now
        return await read_value(self.servers, self.step.rollout.namespace, question, times)

    def _template(self, query: MetricQuery) -> MetricTemplateSpec:
        namespace, name = self.step.rollout.namespace, query.template_ref.name
        resource = self.objects.get(ObjectKey(metrictemplate.KIND, namespace, name))
        if resource is None:
            raise UnusableError(f"MetricTemplate {name} does not exist; create it, or correct templateRef")
        try:
            return parse_spec(MetricTemplateSpec, resource)
        except InvalidSpecError as error:
            raise UnusableError(f"MetricTemplate {name}: {error}") from None

    def _window(self, seconds: float | None) -> float:
        """Return a window that does not begin before the step is served."""
        since = max(1.0, (self.now - self.step.served_since).total_seconds())
        return since if seconds is None else min(seconds, since)

    def _values(self, arm: str, window: float) -> dict[str, str]:
        """Return the variables of a query, without those that have no value."""
        step = self.step
        several = step.flags if len(step.flags) <= _MOST_FLAGS else ()
        values = {
            "arm": arm,
            "flag": step.flags[0] if step.flags else "",
            "flags": "|".join(_ANY_SIGN.sub(".", flag) for flag in several),
            "interval": query_duration(window),
            "name": step.rollout.name,
            "namespace": step.rollout.namespace,
            "revision": step.candidate,
            "target": step.target,
            "variant": step.variant,
        }
        return {name: value for name, value in values.items() if value}

    def _shown_query(self) -> str:
        """Return the metric's first query as it is asked, in one line."""
        query = self.metric.numerator or self._query()
        template = self._template(query)
        window = self._window(self.metric.interval if self.metric.type == "threshold" else None)
        written = write_query(
            template.provider.type, template.query, self._values(CANDIDATE, window), query.template_variables
        )
        return one_line(" ".join(written.split()), _MOST_QUERY)


def _is_since(at: str | None, served_since: datetime) -> bool:
    """Whether a check was made in the step that is served since then."""
    moment = parse_time(at)
    return moment is not None and moment >= served_since


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
