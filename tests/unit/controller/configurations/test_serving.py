"""The leader's sum of what proxies report, beside the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.api.flagreceipt import receipt_name
from controller.api.flagset_status import FlagSetStatus
from controller.api.meta import ObjectKey, Resource
from controller.configurations.live_proxies import LiveProxies
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.object_bounds import WRITTEN
from controller.flagsets.messages import serving_status
from controller.runtime.cache import Cache, Change
from controller.runtime.helpers import TRUSTED, Task
from controller.runtime.result import Settled, settle
from controller.runtime.setbacks import Stalled
from controller.runtime.watches import keys_to_wake
from evaluator.flags.canonical import digest
from tests.statuses import find, read_condition
from tests.worlds.flags import flag_set_of
from tests.worlds.flagsets import BROKEN, START, flag
from tests.worlds.stages import take_turn, written_by

KIND = "FeatureFlagConfiguration"


@dataclass
class ServedObject:
    """One object, its status as it is written, and proxies."""

    spec: dict[str, Any] = field(default_factory=lambda: {"flagSpec": {"flags": {"a": flag()}}})
    now: datetime = START
    generation: int = 1
    status: dict[str, Any] = field(default_factory=dict)
    writes: int = 0
    objects: Cache = field(default_factory=Cache)
    proxies: LiveProxies = field(default_factory=LiveProxies)

    def __post_init__(self) -> None:
        self.reconciler = ConfigurationReconciler(self.objects, ClaimIndex(), self.proxies)

    @property
    def resource(self) -> Resource:
        meta = {"name": "flags", "namespace": "shop", "uid": "u", "generation": self.generation}
        return Resource.of({"kind": KIND, "metadata": meta, "spec": self.spec, "status": self.status})

    @property
    def digest(self) -> str:
        return digest(flag_set_of(self.spec["flagSpec"]))

    def receipt(self, proxy: str, *members: str, serves: str = "", **meta: Any) -> None:
        group = {"digest": serves or self.digest, "count": len(members)}
        self.proxies.track(proxy, 0.0)
        found = Resource.of({
            "kind": "FlagReceipt",
            "metadata": {
                "name": receipt_name("flags", proxy), "namespace": "shop", "uid": proxy,
                "ownerReferences": [{"kind": KIND, "uid": "u"}], **meta,
            },
            "spec": {"configuration": "flags", "proxy": proxy},
            "status": {"digest": self.digest, "groups": [group]},
        })  # fmt: skip
        self.objects.learn(found)

    async def look(self, after: float = 0.0) -> Settled:
        self.now += timedelta(seconds=after)
        settled = (await take_turn(self.reconciler, self.resource, self.now)).settled
        self.writes += settled.status != self.status
        self.status = settled.status
        return settled

    @property
    def propagated(self) -> tuple[str, str]:
        return read_condition(self.status, "Propagated")[:2]


@pytest.fixture
def world() -> ServedObject:
    return ServedObject()


async def test_without_receipts_nothing_is_reported(world: ServedObject) -> None:
    await world.look()
    assert "served" not in world.status
    assert find(world.status, "Propagated") is None


async def test_receipts_of_all_proxies_are_summed_up(world: ServedObject) -> None:
    world.receipt("p1", "a", "b")
    world.receipt("p2", "c")
    await world.look()
    assert (world.status["served"], world.propagated) == ("3/3", ("True", "Served"))


async def test_those_of_a_dead_proxy_count_no_more(world: ServedObject) -> None:
    world.receipt("p1", "a")
    world.receipt("p2", "b")
    await world.look()
    world.proxies.learn({"flagstaff-proxy-p1": "t"}, 100.0)
    await world.look(after=2)
    assert world.status["served"] == "1/1"


@pytest.mark.parametrize(
    "meta",
    [{"ownerReferences": [{"kind": KIND, "uid": "an earlier one"}]}, {"ownerReferences": []}],
    ids=["of an earlier object", "of none"],
)
async def test_a_receipt_of_another_object_of_that_name_is_none(
    world: ServedObject, meta: dict[str, Any]
) -> None:
    world.receipt("p1", "a", **meta)
    await world.look()
    assert "served" not in world.status


async def test_a_receipt_that_cannot_be_read_is_left_out(world: ServedObject) -> None:
    world.receipt("p1", "a")
    world.receipt("p2", "b")
    key = ObjectKey("FlagReceipt", "shop", receipt_name("flags", "p2"))
    found = world.objects.get(key)
    assert found is not None
    world.objects.learn(replace(found, status={"groups": "none"}))
    await world.look()
    assert world.status["served"] == "1/1"


async def test_who_serves_it_is_written_once_a_second_and_at_last_is_right(world: ServedObject) -> None:
    world.receipt("p1", "a")
    await world.look()
    for number in range(1, 10):
        world.receipt("p1", "a", *(f"m{each}" for each in range(number)))
        await world.look(after=0.05)
    assert (world.status["served"], world.writes) == ("1/1", 1)
    assert (await world.look()).requeue_after == pytest.approx(0.55)
    await world.look(after=0.55)
    assert (world.status["served"], world.writes) == ("10/10", 2)


async def test_a_clock_that_is_set_back_holds_up_nothing(world: ServedObject) -> None:
    world.receipt("p1", "a")
    await world.look()
    world.receipt("p1", "a", "b")
    await world.look(after=-100 * 86_400)
    assert world.status["served"] == "2/2"


async def test_the_larger_the_object_the_seldomer_it_is_written(world: ServedObject) -> None:
    large = {f"f{number}": flag(metadata={"x": "y" * 1000}) for number in range(500)}
    world.spec = {"flagSpec": {"flags": large}}
    world.receipt("p1", "a")
    await world.look()
    world.receipt("p1", "a", "b")
    settled = await world.look(after=2)
    assert world.writes == 1
    assert settled.requeue_after is not None
    assert settled.requeue_after > 3


async def test_other_content_is_reported_at_once(world: ServedObject) -> None:
    world.receipt("p1", "a")
    await world.look()
    world.spec, world.generation = {"flagSpec": {"flags": {"b": flag()}}}, 2
    await world.look(after=0.01)
    assert (world.status["served"], world.propagated) == ("0/1", ("False", "Progressing"))
    await world.look(after=20)
    assert world.propagated == ("False", "Lagging")


async def test_nothing_is_written_while_nothing_changes(world: ServedObject) -> None:
    world.receipt("p1", "a")
    for _ in range(5):
        await world.look(after=10)
    assert world.writes == 1


class CountedTasks:
    def __init__(self) -> None:
        self.names: list[str] = []

    async def run(self, task: Task, function: Any, /, *arguments: Any, large: bool = False) -> Any:
        self.names.append(task.name)
        return await TRUSTED.run(task, function, *arguments, large=large)


async def test_a_receipt_is_no_reason_to_judge_the_content_again(world: ServedObject) -> None:
    tasks = CountedTasks()
    world.reconciler = ConfigurationReconciler(world.objects, ClaimIndex(), world.proxies, tasks=tasks)
    for number in range(5):
        world.receipt("p1", *(f"m{each}" for each in range(number)))
        await world.look(after=2)
    assert len(tasks.names) == 1
    world.generation = 2
    await world.look()
    assert len(tasks.names) == 2


async def test_an_unsound_content_is_counted_as_well(world: ServedObject) -> None:
    world.spec = {"flagSpec": {"flags": {"a": flag(), "b": BROKEN}}}
    await world.look()
    world.receipt("p1", "a", serves="sha256:held")
    await world.look(after=2)
    assert (world.status["served"], world.propagated) == ("0/1", ("False", "Progressing"))
    ready = find(world.status, "Ready")
    assert ready is not None
    assert ready["reason"] == "InvalidFlags"


async def test_nothing_is_reported_of_invalid_content_that_no_running_proxy_reports(
    world: ServedObject,
) -> None:
    world.spec = {"flagSpec": {"flags": {"a": flag(), "b": BROKEN}}}
    world.receipt("p1", "a")
    await world.look()
    world.proxies.learn({}, 100.0)
    await world.look(after=2)
    assert "served" not in world.status
    assert find(world.status, "Propagated") is None


async def test_a_shard_that_comes_is_judged(world: ServedObject) -> None:
    world.spec = {"shards": [{"name": "part", "digest": "sha256:1"}]}
    await world.look()
    world.objects.learn(Resource.of({
        "kind": "FlagShard", "metadata": {"name": "part", "namespace": "shop", "resourceVersion": "5"},
        "spec": {"digest": "sha256:1", "flagSpec": {"flags": {"a": flag()}}},
    }))  # fmt: skip
    await world.look()
    ready = find(world.status, "Ready")
    assert ready is not None
    assert ready["status"] == "True"


async def test_a_flag_set_shows_the_counts_of_the_object_that_it_wrote(world: ServedObject) -> None:
    world.receipt("p1", "a")
    await world.look()
    fields, (condition,) = serving_status(world.resource, world.digest, FlagSetStatus())
    assert (fields, condition.status) == (FlagSetStatus(served="1/1"), "True")
    assert (
        serving_status(world.resource, "sha256:another", FlagSetStatus())
        == serving_status(None, world.digest, FlagSetStatus())
        == (FlagSetStatus(), ())
    )


async def test_the_counts_of_each_content_are_reported_once(world: ServedObject) -> None:
    async def reasons() -> list[str]:
        world.now += timedelta(seconds=20)
        result = await world.reconciler.reconcile(world.resource, world.now)
        world.status = settle(world.resource, result, world.now).status
        return [each.reason for each in result.events]

    world.receipt("a", "p1", "p2")
    assert await reasons() == ["Propagated"]
    assert await reasons() == []
    world.reconciler = ConfigurationReconciler(world.objects, ClaimIndex(), world.proxies)
    assert await reasons() == []


async def test_beyond_the_bound_of_a_flag_set_the_newest_object_is_stalled_until_another_is_deleted() -> None:
    objects = Cache(CONFIGURATIONS.indexes)
    document = {"flagSpec": {"flags": {"a": flag()}}}
    owned = []
    for number in range(WRITTEN.most + 1):
        meta = {"name": f"o{number:02}", "namespace": "shop", "uid": str(number), **written_by("set")}
        owned.append(Resource.of({"kind": KIND, "metadata": meta, "spec": document}))
    for resource in owned:
        objects.put(resource)
    reconciler = ConfigurationReconciler(objects, ClaimIndex())
    result = await reconciler.reconcile(owned[-1], START)
    assert isinstance(result.outcome, Stalled)
    assert result.outcome.reason == "TooManyObjects"
    assert (await reconciler.reconcile(owned[0], START)).kind == "success"
    objects.forget(owned[0].key)
    assert owned[-1].key in keys_to_wake([CONFIGURATIONS], objects, Change(owned[0], None))
    assert (await reconciler.reconcile(owned[-1], START)).kind == "success"
