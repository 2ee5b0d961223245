"""The loop: the newest object, a reconcile, one write of status."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.artifact_status import ArtifactStatus
from controller.api.fields import InvalidSpecError
from controller.api.flagsource import FlagSourceStatus
from controller.api.meta import REQUESTED_AT, ObjectKey, Resource
from controller.runtime.cache import Cache
from controller.runtime.loop import Loop, LoopTiming, Outputs
from controller.runtime.queue import KeyedQueue
from controller.runtime.result import Done, Result
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.runtime.shards import WHOLE, Shard
from evaluator.host.backoff import Backoff
from evaluator.host.logs import JsonLines
from tests.statuses import find, read_condition
from tests.waiting import run_beside as beside
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.runtime.event import Event

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ObjectKey("FlagSource", "shop", "flags")
DONE = Result(Done("done"))
USUAL = LoopTiming()
AT_ONCE = LoopTiming(slow=0.0)
"""Every reconcile is slow."""


def resource_at(
    version: int = 1, *, generation: int = 1, uid: str = "u", name: str = "flags", **more: Any
) -> Resource:
    status = {"observedGeneration": -1}
    key = replace(KEY, name=name)
    return Resource(key, uid, generation, str(version), status=status, **more)


@dataclass
class ScriptedReconciler:
    """Returns the results that are set, and notes what it was given."""

    results: list[Result | Exception] = field(default_factory=list)
    given: list[Resource] = field(default_factory=list)
    forgotten: list[ObjectKey] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Where there is one, a reconcile lasts until it is set."""
    working: list[ObjectKey] = field(default_factory=list)
    twice: bool = False

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        assert now == NOW
        self.twice |= resource.key in self.working
        self.working.append(resource.key)
        self.given.append(resource)
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self.working.remove(resource.key)
        result = self.results.pop(0) if self.results else DONE
        if isinstance(result, Exception):
            raise result
        return result

    def forget(self, key: ObjectKey) -> None:
        self.forgotten.append(key)


@dataclass
class ApiServer:
    """Takes statuses as the API server does, and may refuse or prune them."""

    objects: Cache
    written: list[Mapping[str, Any]] = field(default_factory=list)
    written_of: list[Resource] = field(default_factory=list)
    said: list[Event] = field(default_factory=list)
    written_when_said: list[int] = field(default_factory=list)
    refuse: list[Setback] = field(default_factory=list)
    prunes: bool = False
    gone: bool = False

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        await asyncio.sleep(0)
        if self.refuse:
            raise self.refuse.pop(0)
        self.written.append(status)
        self.written_of.append(resource)
        if self.gone:
            return None
        version = str(int(resource.resource_version) + 1)
        return replace(resource, status={} if self.prunes else status, resource_version=version)

    def accept(self, event: Event) -> None:
        self.said.append(event)
        self.written_when_said.append(len(self.written))


@dataclass
class Counting:
    results: list[str] = field(default_factory=list)

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None:
        assert seconds >= 0
        self.results.append(result)


class RunLoop:
    """A loop and all that it touches; backoff is too short to be noticed."""

    def __init__(
        self,
        *results: Result | Exception,
        places: int = 4,
        timing: LoopTiming = USUAL,
        backoff: float = 0.001,
        shard: Shard = WHOLE,
    ) -> None:
        self.reconciler = ScriptedReconciler(list(results))
        self.objects = Cache()
        self.server = ApiServer(self.objects)
        self.observer = Counting()
        time = asyncio.get_running_loop().time
        queue: KeyedQueue[ObjectKey] = KeyedQueue(
            time, lambda: 0.0, Backoff(first=backoff), places=places, group=lambda key: key.namespace
        )
        self.loop = Loop(
            self.reconciler, self.objects, Outputs(self.server, self.observer, (self.server,)),
            now=lambda: NOW, queue=queue, timing=timing, shard=shard,
        )  # fmt: skip

    def see(self, resource: Resource) -> None:
        if self.objects.learn(resource):
            self.loop.wake(resource.key)

    async def settled_of(self, namespace: str) -> None:
        await until(lambda: namespace in {each.namespace for each in self.server.written_of})

    async def wait_settled(self, times: int) -> None:
        """Wait until so many reconciles have ended and nothing is under way."""
        await until(lambda: len(self.observer.results) >= times and not self.loop.queue.busy)


