"""What a check asks, and what it makes of the values."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from controller.api.rollout_status import MetricStatus
from controller.rollouts.metric_checks import MetricChecks
from controller.rollouts.verdicts import RATIOS, stops, worst
from tests.web_server import web_server
from tests.worlds.metrics import NOW, MetricWorld, metric_of, metric_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUERY = 'errors{flag="{{ flag }}",arm="{{ arm }}"}[{{ interval }}]'
GUARDRAIL: dict[str, Any] = {
    "type": "guardrail",
    "numerator": {"templateRef": {"name": "bad"}},
    "denominator": {"templateRef": {"name": "all"}},
}


@dataclass
class Numbers:
    """A Prometheus that knows the values of whole queries, by a part of their text."""

    values: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        query = request.query["query"]
        self.asked.append(query)
        result = [
            {"metric": {}, "value": [1.0, str(value)]} for part, value in self.values.items() if part in query
        ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


@dataclass
class Watched(MetricWorld):
    numbers: Numbers = field(default_factory=Numbers)


@pytest.fixture
async def world() -> AsyncIterator[Watched]:
    numbers = Numbers()
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(metric_world())
        port = await stack.enter_async_context(web_server(web.get("/api/v1/query", numbers.answer)))
        watched = Watched(opened.client, numbers=numbers)
        provider = {"type": "prometheus", "address": f"http://127.0.0.1:{port}"}
        watched.template(provider, QUERY, samples="requests[{{ interval }}]")
        watched.template(provider, 'bad{arm="{{ arm }}"}', name="bad")
        watched.template(provider, 'all{arm="{{ arm }}"}', name="all")
        watched.template(provider, 'users{arm="{{ arm }}"}', name="users")
        yield watched


@pytest.mark.parametrize(
    ("allowed", "value", "verdict", "threshold"),
    [
        ({"max": 0.01}, 0.01, "Pass", "at most 0.01"),
        ({"max": 0.01}, 0.011, "Fail", "at most 0.01"),
        ({"min": 99}, 99, "Pass", "at least 99"),
        ({"min": 99}, 98.9, "Fail", "at least 99"),
        ({"min": 1, "max": 2}, 0.5, "Fail", "from 1 to 2"),
        ({"min": 1, "max": 2}, 1.5, "Pass", "from 1 to 2"),
    ],
)
async def test_a_value_is_compared_with_the_range(
    world: Watched, allowed: dict[str, float], value: float, verdict: str, threshold: str
) -> None:
    world.numbers.values = {"errors": value}
    status = await world.check(thresholdRange=allowed)
    assert (status.verdict, status.value, status.threshold) == (verdict, value, threshold)
    assert status.query == 'errors{flag="new-checkout",arm="candidate"}[1m]'
    assert status.at == "2026-01-01T12:00:00Z"
    assert world.counted == [verdict]


@pytest.mark.parametrize(
    ("served", "interval", "written"),
    [(3600, "5m", "5m"), (90, "5m", "90s"), (3600, "1h30m", "1h"), (0.2, "1m", "1s"), (7200, "90m", "90m")],
)
async def test_a_window_does_not_begin_before_the_step_is_served(
    world: Watched, served: float, interval: str, written: str
) -> None:
    world.numbers.values = {"errors": 0}
    await world.check(interval=interval, step={"served_since": NOW - timedelta(seconds=served)})
    assert world.numbers.asked == [f'errors{{flag="new-checkout",arm="candidate"}}[{written}]']


async def test_too_few_samples_are_inconclusive_whatever_the_value(world: Watched) -> None:
    world.numbers.values = {"errors": 1.0, "requests[1m]": 20, "requests[1h]": 400}
    of_metric = await world.check(minSamples=21)
    of_step = await world.check(step={"min_samples": 500})
    enough = await world.check(minSamples=20, step={"min_samples": 400})
    assert [status.verdict for status in (of_metric, of_step, enough)] == [
        "Inconclusive", "Inconclusive", "Fail",
    ]  # fmt: skip
    assert (of_metric.message, of_step.message) == (
        "20 samples, 21 are needed",
        "400 samples, 500 are needed",
    )


async def test_no_samples_are_none(world: Watched) -> None:
    world.numbers.values = {"errors": 0.0}
    assert (await world.check(minSamples=1)).message == "0 samples, 1 are needed"


async def test_a_metric_with_samples_needs_a_query_of_them_and_a_step_one_such_metric(world: Watched) -> None:
    world.numbers.values = {"bad": 0.1, "errors": 0.1, "requests": 500}
    reference: dict[str, Any] = {"templateRef": {"name": "bad"}}
    alone = await world.check(**reference, step={"min_samples": 500})
    assert (alone.verdict, alone.value) == ("Inconclusive", 0.1)
    assert "minSamples of the step needs a metric that counts them" in (alone.message or "")
    both = [metric_of(**reference), metric_of(name="counted")]
    step = replace(world.step, min_samples=500)
    checks = MetricChecks(world.objects, world.servers)
    statuses = await checks.measure(step, both, (), NOW, 10)
    assert [status.verdict for status in statuses] == ["Pass", "Pass"]
    needed = await world.check(**reference, minSamples=1)
    assert (needed.verdict, "has no query of samples" in (needed.message or "")) == ("Error", True)


@pytest.mark.parametrize("flag", ['a"} or vector(0) #', "a\\", "a'b", "a\nb", "a`b", "a{b"])
async def test_a_flag_s_name_cannot_change_the_query(world: Watched, flag: str) -> None:
    status = await world.check(step={"flags": (flag,)})
    assert (status.verdict, world.numbers.asked) == ("Error", [])
    assert "rename the flag" in (status.message or "")


async def test_all_variables_are_written_out(world: Watched) -> None:
    names = ("flag", "flags", "variant", "revision", "namespace", "name", "target", "variables.route")
    provider = {"type": "prometheus", "address": "http://127.0.0.1:1"}
    world.template(provider, " ".join(f"{{{{ {name} }}}}" for name in names))
    status = await world.check(templateVariables={"route": '"/pay"'})
    written = 'new-checkout new-checkout|checkout/v2 on sha256:0a1b shop checkout checkout-production "/pay"'
    assert status.query == written


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"templateRef": {"name": "gone"}}, "MetricTemplate gone does not exist"),
        ({"templateRef": {"name": "odd"}}, "MetricTemplate odd: spec.provider.type"),
        ({"templateRef": {"name": "unknown"}}, "{{ service }} is no variable"),
        ({"templateRef": {"name": "unset"}}, "{{ variables.route }} has no value"),
        ({**GUARDRAIL, "numerator": {"templateRef": {"name": "armless"}}}, "has no {{ arm }}"),
    ],
)
async def test_a_template_that_cannot_be_used_is_an_error(
    world: Watched, spec: dict[str, Any], words: str
) -> None:
    provider = {"type": "prometheus", "address": "http://127.0.0.1:1"}
    world.template({"type": "graphite", "address": "http://127.0.0.1:1"}, "x", name="odd")
    world.template(provider, "{{ service }}", name="unknown")
    world.template(provider, "{{ variables.route }}", name="unset")
    world.template(provider, "bad", name="armless")
    status = await world.check(**spec)
    assert status.verdict == "Error"
    assert words in (status.message or "")


async def test_a_check_that_fails_ends_its_other_requests(world: Watched) -> None:
    world.template({"type": "prometheus", "address": "http://127.0.0.1:1"}, "bad", name="armless")
    armless = {**GUARDRAIL, "numerator": {"templateRef": {"name": "armless"}}}
    assert (await world.check(**armless)).verdict == "Error"
    assert [task for task in asyncio.all_tasks() if "MetricCheck" in str(task.get_coro())] == []


async def guard(world: Watched, before: MetricStatus | None, *counts: float, **spec: Any) -> MetricStatus:
    """A check of the guardrail a minute later; counts of bad events and of all, the candidate's first."""
    world.now += timedelta(minutes=1)
    texts = ('bad{arm="candidate"', 'bad{arm="baseline"', 'all{arm="candidate"', 'all{arm="baseline"')
    world.numbers.values = dict(zip(texts, counts, strict=True))
    kept = () if before is None else (before,)
    return await world.check(*kept, **{**GUARDRAIL, **spec})


