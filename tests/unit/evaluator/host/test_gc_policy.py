from __future__ import annotations

import gc
import json
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

from evaluator.host.gc_policy import GcPolicy
from evaluator.resolving.resolve import compile_flag_set
from evaluator.sync.follower import Accepted, accept
from evaluator.sync.source import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    # What the run froze is no test's doing.
    gc.unfreeze()
    yield
    gc.freeze()
    gc.set_threshold(*thresholds)


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def test_only_full_collections_wait_while_a_set_is_read() -> None:
    gc_policy, usual = GcPolicy(), gc.get_threshold()
    with gc_policy.pause_full_collections():
        with gc_policy.pause_full_collections():
            assert gc.get_threshold()[:2] == usual[:2]
            assert gc.get_threshold()[2] > usual[2]
        assert gc.get_threshold()[2] > usual[2]
    assert gc.get_threshold() == usual


def test_a_set_that_cannot_be_read_leaves_the_collector_as_it_was() -> None:
    usual = gc.get_threshold()
    with pytest.raises(ValueError, match="bad"), GcPolicy().pause_full_collections():
        raise ValueError("bad")
    assert gc.get_threshold() == usual


def test_what_was_made_is_out_of_the_collectors_sight() -> None:
    with GcPolicy().pause_full_collections():
        pass
    assert gc.get_freeze_count() > 0


def test_frozen_garbage_is_found_once_memory_is_three_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    gc_policy, found = GcPolicy(), list[bool]()
    blocks = [1_000, 3_000, 3_001, 1_500]
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks.pop(0))
    gone: weakref.ref[Cycle] | None = None
    gc_policy.settle()
    for _ in range(2):
        with gc_policy.pause_full_collections():
            cycle = Cycle()
            gone = gone or weakref.ref(cycle)
        del cycle
        gc.collect()
        found.append(gone() is None)
    assert found == [False, True]
    assert gc.get_freeze_count() > 0


RULED = json.dumps(
    {
        "flags": {
            "a": {
                "state": "ENABLED",
                "variants": {"on": 1, "off": 0},
                "defaultVariant": "on",
                "targeting": {"if": [{"$ref": "staff"}, {"fractional": [["on", 1], ["off", 1]]}, "off"]},
            },
            "bad": {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "of"},
        },
        "$evaluators": {"staff": {"ends_with": [{"var": "email"}, "@example.com"]}},
    }
).encode()


@pytest.mark.parametrize("name", ["flags.json", "flags.yaml"])
def test_a_flag_set_that_is_replaced_leaves_no_cycles_behind(name: str) -> None:
    def count_cycles() -> int:
        """Objects that only the collector can free, after a flag set came and went."""
        judged = accept(Delivery(((name, RULED),)), None)
        assert isinstance(judged, Accepted)
        compile_flag_set(judged.flag_set).compile_all()
        del judged
        return gc.collect()

    gc.disable()
    # Each look is at what came since.
    gc.freeze()
    try:
        # Other threads of the test run may leave a cycle of theirs meanwhile; one of ours is there each time.
        assert 0 in [count_cycles() for _ in range(5)]
    finally:
        gc.enable()
