"""Keys in their time, each by one worker."""

from __future__ import annotations

import asyncio
import math
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.runtime.queue import KeyedQueue, RetryLater
from controller.runtime.setbacks import Failed, Setback
from evaluator.host.backoff import Backoff
from tests.clock import Clock
from tests.waiting import until


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def queue(clock: Clock) -> KeyedQueue[str]:
    return KeyedQueue(clock, lambda: 0.0)


def ready(queue: KeyedQueue[str]) -> list[str]:
    """All keys that a worker could take now, in their order."""
    found = []
    while True:
        take = queue.take()
        try:
            take.send(None)
        except StopIteration as stopped:
            found.append(stopped.value)
        else:
            take.close()
            return found


async def test_keys_come_in_the_order_of_their_times(queue: KeyedQueue[str], clock: Clock) -> None:
    for key, delay in (("late", 9.0), ("first", 0.0), ("second", 0.0), ("soon", 1.0)):
        queue.put(key, delay)
    assert ready(queue) == ["first", "second"]
    clock.now += 10
    assert ready(queue) == ["soon", "late"]


async def test_a_key_that_is_put_twice_comes_once_and_at_the_earlier_time(
    queue: KeyedQueue[str], clock: Clock
) -> None:
    queue.put("a", 5.0)
    queue.put("a", 1.0)
    queue.put("a", 9.0)
    clock.now += 1
    assert ready(queue) == ["a"]
    queue.release("a")
    clock.now += 100
    assert ready(queue) == []


async def test_a_key_that_a_worker_has_waits_for_it_while_others_go_on(queue: KeyedQueue[str]) -> None:
    queue.put("a")
    assert ready(queue) == ["a"]
    queue.put("a")
    queue.put("b")
    assert ready(queue) == ["b"]
    queue.release("a")
    assert ready(queue) == ["a"]


async def test_a_worker_that_waits_takes_what_comes(queue: KeyedQueue[str]) -> None:
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.put("a")
    assert await taking == "a"


async def test_a_worker_that_waits_for_a_time_notices_an_earlier_one() -> None:
    queue: KeyedQueue[str] = KeyedQueue(asyncio.get_running_loop().time, lambda: 0.0)
    queue.put("a", 3600.0)
    taking = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    queue.put("a", 0.01)
    assert await taking == "a"


