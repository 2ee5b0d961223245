"""Metrics of open ports: connections, what they make the process keep, and what was refused."""

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
        """How many are open."""

    @property
    def held_bytes(self) -> int:
        """About how many bytes requests and unread answers make it keep."""

    @property
    def refused(self) -> int:
        """Connections that were refused, for their number or because it kept too much."""


class PortMetrics:
    """Read at each scrape."""

    def __init__(self) -> None:
        self._ports: dict[str, PortState] = {}

    def port(self, name: str, state: PortState) -> None:
        """A port that is open."""
        self._ports[name] = state

    def families(self) -> Iterator[Metric]:
        """As it is now. Also called outside the loop, so it walks a copy."""
        connections = gauge("flagstaff_connections", "Open connections.", ("port",))
        held = gauge("flagstaff_held_bytes", "Kept of requests and of unread answers.", ("port",))
        what = "Connections that were refused, for their number or because they made the port keep too much."
        refused = counter("flagstaff_refused_connections", what, ("port",))
        for name, state in list(self._ports.items()):
            connections.add_metric((name,), state.connections)
            held.add_metric((name,), state.held_bytes)
            refused.add_metric((name,), state.refused)
        yield from (connections, held, refused)