@asynccontextmanager
async def run_loop(around: RunLoop) -> AsyncIterator[RunLoop]:
    async with beside(around.loop.run()):
        yield around


def ready(status: Mapping[str, Any]) -> tuple[str, str]:
    return read_condition(status)[:2]


async def test_an_object_is_reconciled_and_its_status_written_once() -> None:
    async with run_loop(RunLoop()) as around:
        around.see(resource_at())
        await around.wait_settled(1)
        around.loop.wake(KEY)
        await around.wait_settled(2)
        assert [ready(each) for each in around.server.written] == [("True", "Succeeded")]
        assert around.reconciler.given[1].status == around.server.written[0]


async def test_an_object_of_another_shard_is_neither_reconciled_nor_counted() -> None:
    async with run_loop(RunLoop(shard=Shard.of("shard=a", ()))) as around:
        around.see(resource_at(name="theirs", labels={"shard": "b"}))
        around.see(resource_at(labels={"shard": "a"}))
        await around.wait_settled(1)
        assert [each.name for each in around.reconciler.given] == ["flags"]


async def test_an_object_that_moves_to_another_shard_during_its_reconcile_gets_no_status_from_here() -> None:
    around = RunLoop(shard=Shard.of("shard=a", ()))
    around.reconciler.gate = asyncio.Event()
    async with run_loop(around):
        around.see(resource_at(labels={"shard": "a"}))
        await until(lambda: around.reconciler.working)
        around.objects.learn(resource_at(2, labels={"shard": "b"}))
        around.reconciler.gate.set()
        await until(lambda: not around.loop.queue.busy)
        assert (around.server.written, around.observer.results) == ([], [])
        assert around.reconciler.forgotten == [KEY]


async def test_each_setback_counts_as_what_it_is_and_its_event_comes_before_the_status() -> None:
    async with run_loop(RunLoop(Stalled("A", "a"), DONE)) as around:
        around.see(resource_at())
        await around.wait_settled(1)
        around.loop.wake(KEY)
        await around.wait_settled(2)
        assert around.observer.results == ["stalled", "success"]
        assert [each.reason for each in around.server.said] == ["A", "Recovered"]
        assert around.server.written_when_said == [0, 1]


async def test_each_event_is_one_line_of_the_log_with_its_object_and_revision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    artifact = ArtifactStatus(url="http://x", revision="main@sha1:r1", digest="sha256:a")
    failed = Result.of(Stalled("A", "a"), status=FlagSourceStatus(artifact=artifact))
    async with run_loop(RunLoop(failed)) as around:
        around.see(resource_at())
        await around.wait_settled(1)
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert {name: line[name] for name in ("level", "message", "object", "revision")} == {
        "level": "warning",
        "message": "A: a",
        "object": "FlagSource/shop/flags",
        "revision": "main@sha1:r1",
    }


async def test_a_reconcile_that_is_repeated_after_a_crash_gives_the_same_events() -> None:
    events = []
    for _ in range(2):
        async with run_loop(RunLoop(Stalled("A", "a"))) as around:
            around.server.refuse = [KeyError("the crash")]  # type: ignore[list-item]
            around.see(resource_at())
            await until(lambda: not around.server.refuse)
            events.append(around.server.said[0])
            assert around.server.written == []
    assert events[0] == events[1]


async def test_the_same_failure_after_a_recovery_is_another_event() -> None:
    async with run_loop(RunLoop(Stalled("A", "a"), DONE, Stalled("A", "a"))) as around:
        around.see(resource_at())
        for times in (1, 2, 3):
            around.loop.wake(KEY)
            await around.wait_settled(times)
        first, recovered, second = around.server.said
        assert [each.reason for each in around.server.said] == ["A", "Recovered", "A"]
        assert len({first.key, recovered.key, second.key}) == 3