async def test_every_waiting_worker_gets_a_key_of_its_own(queue: KeyedQueue[str]) -> None:
    taking = [asyncio.create_task(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in "abc":
        queue.put(key)
    assert sorted(await asyncio.gather(*taking)) == ["a", "b", "c"]


async def test_what_is_forgotten_comes_no_more(queue: KeyedQueue[str], clock: Clock) -> None:
    queue.put("a")
    queue.forget("a")
    queue.forget("a")
    clock.now += 1
    assert ready(queue) == []


async def test_failures_wait_ever_longer_until_one_success(queue: KeyedQueue[str]) -> None:
    assert [queue.put_after_failure("a") for _ in range(3)] == [0.75, 1.5, 3.0]
    queue.reset_backoff("a")
    assert queue.put_after_failure("a") == 0.75
    assert queue.put_after_failure("b") == 0.75


async def test_a_failing_object_is_reconciled_at_once_when_something_changes(queue: KeyedQueue[str]) -> None:
    for _ in range(9):
        queue.put_after_failure("a")
    queue.put("a")
    assert ready(queue) == ["a"]


async def test_its_length_is_what_is_due(queue: KeyedQueue[str], clock: Clock) -> None:
    queue.put("a")
    queue.put("b", 5.0)
    assert len(queue) == 1
    clock.now += 5
    assert len(queue) == 2


class Name(str):
    """A key that shows whether anybody still holds it."""

    __slots__ = ("__weakref__",)


async def test_a_key_that_is_moved_forward_often_leaves_no_entries_behind(clock: Clock) -> None:
    queue: KeyedQueue[Name] = KeyedQueue(clock, lambda: 0.0)
    keys: list[weakref.ref[Name]] = []
    for _ in range(1000):
        late, soon = Name("a"), Name("a")
        queue.put(late, 600.0)
        queue.put(soon)
        queue.release(await queue.take())
        keys.append(weakref.ref(late))
    assert sum(key() is not None for key in keys) < 100


@pytest.fixture
def shared(clock: Clock) -> KeyedQueue[str]:
    """Four places; a key's first letter is its group."""
    return KeyedQueue(clock, lambda: 0.0, places=4, group=lambda key: key[0])


async def test_a_group_leaves_places_to_others_and_goes_on_as_they_are_given_back(
    shared: KeyedQueue[str],
) -> None:
    for key in ("a1", "a2", "a3", "b1"):
        shared.put(key)
    assert ready(shared) == ["a1", "b1", "a2"]
    shared.release("a1")
    assert ready(shared) == ["a3"]


async def test_what_waits_for_a_place_is_due_and_can_be_forgotten(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3", "a4"):
        shared.put(key)
    assert ready(shared) == ["a1", "a2"]
    shared.forget("a3")
    assert len(shared) == 1
    shared.release("a1")
    assert ready(shared) == ["a4"]


async def test_a_key_that_comes_again_while_it_is_out_waits_behind_its_group(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3"):
        shared.put(key)
    assert ready(shared) == ["a1", "a2"]
    shared.put("a1")
    assert ready(shared) == []
    shared.release("a1")
    shared.release("a2")
    assert ready(shared) == ["a3", "a1"]


@pytest.mark.parametrize("state", ["waits for its time", "is due", "is out", "is out again"])
async def test_nothing_is_kept_of_a_key_that_is_forgotten(clock: Clock, state: str) -> None:
    queue: KeyedQueue[Name] = KeyedQueue(clock, lambda: 0.0, places=4, group=lambda key: key[0])
    key = Name("a1")
    queue.put_after_failure(key, 5.0)
    clock.now += 0.0 if state == "waits for its time" else 5.0
    if state.startswith("is out"):
        assert await queue.take() is key
    if state == "is out again":
        queue.put(key)
        queue.put(Name("a2"))
        assert await queue.take() == "a2"
    queue.forget(key)
    queue.release(key)
    clock.now += 60.0
    queue.put(Name("a3"))
    assert await queue.take() == "a3"
    held = weakref.ref(key)
    del key
    assert held() is None


class Handler:
    """Fails as it is told, and notes when each key came."""

    def __init__(self, queue: KeyedQueue[str], *errors: Exception) -> None:
        self.queue = queue
        self.errors = list(errors)
        self.calls: list[str] = []
        self.failures: list[tuple[str, str]] = []

    async def __call__(self, key: str) -> None:
        self.calls.append(key)
        if self.errors:
            raise self.errors.pop(0)

    def note_failure(self, key: str, setback: Setback) -> None:
        self.failures.append((key, setback.reason))

    async def work(self, longest: float = math.inf) -> None:
        """Work on all that is due."""
        task = asyncio.create_task(self.queue.work(self, self.note_failure, longest=longest))
        await until(lambda: not self.queue.busy)
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (Failed("Refused", "no"), [("a", "Refused")]),
        (KeyError("a bug"), [("a", "InternalError")]),
        (RetryLater(), []),
    ],
    ids=["setback", "exception", "reported by itself"],
)
async def test_a_key_whose_handler_raises_comes_again_after_its_backoff(
    queue: KeyedQueue[str], clock: Clock, error: Exception, reported: list[tuple[str, str]]
) -> None:
    handler = Handler(queue, error, error)
    queue.put("a")
    for seconds in (0.0, 0.5, 0.25, 1.0, 0.5, 60.0):
        clock.now += seconds
        await handler.work()
    assert (len(handler.calls), handler.failures) == (3, reported * 2)
    # After a success the backoff is short again.
    assert queue.put_after_failure("a") == 0.75


async def test_a_setback_waits_no_longer_than_the_bound(queue: KeyedQueue[str], clock: Clock) -> None:
    handler = Handler(queue, *[Failed("Refused", "no")] * 9)
    queue.put("a")
    for _ in range(10):
        await handler.work(longest=2.0)
        clock.now += 2.0
    assert len(handler.calls) == 10


async def test_other_keys_are_worked_on_while_one_takes_long(queue: KeyedQueue[str]) -> None:
    gate, came = asyncio.Event(), list[str]()

    async def handler(key: str) -> None:
        came.append(key)
        if key == "slow":
            await gate.wait()

    queue.put("slow")
    task = asyncio.create_task(queue.work(handler, lambda _key, _setback: None))
    await until(lambda: came == ["slow"])
    queue.put("slow")
    queue.put("quick")
    await until(lambda: came == ["slow", "quick"])
    gate.set()
    await until(lambda: came == ["slow", "quick", "slow"])
    task.cancel()
    await asyncio.wait([task])


async def test_a_key_that_no_worker_holds_frees_no_place_when_it_is_done(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3"):
        shared.put(key)
    shared.release("a1")
    assert ready(shared) == ["a1", "a2"]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_backoff_stays_between_its_bounds(failures: int, random: float) -> None:
    backoff = Backoff()
    delay = backoff.delay(failures, random)
    assert backoff.first * (1 - backoff.jitter) <= delay <= backoff.most


def test_a_backoff_grows_to_the_most_and_is_spread() -> None:
    backoff = Backoff(first=1.0, most=60.0, jitter=0.2)
    assert [backoff.delay(n, 0.0) for n in (1, 2, 6, 7, 99)] == [1.0, 2.0, 32.0, 60.0, 60.0]
    assert backoff.delay(1, 1.0) == 0.8


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "take", "done", "wait", "forget"]),
        st.sampled_from("abc"),
        st.sampled_from([0.0, 1.0, 5.0]),
    ),
    max_size=60,
)


@settings(max_examples=100)
@given(steps)
async def test_no_key_is_ever_with_two_workers_and_none_is_lost(steps: list[tuple[str, str, float]]) -> None:
    clock, wanted, taken = Clock(), set[str](), set[str]()
    queue: KeyedQueue[str] = KeyedQueue(clock, lambda: 0.0)
    for step, key, delay in steps:
        if step == "put":
            queue.put(key, delay)
            wanted.add(key)
        elif step == "done":
            queue.release(key)
            taken.discard(key)
        elif step == "forget":
            queue.forget(key)
            wanted.discard(key)
        elif step == "wait":
            clock.now += delay
        else:
            found = ready(queue)
            assert not taken & set(found)
            assert len(found) == len(set(found))
            assert wanted >= set(found)
            taken.update(found)
            wanted.difference_update(found)
    for key in "abc":
        queue.release(key)
    clock.now += 10
    assert set(ready(queue)) == wanted


def test_a_wait_after_a_failure_may_be_bounded() -> None:
    queue: KeyedQueue[str] = KeyedQueue(lambda: 0.0, lambda: 0.0, Backoff(first=1.0, most=900.0))
    assert [queue.put_after_failure("a", 3.0) for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
