"""What is large, or takes too long, is read in a helper process, which ends with it."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import Resource
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.remote_providers import judge_answer
from controller.configurations.validation import ContentVerdict, validate_and_measure
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import RemoteAnswer
from controller.runtime.cache import Cache
from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import SMALL, Helpers, HelperTasks, Task
from controller.runtime.limits import Places
from controller.runtime.setbacks import Failed, Passing, Setback, Stalled
from evaluator.flags.accept import NO_PROGRESS
from evaluator.flags.merge import parse
from tests.worlds.flagsets import BROKEN, flag
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TASK = Task("shop", "reading x", "make it smaller")
LARGE = {"flags": {f"flag-{number}": flag() for number in range(2_000)}}


@pytest.fixture
async def helpers() -> AsyncIterator[Helpers]:
    helpers = Helpers()
    yield helpers
    await helpers.close()


def configuration(document: dict[str, Any]) -> Resource:
    return thing("FeatureFlagConfiguration", "x", {"flagSpec": document})


def reconciler(helpers: Helpers, **limits: Any) -> ConfigurationReconciler:
    tasks = HelperTasks(helpers, Places(2), TaskLimits(**limits))
    return ConfigurationReconciler(Cache(), ClaimIndex(), tasks=tasks)


@pytest.mark.parametrize(
    "document", [LARGE, {"flags": {**LARGE["flags"], "bad": BROKEN}}], ids=["sound", "bad"]
)
async def test_a_large_object_is_judged_in_a_helper_as_it_is_judged_here(
    helpers: Helpers, document: dict[str, Any]
) -> None:
    resource = configuration(document)
    result = await reconciler(helpers).reconcile(resource, NOW)
    assert helpers.started == 1
    here, _ = validate_and_measure(resource, {}, NO_PROGRESS)
    assert repr(result.outcome) == repr(here.outcome)
    assert result.status == here.status


async def test_a_small_object_needs_no_helper(helpers: Helpers) -> None:
    result = await reconciler(helpers).reconcile(configuration({"flags": {"a": flag()}}), NOW)
    assert result.status is not None
    assert helpers.started == 0


async def test_an_object_that_takes_too_much_is_stalled_and_not_read_again(helpers: Helpers) -> None:
    judge = reconciler(helpers, memory_bytes=1_000_000)
    resource = configuration({"flags": {f"flag-{number}": flag() for number in range(20_000)}})
    for _ in range(2):
        result = await judge.reconcile(resource, NOW)
        assert isinstance(result.outcome, Stalled)
        assert result.outcome.reason == "LimitExceeded"
        assert "needs more memory than it may use (1000000 bytes)" in result.outcome.message
    assert helpers.started == 1


async def test_a_large_answer_of_a_provider_is_read_and_judged_in_a_helper(helpers: Helpers) -> None:
    content = json.dumps(LARGE).encode()
    assert len(content) > SMALL
    answer = RemoteAnswer(partial(parse, content, file="flags.json"))
    tasks = HelperTasks(helpers, Places(2))
    arguments = configuration(LARGE), answer, None, dict[str, Resource | None]()
    judged = await tasks.run(TASK, judge_answer, *arguments)
    assert helpers.started == 1
    assert judged == judge_answer(*arguments)


async def test_an_answer_that_takes_too_long_ends_with_its_helper(helpers: Helpers) -> None:
    names = ", ".join(f'"stat{at}": 1, "variant{at}": 2' for at in range(150_000))
    answer = RemoteAnswer(partial(parse, f'{{"flags": {{"a": {{{names}}}}}}}'.encode(), file="flags.json"))
    tasks = HelperTasks(helpers, Places(2), TaskLimits(cpu_seconds=0.1))
    with pytest.raises(Stalled, match=r"reading x needs more CPU time .*; make it smaller"):
        await tasks.run(TASK, judge_answer, configuration(LARGE), answer, None, {})


async def test_what_is_larger_than_it_is_sent_is_read_in_a_helper_however_small(helpers: Helpers) -> None:
    answer = RemoteAnswer(partial(parse, b'{"flags": {}}', file="flags.json"), large=True)
    tasks = HelperTasks(helpers, Places(2))
    await tasks.run(TASK, judge_answer, configuration(LARGE), answer, None, {}, large=answer.large)
    assert helpers.started == 1


async def test_a_setback_of_a_helper_is_the_one_that_is_raised_here(helpers: Helpers) -> None:
    answer = RemoteAnswer(partial(parse, b"[]", file="flags.json"))
    tasks = HelperTasks(helpers, Places(2))
    with pytest.raises(Failed, match="a document must be an object") as met:
        await tasks.run(TASK, judge_answer, configuration(LARGE), answer, None, {}, large=True)
    assert met.value.reason == "InvalidFlags"


@pytest.mark.parametrize("kind", [Stalled, Failed, Passing])
def test_a_setback_crosses_to_another_process_whole(kind: type[Setback]) -> None:
    verdict = ContentVerdict(kind("Reason", "message", delay=3.0))
    copied = pickle.loads(pickle.dumps(verdict)).outcome  # noqa: S301 - of this test
    assert (type(copied), copied.reason, copied.message, copied.delay) == (kind, "Reason", "message", 3.0)
    assert str(copied) == "message"
