"""Metrics of what clients and namespaces share: who waits for it, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.host.shares import usage_by_resource
from evaluator.server.monitoring.families import gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


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
