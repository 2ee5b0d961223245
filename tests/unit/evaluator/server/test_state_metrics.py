from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from evaluator.server.state_metrics import SourceState, StateMetrics
from evaluator.store.store import Report, Store
from tests.stores import confirm, fail, swap
from tests.worlds import evaluator as fakes
from tests.worlds.evaluator import NOW, flag_set

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Kept:
    streams: int


def read(state_metrics: StateMetrics) -> Mapping[tuple[str, ...], float]:
    """Values by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in state_metrics.families()
        for sample in family.samples
    }


def test_each_source_has_a_series_of_its_own() -> None:
    store = Store(sources=("a", "b", "late"))
    swap(store, flag_set(fakes.BOOLEAN), now=NOW, source="a")
    swap(store, flag_set(fakes.STRING), now=NOW - 30, source="b")
    fail(store, "gone", NOW - 30, "b")
    found = read(StateMetrics(store, lambda: NOW + 1))
    up = [found["flagstaff_source_up", name] for name in ("a", "b", "late")]
    assert up == [1, 0, 0]
    assert found["flagstaff_source_data_age_seconds", "b"] == 31
    assert found["flagstaff_source_last_success_timestamp_seconds", "a"] == NOW
    assert found["flagstaff_source_flags", "late"] == 0
    assert ("flagstaff_source_data_age_seconds", "late") not in found


def test_each_source_is_in_one_state() -> None:
    store = Store(sources=("a", "b"))
    swap(store, flag_set(fakes.BOOLEAN), now=NOW, source="a")
    fail(store, "NotFound: gone", NOW, "a", cause="NotFound")
    found = read(StateMetrics(store, lambda: NOW))
    states = {key[1:]: value for key, value in found.items() if key[0] == "flagstaff_source_state"}
    assert [key for key, value in states.items() if value] == [("a", "deleted"), ("b", "pending")]
    assert len(states) == 2 * len(SourceState)


def test_a_set_from_disk_is_shown_until_the_source_is_read() -> None:
    store = Store(sources=("a",))
    swap(store, flag_set(fakes.BOOLEAN), now=NOW)
    store.apply(Report("a", NOW - 3_600, from_disk=True), now=NOW)
    state_metrics = StateMetrics(store, lambda: NOW)
    assert read(state_metrics)["flagstaff_source_from_disk", "a"] == 1
    assert read(state_metrics)["flagstaff_source_data_age_seconds", "a"] == 3_600
    confirm(store, NOW)
    assert read(state_metrics)["flagstaff_source_from_disk", "a"] == 0


def test_each_source_has_its_revision_and_digest() -> None:
    store = Store(sources=("a",))
    swap(store, flag_set(fakes.BOOLEAN), now=NOW, content="sha256:1")
    assert read(StateMetrics(store, lambda: NOW))["flagstaff_source_revision_info", "a", "", "sha256:1"]


def test_swaps_are_counted_and_timed_and_the_same_again_is_none() -> None:
    store = Store()
    state_metrics = StateMetrics(store, lambda: NOW)
    for _ in range(2):
        swap(store, flag_set(fakes.BOOLEAN), now=NOW)
    found = read(state_metrics)
    assert found["flagstaff_swaps_total",] == 1
    assert found["flagstaff_swap_seconds_total",] > 0
    assert found["flagstaff_last_swap_duration_seconds",] > 0


def test_a_failure_to_save_is_shown_for_each_source_that_is_kept() -> None:
    state_metrics = StateMetrics(Store(), lambda: NOW)
    names = (
        "flagstaff_source_unsaved_seconds",
        "flagstaff_source_last_save_duration_seconds",
        "flagstaff_source_save_failures_total",
    )
    assert not {name for name, *_ in read(state_metrics)} & {*names}
    state_metrics.saving = (
        SimpleNamespace(source="a", unsaved_seconds=0.0, last_save_seconds=0.02, failures=0),
        SimpleNamespace(source="b", unsaved_seconds=7.0, last_save_seconds=None, failures=3),
    )
    found = read(state_metrics)
    assert {key: value for key, value in found.items() if key[0] in names} == {
        (names[0], "a"): 0.0, (names[0], "b"): 7.0, (names[1], "a"): 0.02,
        (names[2], "a"): 0.0, (names[2], "b"): 3.0,
    }  # fmt: skip


def test_connections_and_streams_are_asked_for_when_read() -> None:
    state_metrics = StateMetrics(Store(), lambda: NOW)
    port = SimpleNamespace(connections=1, held_bytes=10, refused_connections=2)
    state_metrics.ports.port("grpc", port)
    state_metrics.streams("events", Kept(2))
    state_metrics.streams("events", Kept(4))
    state_metrics.streams("sync", Kept(10))
    found = read(state_metrics)
    assert found["flagstaff_connections", "grpc"] == 1
    assert found["flagstaff_streams", "events"] == 6
    assert found["feature_flag_flagd_sync_active_streams",] == 10
    assert found["http_server_active_requests",] == 16
    assert found["flagstaff_held_bytes", "grpc"] == 10
    assert found["flagstaff_refused_connections_total", "grpc"] == 2
    port.connections = 7
    assert read(state_metrics)["flagstaff_connections", "grpc"] == 7


def test_streams_that_ended_are_counted_by_how_long_they_were_open() -> None:
    state_metrics = StateMetrics(Store(), lambda: NOW)
    for seconds in (5, 5, 100_000):
        state_metrics.count_stream_end("normal_close", seconds)
    name = "feature_flag_flagd_sync_stream_duration_seconds"
    found = read(state_metrics)
    assert found[f"{name}_bucket", "normal_close", "1.0"] == 0
    assert found[f"{name}_bucket", "normal_close", "10.0"] == 2
    assert found[f"{name}_count", "normal_close"] == 3
    assert found[f"{name}_sum", "normal_close"] == 100_010