async def test_a_failure_is_tried_again_until_it_works() -> None:
    async with run_loop(RunLoop(Failed("A", "a"), Failed("A", "a"), DONE)) as around:
        around.see(resource_at())
        await around.wait_settled(3)
        assert around.observer.results == ["failed", "failed", "success"]
        assert [each.reason for each in around.server.said] == ["A", "Recovered"]


async def test_an_unexpected_error_is_a_failure_that_shows_no_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with run_loop(RunLoop(RuntimeError("a secret"))) as around:
        around.see(resource_at())
        await around.wait_settled(2)
        assert ready(around.server.written[0]) == ("False", "InternalError")
        assert "a secret" not in str(around.server.written)
        assert "failed unexpectedly" in caplog.text


async def test_a_look_is_taken_again_after_the_time_that_was_asked_for() -> None:
    async with run_loop(RunLoop(Result(Done("done"), requeue_after=0.001))) as around:
        around.see(resource_at())
        await around.wait_settled(2)
        assert len(around.server.written) == 1


@pytest.mark.parametrize(
    "resource",
    [resource_at(deleting=True), resource_at(spec={"suspend": True})],
    ids=["deleted", "suspended"],
)
async def test_some_are_left_alone(resource: Resource) -> None:
    async with run_loop(RunLoop(places=1)) as around:
        around.see(resource)
        around.see(resource_at(name="other"))
        await around.wait_settled(1)
        assert [each.name for each in around.reconciler.given] == ["other"]


async def test_one_key_is_never_reconciled_twice_at_once() -> None:
    async with run_loop(RunLoop(places=8)) as around:
        gate = around.reconciler.gate = asyncio.Event()
        around.see(resource_at())
        await until(lambda: len(around.reconciler.given) == 1)
        for version in range(2, 30):
            around.see(resource_at(version, generation=version))
            await asyncio.sleep(0)
        gate.set()
        await around.wait_settled(2)
        assert not around.reconciler.twice
        assert [each.generation for each in around.reconciler.given] == [1, 29]


async def test_others_do_not_wait_for_one_that_is_slow() -> None:
    async with run_loop(RunLoop()) as around:
        around.reconciler.gate = asyncio.Event()
        around.see(resource_at())
        await until(lambda: len(around.reconciler.given) == 1)
        around.reconciler.gate = None
        around.see(resource_at(name="other"))
        await until(lambda: bool(around.server.written))
        assert [each.name for each in around.reconciler.given] == ["flags", "other"]


async def test_a_namespace_whose_objects_take_for_ever_leaves_places_to_the_others() -> None:
    async with run_loop(RunLoop()) as around:
        gate = around.reconciler.gate = asyncio.Event()
        for number in range(20):
            around.see(resource_at(name=str(number)))
        await until(lambda: len(around.reconciler.working) == 2)
        around.reconciler.gate = None
        around.see(replace(resource_at(), key=replace(KEY, namespace="other")))
        await around.settled_of("other")
        assert len(around.reconciler.working) == 2
        gate.set()
        await around.wait_settled(21)


async def test_a_loop_that_was_stopped_at_any_moment_takes_up_its_work_again() -> None:
    around = RunLoop(places=1)
    for steps in range(6):
        around.reconciler.working.clear()
        async with run_loop(around):
            around.see(resource_at(steps + 1))
            for _ in range(steps):
                await asyncio.sleep(0)
        around.loop.wake(KEY)
    before = len(around.observer.results)
    async with run_loop(around):
        await around.wait_settled(before + 1)


async def test_an_object_that_went_leaves_no_count_of_failures() -> None:
    async with run_loop(RunLoop()) as around:
        first = around.loop.queue.put_after_failure(KEY)
        await until(lambda: around.loop.queue.put_after_failure(KEY) == first)
        assert around.reconciler.given == []


async def test_a_spec_that_changed_meanwhile_is_judged_by_the_next_reconcile() -> None:
    async with run_loop(RunLoop()) as around:
        around.reconciler.gate = asyncio.Event()
        around.see(resource_at(1, generation=1))
        await until(lambda: bool(around.reconciler.given))
        around.see(resource_at(5, generation=2))
        around.reconciler.gate.set()
        await around.wait_settled(2)
        assert [each["observedGeneration"] for each in around.server.written] == [1, 2]


