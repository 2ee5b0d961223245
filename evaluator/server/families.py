"""Metric families of the published client, and those of ports and of what is shared.

The client is imported at the first scrape: with its HTTP server, ASGI, WSGI and push gateway it would be a
tenth of every start, and 3 MB of a sidecar that is not scraped.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, cast

from evaluator.host.shares import usage_by_resource

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector


def counter(
    name: str, what: str, labels: Sequence[str] = (), *, value: float | None = None
) -> CounterMetricFamily:
    """`name` is without the `_total` with which it is written; `value` is of one without labels."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, what, value, labels or None)


def gauge(
    name: str, what: str, labels: Sequence[str] = (), *, value: float | None = None
) -> GaugeMetricFamily:
    """`value` is of one without labels."""
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, what, value, labels or None)


def histogram(name: str, what: str, labels: Sequence[str]) -> HistogramMetricFamily:
    """Make a histogram with cumulative buckets, by upper bound, the last one `+Inf`."""
    from prometheus_client.core import HistogramMetricFamily

    return HistogramMetricFamily(name, what, labels=labels)


class Histogram:
    """Counts of values per bucket."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of all values."""

    def add(self, value: float) -> None:
        """Count a value."""
        index = 0
        # Most values are small, and calling a search costs more than a few comparisons.
        for bound in self._bounds:
            if value <= bound:
                break
            index += 1
        self.counts[index] += 1
        self.total += value

    def include(self, other: Histogram) -> None:
        """Add the counts of `other`, which has the same bounds."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative buckets, for `histogram`."""
        names = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Histograms:
    """One histogram for each combination of labels."""

    def __init__(self, bounds: tuple[float, ...], name: str, what: str, labels: Sequence[str]) -> None:
        self._bounds = bounds
        self._family = name, what, labels
        self._found: dict[tuple[str, ...], Histogram] = {}

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Count a value."""
        self._found.setdefault(labels, Histogram(self._bounds)).add(value)

    def keep(self, kept: Container[tuple[str, ...]]) -> None:
        """Forget the values of all other label combinations."""
        self._found = {labels: values for labels, values in self._found.items() if labels in kept}

    def family(self) -> Metric:
        """Return the present values. Also called outside the loop, so it iterates over a copy."""
        family = histogram(*self._family)
        for labels, values in list(self._found.items()):
            family.add_metric(labels, values.buckets(), values.total)
        return family


class _Given:
    """A collector of what it is given."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the families (prometheus_client calls this)."""
        return self._families


def text(families: Iterable[Metric]) -> bytes:
    """Prometheus' text format 0.0.4 of these and of the process' own memory, CPU and open files."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast("Collector", _Given(families)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class PortState(Protocol):
    """The state of an open port."""

    @property
    def connections(self) -> int:
        """Number of open connections."""

    @property
    def held_bytes(self) -> int:
        """Approximate bytes kept for requests and unread answers."""

    @property
    def refused_connections(self) -> int:
        """Connections refused for their number or for the memory in use."""


class PortMetrics:
    """Read at each scrape."""

    def __init__(self) -> None:
        self._ports: dict[str, PortState] = {}

    def port(self, name: str, state: PortState) -> None:
        """A port that is open."""
        self._ports[name] = state

    def families(self) -> Iterator[Metric]:
        """Return the present values. Also called outside the loop, so it iterates over a copy."""
        connections = gauge("flagstaff_connections", "Open connections.", ("port",))
        held = gauge("flagstaff_held_bytes", "Bytes in memory of requests and of unread answers.", ("port",))
        what = "Connections that were refused because they were too many or took too much memory."
        refused = counter("flagstaff_refused_connections", what, ("port",))
        for name, state in list(self._ports.items()):
            connections.add_metric((name,), state.connections)
            held.add_metric((name,), state.held_bytes)
            refused.add_metric((name,), state.refused_connections)
        yield from (connections, held, refused)


def share_families() -> Iterator[Metric]:
    """Return the present values of this process. Any thread may call this."""
    held = gauge("flagstaff_shared_held", "Places of a shared resource that are taken.", ("resource",))
    what = "Items that wait for a place of a shared resource."
    waiting = gauge("flagstaff_shared_waiting", what, ("resource",))
    what = "Namespaces or clients whose items wait for a place of a shared resource."
    owners = gauge("flagstaff_shared_waiting_owners", what, ("resource",))
    for resource, usage in sorted(usage_by_resource().items()):
        held.add_metric((resource,), usage.held)
        waiting.add_metric((resource,), usage.waiting)
        owners.add_metric((resource,), usage.groups)
    yield from (held, waiting, owners)
