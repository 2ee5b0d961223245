"""Keys in their time, each by one worker."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.runtime.reconciling.queue import Backoff, KeyedQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
    queue.done("a")
    clock.now += 100
    assert ready(queue) == []


async def test_a_key_that_a_worker_has_waits_for_it_while_others_go_on(queue: KeyedQueue[str]) -> None:
    queue.put("a")
    assert ready(queue) == ["a"]
    queue.put("a")
    queue.put("b")
    assert ready(queue) == ["b"]
    queue.done("a")
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
    queue.succeeded("a")
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


async def test_what_was_moved_forward_often_leaves_no_heap_behind(queue: KeyedQueue[str]) -> None:
    for _ in range(1000):
        queue.put("a", 600.0)
        queue.put("a")
        assert ready(queue) == ["a"]
        queue.done("a")
    assert len(queue._heap) < 100


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
    shared.done("a1")
    assert ready(shared) == ["a3"]


async def test_what_waits_for_a_place_is_due_and_can_be_forgotten(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3", "a4"):
        shared.put(key)
    assert ready(shared) == ["a1", "a2"]
    shared.forget("a3")
    assert len(shared) == 1
    shared.done("a1")
    assert ready(shared) == ["a4"]


async def test_a_key_that_comes_again_while_it_is_out_waits_behind_its_group(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3"):
        shared.put(key)
    assert ready(shared) == ["a1", "a2"]
    shared.put("a1")
    assert ready(shared) == []
    shared.done("a1")
    shared.done("a2")
    assert ready(shared) == ["a3", "a1"]


@pytest.mark.parametrize("state", ["waits for its time", "is due", "is out", "is out again"])
async def test_nothing_is_kept_of_a_key_that_is_forgotten(
    shared: KeyedQueue[str], clock: Clock, state: str
) -> None:
    shared.put_after_failure("a1", 5.0)
    clock.now += 0.0 if state == "waits for its time" else 5.0
    if state.startswith("is out"):
        assert ready(shared) == ["a1"]
    if state == "is out again":
        shared.put("a1")
        assert ready(shared) == []
    shared.forget("a1")
    shared.done("a1")
    clock.now += 60.0
    assert ready(shared) == []
    kept = (
        shared._due, shared._failures, shared._taken, shared._again, shared._heap, shared._shares._waiting,
    )  # fmt: skip
    assert [len(each) for each in kept] == [0] * 6


async def test_a_key_that_no_worker_holds_frees_no_place_when_it_is_done(shared: KeyedQueue[str]) -> None:
    for key in ("a1", "a2", "a3"):
        shared.put(key)
    shared.done("a1")
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
            queue.done(key)
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
        queue.done(key)
    clock.now += 10
    assert set(ready(queue)) == wanted


def test_a_wait_after_a_failure_may_be_bounded() -> None:
    queue: KeyedQueue[str] = KeyedQueue(lambda: 0.0, lambda: 0.0, Backoff(first=1.0, most=900.0))
    assert [queue.put_after_failure("a", 3.0) for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
