from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.store.history import KEPT_SECONDS, LATE_SECONDS, MOST_FLAGS, MOST_STATES, RolloutHistory
from evaluator.store.store import Store
from tests.rollout_sets import NEW, OLD, PLAIN, flags, rolled_out
from tests.stores import swap

KEY = NEW.key
START = 1_700_000_000.0


def store_with_history() -> tuple[Store, RolloutHistory]:
    store = Store()
    return store, RolloutHistory(store)


def step_at(store: Store, history: RolloutHistory, moment: float | None, now: float) -> str | None:
    assert store.snapshot is not None
    flag = history.flag_at(store.snapshot, KEY, moment, now=now)
    return None if flag is None else str(flag.flag.metadata["flagstaff.dev/rollout-step"])


def test_a_moment_finds_the_step_that_was_served_then() -> None:
    store, history = store_with_history()
    for number, step in enumerate(("1/4", "2/4", "3/4")):
        swap(store, rolled_out(10, step=step), now=START + 60 * number)
    found = [step_at(store, history, START + seconds, START + 200) for seconds in (0, 59, 60, 119, 120, 500)]
    assert found == ["1/4", "1/4", "2/4", "2/4", "3/4", "3/4"]
    assert step_at(store, history, None, START + 200) == "3/4"
    assert step_at(store, history, START - 1, START + 200) is None


@pytest.mark.parametrize(("after", "found"), [(0.0, "2/4"), (LATE_SECONDS - 1, "2/4"), (LATE_SECONDS, None)])
def test_what_comes_soon_after_the_end_of_a_rollout_counts_for_its_last_step(
    after: float, found: str | None
) -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    swap(store, flags(NEW, PLAIN), now=START + 60)
    now = START + 60 + after
    assert store.snapshot is not None
    assert history.keys(store.snapshot) == [KEY]
    assert [step_at(store, history, moment, now) for moment in (None, now)] == [found, found]
    assert step_at(store, history, START + 30, now) == "2/4"


def test_a_change_of_another_flag_is_no_new_step() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    for number in range(1, 2 * MOST_STATES):
        other = replace(PLAIN, variants={"on": number}, key="other")
        served = rolled_out(10)
        swap(store, replace(served, flags={**served.flags, "other": other}), now=START + number)
    assert step_at(store, history, START, START + 100) == "2/4"


def test_what_ended_long_ago_is_forgotten() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    swap(store, flags(NEW), now=START + 60)
    swap(store, flags(OLD), now=START + 61 + KEPT_SECONDS)
    assert store.snapshot is not None
    assert (history.keys(store.snapshot), history.revisions(KEY)) == ([], set())


def test_the_number_of_definitions_is_bounded() -> None:
    store, history = store_with_history()
    for number in range(3 * MOST_STATES):
        swap(store, rolled_out(number + 1, step=f"{number}/99"), now=START + number)
    assert step_at(store, history, START, START + 100) is None
    assert step_at(store, history, START + 2 * MOST_STATES, START + 100) == f"{2 * MOST_STATES}/99"
    marked = rolled_out(10).flags[KEY]
    many = {f"new-{number}": replace(marked, key=f"new-{number}") for number in range(MOST_FLAGS + 5)}
    swap(store, flags(*many.values()), now=START + 200)
    swap(store, flags(*(replace(NEW, key=key) for key in many)), now=START + 300)
    assert store.snapshot is not None
    assert len(history.keys(store.snapshot)) <= MOST_FLAGS


def test_a_flag_that_is_gone_is_not_among_the_keys() -> None:
    store, history = store_with_history()
    swap(store, rolled_out(10), now=START)
    snapshot = swap(store, flags(PLAIN), now=START + 60)
    assert history.keys(snapshot) == []
