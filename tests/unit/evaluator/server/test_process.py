from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from prometheus_client import ProcessCollector

from evaluator.server.process import families

if TYPE_CHECKING:
    from pathlib import Path

    from evaluator.server.families import Family

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc as Linux has it")


def by_name(found: list[Family]) -> dict[str, float]:
    return {sample.name: sample.value for family in found for sample in family.samples}


@linux
def test_names_types_and_words_are_those_of_the_published_client() -> None:
    theirs = [(f.name, f.type, f.documentation) for f in ProcessCollector(registry=None).collect()]
    ours = [(f.name, f.type, f.documentation) for f in families()]
    assert sorted(ours) == sorted(theirs)


@linux
def test_what_does_not_change_has_the_published_clients_values() -> None:
    theirs = {
        sample.name: sample.value
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
    }
    ours = by_name(list(families()))
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert ours[name] == theirs[name]


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Fields by proc(5), of a process whose name is a trap."""
    own = tmp_path / "self"
    (own / "fd").mkdir(parents=True)
    for number in range(3):
        (own / "fd" / str(number)).touch()
    numbers = [str(field) for field in range(4, 53)]
    (own / "stat").write_text(f"7 (a) b (c) R {' '.join(numbers)}\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1000\nprocesses 9\n")
    return tmp_path


@linux
def test_each_field_is_read_from_its_place_whatever_the_process_is_called(proc: Path) -> None:
    found = by_name(list(families(proc)))
    ticks = os.sysconf("SC_CLK_TCK")
    assert found["process_cpu_seconds_total"] == (14 + 15) / ticks
    assert found["process_start_time_seconds"] == 1000 + 22 / ticks
    assert found["process_virtual_memory_bytes"] == 23
    assert found["process_resident_memory_bytes"] == 24 * os.sysconf("SC_PAGE_SIZE")
    assert found["process_open_fds"] == 3


def test_without_proc_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert list(families(tmp_path)) == []