async def test_a_guardrail_judges_what_counters_gain(world: Watched) -> None:
    first = await guard(world, None, 100, 5, 1000, 9000)
    assert (first.verdict, first.value) == ("Inconclusive", None)
    harmless = await guard(world, first, 101, 14, 1100, 9900)
    assert (harmless.verdict, harmless.samples) == ("Pass", 100)
    bad = await guard(world, harmless, 113, 15, 1200, 10800)
    assert (bad.verdict, bad.samples, bad.threshold) == ("Fail", 200, "less than 20")
    assert bad.value is not None
    assert bad.value > 20
    assert bad.recent == (harmless.value, bad.value)
    assert len(bad.weights) == len(RATIOS)


async def test_a_guardrail_goes_on_where_a_counter_went_back(world: Watched) -> None:
    first = await guard(world, None, 10, 10, 1000, 9000)
    second = await guard(world, first, 12, 12, 1100, 9900)
    restarted = await guard(world, second, 0, 0, 20, 100)
    assert (restarted.verdict, restarted.weights) == ("Inconclusive", second.weights)
    after = await guard(world, restarted, 12, 1, 120, 1000)
    assert (after.verdict, after.samples) == ("Fail", 200)


async def test_a_guardrail_keeps_its_evidence_over_errors(world: Watched) -> None:
    first = await guard(world, None, 0, 0, 0, 0)
    second = await guard(world, first, 4, 1, 100, 900)
    failed = await guard(world, second, 5, 1, 200, 1800, numerator={"templateRef": {"name": "gone"}})
    assert (failed.verdict, failed.weights, failed.counts) == ("Error", second.weights, second.counts)
    assert (await guard(world, failed, 12, 1, 300, 2700)).verdict == "Fail"


