"""Metrics of open ports: connections, memory kept for them, and refused connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evaluator.server.monitoring.families import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


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