async def test_changes_that_come_late_change_nothing() -> None:
    objects = Cache()
    assert objects.learn(resource_at(7, generation=3))
    assert not objects.learn(resource_at(6, generation=2))
    assert objects.learn(resource_at(7, generation=3))
    assert objects.learn(resource_at(1, uid="made again"))
    found = objects.get(KEY)
    assert found is not None
    assert found.uid == "made again"


def test_objects_are_found_by_kind_and_forgotten() -> None:
    objects = Cache()
    objects.learn(resource_at())
    objects.learn(replace(resource_at(), key=ObjectKey("FlagSet", "shop", "flags")))
    assert [each.key.kind for each in objects.of_kind("FlagSet")] == ["FlagSet"]
    objects.forget(KEY)
    objects.forget(KEY)
    assert [each.key.kind for each in objects] == ["FlagSet"]


async def test_a_slow_reconcile_says_so_meanwhile() -> None:
    async with run_loop(RunLoop(timing=AT_ONCE)) as around:
        around.reconciler.gate = asyncio.Event()
        around.see(resource_at())
        await until(lambda: bool(around.server.written))
        assert ready(around.server.written[0]) == ("Unknown", "Progressing")
        around.reconciler.gate.set()
        await around.wait_settled(1)
        assert ready(around.server.written[-1]) == ("True", "Succeeded")
        assert find(around.server.written[-1], "Reconciling") is None


READY = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "done"}
HANDLED = {"observedGeneration": 1, "conditions": [READY], "lastHandledReconcileAt": "noon"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, False),
        ({"annotations": {REQUESTED_AT: "noon"}}, False),
        ({"annotations": {REQUESTED_AT: "one"}}, True),
        ({"generation": 2}, True),
        ({"status": {**HANDLED, "conditions": [{**READY, "status": "False"}]}}, True),
        ({"status": {}}, True),
    ],
    ids=["steady", "request done", "requested", "another spec", "not ready", "new"],
)
async def test_a_slow_reconcile_is_logged_only_where_something_is_to_be_done(
    changed: dict[str, Any], said: bool
) -> None:
    async with run_loop(RunLoop(timing=AT_ONCE)) as around:
        gate = around.reconciler.gate = asyncio.Event()
        around.see(replace(replace(resource_at(), status=HANDLED), **changed))
        await until(lambda: bool(around.reconciler.given))
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await around.wait_settled(1)
        assert any(find(each, "Reconciling") for each in around.server.written) is said


async def test_a_quick_one_does_not() -> None:
    async with run_loop(RunLoop()) as around:
        around.see(resource_at())
        await around.wait_settled(1)
        assert len(around.server.written) == 1


async def test_where_that_cannot_be_said_the_reconcile_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with run_loop(RunLoop(timing=AT_ONCE)) as around:
        around.reconciler.gate = asyncio.Event()
        around.server.refuse = [Failed("ApiServerUnavailable", "away")]
        around.see(resource_at())
        await until(lambda: "away" in caplog.text)
        around.reconciler.gate.set()
        await around.wait_settled(1)
        assert [ready(each) for each in around.server.written] == [("True", "Succeeded")]


async def test_a_status_that_was_not_taken_is_tried_again_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with run_loop(RunLoop()) as around:
        around.server.refuse = [Failed("ApiServerUnavailable", "the API server: away")]
        around.see(resource_at())
        await around.wait_settled(2)
        assert [ready(each) for each in around.server.written] == [("True", "Succeeded")]
        assert "the API server: away" in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_status_that_does_not_fit_is_tried_after_a_change_and_not_as_often_as_in_an_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at_once = LoopTiming(most_unwritten=0.0)
    async with run_loop(RunLoop(timing=at_once, backoff=900.0)) as around:
        around.server.refuse = [Stalled("InvalidObject", "FlagSet flags is too large for the cluster")]
        around.see(resource_at())
        await around.wait_settled(1)
        assert around.server.written == []
        assert "FlagSet flags is too large" in caplog.text
        around.see(resource_at(2, generation=2))
        await around.wait_settled(2)
        assert [ready(each) for each in around.server.written] == [("True", "Succeeded")]