async def test_a_new_step_begins_without_evidence(world: Watched) -> None:
    first = await guard(world, None, 0, 0, 0, 0)
    second = await guard(world, first, 5, 1, 100, 900)
    world.step = replace(world.step, served_since=world.now + timedelta(seconds=30))
    third = await guard(world, second, 20, 2, 200, 1800)
    assert (third.verdict, third.weights) == ("Inconclusive", ())


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({'all{arm="candidate"': 5}, "the denominator has no value for {{ arm }} baseline"),
        ({'all{arm="baseline"': 5}, "the denominator has no value for {{ arm }} candidate"),
        ({"all": 5}, "the numerator has no value"),
    ],
)
async def test_a_guardrail_without_data_is_inconclusive(
    world: Watched, counts: dict[str, float], words: str
) -> None:
    world.numbers.values = counts
    status = await world.check(**GUARDRAIL)
    assert status.verdict == "Inconclusive"
    assert words in (status.message or "")


async def test_a_counter_that_one_arm_has_not_yet_is_zero(world: Watched) -> None:
    world.numbers.values = {"all": 100, 'bad{arm="baseline"': 3}
    status = await world.check(**GUARDRAIL)
    assert status.counts == (0, 3, 100, 100, 0)


async def ratio(world: Watched, candidates: float, others: float, **step: Any) -> MetricStatus:
    world.numbers.values = {'users{arm="candidate"': candidates, 'users{arm="baseline"': others}
    return await world.check(type="sampleRatio", templateRef={"name": "users"}, step=step)


async def test_the_ratio_of_users_is_the_step_s_share(world: Watched) -> None:
    right, wrong = await ratio(world, 1000, 9000), await ratio(world, 700, 9300)
    assert (right.verdict, wrong.verdict) == ("Pass", "Fail")
    assert (wrong.samples, wrong.threshold) == (10_000, "less than 1000")


@pytest.mark.parametrize(
    ("candidates", "others", "step", "words"),
    [
        (0, 0, {}, "no users yet"),
        (10, 90, {"share": None}, "audiences get the candidate"),
        (100, 0, {"share": 100.0}, "everybody gets the candidate"),
        (10, 90, {"min_samples": 500}, "100 samples, 500 are needed"),
    ],
)
async def test_a_ratio_that_says_nothing_is_inconclusive(
    world: Watched, candidates: float, others: float, step: dict[str, Any], words: str
) -> None:
    status = await ratio(world, candidates, others, **step)
    assert status.verdict == "Inconclusive"
    assert words in (status.message or "")


async def test_all_metrics_are_asked_and_a_bad_one_hides_no_other(world: Watched) -> None:
    world.numbers.values = {"errors": 0.9, "bad": 0.1}
    metrics = [
        metric_of(name="first", templateRef={"name": "gone"}),
        metric_of(name="second"),
        metric_of(name="third", templateRef={"name": "bad"}),
    ]
    statuses = await MetricChecks(world.objects, world.servers).measure(world.step, metrics, (), NOW, 10)
    assert [(status.name, status.verdict) for status in statuses] == [
        ("first", "Error"), ("second", "Fail"), ("third", "Pass"),
    ]  # fmt: skip


VERDICTS = ("Pass", "Inconclusive", "Error", "Fail")


@pytest.mark.parametrize("one", VERDICTS)
@pytest.mark.parametrize("other", VERDICTS)
def test_the_worst_verdict_counts(one: Any, other: Any) -> None:
    metrics = [metric_of(name="one"), metric_of(name="other"), metric_of(name="dry", dryRun=True)]
    statuses = [
        MetricStatus(name="one", verdict=one),
        MetricStatus(name="other", verdict=other),
        MetricStatus(name="dry", verdict="Fail"),
    ]
    assert worst(metrics, statuses) == max(one, other, key=VERDICTS.index)


def test_a_test_that_failed_stops_the_rollout_at_once() -> None:
    metrics = [metric_of(name="limit"), metric_of(name="guard", **GUARDRAIL)]
    dry = [metric_of(name="guard", dryRun=True, **GUARDRAIL)]
    limit = MetricStatus(name="limit", verdict="Fail")
    guardrail = MetricStatus(name="guard", verdict="Fail")
    assert stops(metrics, [limit]) is None
    assert stops(metrics, [limit, guardrail]) == guardrail
    assert stops(dry, [guardrail]) is None
    assert worst([], []) == "Pass"
