from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING

import pytest

from evaluator.heap import Heap

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


def test_only_full_collections_wait_while_a_set_is_read() -> None:
    heap, usual = Heap(), gc.get_threshold()
    with heap.growing():
        with heap.growing():
            assert gc.get_threshold()[:2] == usual[:2]
            assert gc.get_threshold()[2] > usual[2]
        assert gc.get_threshold()[2] > usual[2]
    assert gc.get_threshold() == usual


def test_a_set_that_cannot_be_read_leaves_the_collector_as_it_was() -> None:
    usual = gc.get_threshold()
    with pytest.raises(ValueError, match="bad"), Heap().growing():
        raise ValueError("bad")
    assert gc.get_threshold() == usual


def test_what_has_settled_is_out_of_the_collectors_sight() -> None:
    Heap().settle()
    assert gc.get_freeze_count() > 0


def test_garbage_of_a_settled_heap_is_found_once_memory_has_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heap, cycle = Heap(), Cycle()
    gone = weakref.ref(cycle)
    blocks = [1_000, 2_000, 2_001, 1_500]
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks.pop(0))
    heap.settle()
    del cycle
    heap.settle()
    gc.collect()
    assert gone() is not None
    heap.settle()
    assert gone() is None
    assert gc.get_freeze_count() > 0