async def test_a_loop_that_fails_itself_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with run_loop(RunLoop(places=1)) as around:
        around.server.refuse = [KeyError("a bug")]  # type: ignore[list-item]  # what no writer should raise
        around.see(resource_at())
        await around.wait_settled(2)
        assert len(around.server.written) == 1
        assert "the status was not written: KeyError" in caplog.text


async def test_what_went_while_it_was_worked_on_leaves_nothing_behind() -> None:
    async with run_loop(RunLoop()) as around:
        around.reconciler.gate = asyncio.Event()
        around.see(resource_at())
        await until(lambda: bool(around.reconciler.given))
        around.objects.forget(KEY)
        around.loop.forget(KEY)
        around.reconciler.gate.set()
        await until(lambda: len(around.reconciler.forgotten) == 2)
        assert around.server.written == []
        assert around.observer.results == []


async def test_an_object_that_was_made_again_meanwhile_does_not_get_the_old_status() -> None:
    async with run_loop(RunLoop()) as around:
        around.reconciler.gate = asyncio.Event()
        around.see(resource_at())
        await until(lambda: bool(around.reconciler.given))
        around.see(resource_at(9, uid="made again"))
        around.reconciler.gate.set()
        await around.wait_settled(1)
        assert [each.uid for each in around.reconciler.given] == ["u", "made again"]
        assert len(around.server.written) == 1


async def test_a_status_of_what_is_gone_is_no_failure() -> None:
    async with run_loop(RunLoop()) as around:
        around.server.gone = True
        around.see(resource_at())
        await around.wait_settled(1)
        assert around.observer.results == ["success"]


async def test_pruned_statuses_are_reported_once_and_none_is_written_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    results = (DONE, DONE, Stalled("A", "a"), Stalled("A", "a"), DONE)
    async with run_loop(RunLoop(*results, places=1)) as around:
        around.server.prunes = True
        around.see(resource_at())
        around.see(resource_at(name="other"))
        await around.wait_settled(2)
        for times in (3, 4, 5):
            around.loop.wake(KEY)
            await around.wait_settled(times)
        assert len(around.server.written) == 1
        assert caplog.text.count("no status field for our status") == 1
        assert [each.reason for each in around.server.said] == ["A", "Recovered"]
        around.objects.forget(KEY)
        around.loop.forget(KEY)
        around.see(resource_at(uid="made again"))
        await around.wait_settled(6)
        assert around.reconciler.given[-1].status == {"observedGeneration": -1}


@pytest.mark.parametrize("how", ["relisted", "later"])
async def test_once_there_is_room_for_statuses_all_are_written(how: str) -> None:
    timing = LoopTiming() if how == "relisted" else LoopTiming(room_again=0.05)
    async with run_loop(RunLoop(places=1, timing=timing)) as around:
        around.server.prunes = True
        around.see(resource_at())
        around.see(resource_at(name="other"))
        await around.wait_settled(2)
        around.server.prunes = False
        if how == "relisted":
            around.loop.on_relist()
        await until(lambda: all(each.status.get("conditions") for each in around.objects))


async def test_while_there_is_no_room_one_status_is_tried_once_in_a_while() -> None:
    async with run_loop(RunLoop(places=1)) as around:
        around.server.prunes = True
        around.see(resource_at())
        around.see(resource_at(name="other"))
        await around.wait_settled(2)
        around.loop.on_relist()
        await around.wait_settled(4)
        assert len(around.server.written) == 2


async def test_a_spec_is_read_in_a_thread_before_it_is_reconciled() -> None:
    async with run_loop(RunLoop()) as around:
        around.see(resource_at(spec={"interval": "1h" * 100_000}))
        await around.wait_settled(1)
        given = around.reconciler.given[0].parsed_spec
        assert isinstance(given, InvalidSpecError)
        assert len(str(given)) < 5_000
