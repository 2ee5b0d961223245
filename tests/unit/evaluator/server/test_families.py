from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from evaluator.server.families import Family, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

VALUES = st.dictionaries(
    st.tuples(st.text(max_size=4), st.text(max_size=4)), st.floats(), max_size=3
)
COUNTS = st.lists(st.integers(0, 10**9), min_size=1, max_size=3)


class Published(Collector):
    def __init__(self, *families: Metric) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families


def read(written: bytes) -> list[object]:
    """What there is to know of it: names, types, help and samples in order; as text, since nan is not nan."""
    return [
        (family.name, family.type, family.documentation, sample.name, sorted(sample.labels.items()), repr(sample.value))
        for family in text_string_to_metric_families(written.decode())
        for sample in family.samples
    ]  # fmt: skip


def published(*families: Metric) -> list[object]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Published(*families))
    return read(generate_latest(registry))


@settings(max_examples=60)
@given(VALUES)
def test_counters_and_gauges_read_as_the_published_client_writes_them(
    values: dict[tuple[str, str], float],
) -> None:
    counter, gauge = Family("counter", "c", "Counts.", ("a", "b")), Family("gauge", "g", "Goes.", ("a", "b"))  # fmt: skip
    counted, gone = CounterMetricFamily("c", "Counts.", labels=("a", "b")), GaugeMetricFamily("g", "Goes.", labels=("a", "b"))  # fmt: skip
    for labels, value in values.items():
        for ours in (counter, gauge):
            ours.add(labels, value)
        for theirs in (counted, gone):
            theirs.add_metric(labels, value)
    assert read(text((counter, gauge))) == published(counted, gone)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=4), st.tuples(COUNTS, st.floats(0, 1e9)), max_size=3))
def test_histograms_read_as_the_published_client_writes_them(
    series: dict[str, tuple[list[int], float]],
) -> None:
    ours = Family("histogram", "h_seconds", "Took.", ("a",))
    theirs = HistogramMetricFamily("h_seconds", "Took.", labels=("a",))
    for label, (counts, total) in series.items():
        buckets = [(str(float(bound)), float(n)) for bound, n in enumerate(sorted(counts))]
        buckets.append(("+Inf", float(max(counts))))
        ours.add_buckets((label,), buckets, total)
        theirs.add_metric((label,), buckets, total)
    assert read(text((ours,))) == published(theirs)


def test_one_without_labels_is_written_without_braces() -> None:
    assert text((Family("counter", "c", "Counts.", value=2),)) == (
        b"# HELP c_total Counts.\n# TYPE c_total counter\nc_total 2.0\n"
    )
