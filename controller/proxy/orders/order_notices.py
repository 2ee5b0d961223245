"""Log lines and Events about standing orders that cannot be followed, each once while it lasts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from controller.proxy.orders.resolution import NOT_READY
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from controller.api.objects.meta import ObjectKey, Resource
    from controller.delivery.standing_orders import OrderedPods
    from controller.proxy.orders.resolution import OrderProblem

_log = logging.getLogger(__name__)
MOST: Final = 1_000
"""Problems that are reported as Events at a time."""


class OrderNotices:
    """Remembers the problem of each topic."""

    def __init__(self) -> None:
        self._problems: dict[OrderedPods, OrderProblem] = {}
        self._reported: set[tuple[ObjectKey, str]] = set()

    def note(self, topic: OrderedPods, problem: OrderProblem | None) -> None:
        """The orders of the topic's pods have this problem now; None: they have none."""
        before = self._problems.pop(topic, None)
        if problem is None or problem.reason == NOT_READY:
            if before is not None and problem is None:
                _log.info("%s: the standing orders can be followed again", topic)
            return
        self._problems[topic] = problem
        if before is None or before.message != problem.message:
            _log.warning("%s: %s: %s; what its pods followed stays", topic, problem.reason, problem.message)

    def take(self) -> list[tuple[Resource, Occurrence]]:
        """(object, Event) of every problem that no Event has named since it came up."""
        current: dict[tuple[ObjectKey, str], OrderProblem] = {}
        for problem in self._problems.values():
            if problem.about is not None and len(current) < MOST:
                current[problem.about.key, problem.message] = problem
        events = [
            (problem.about, Occurrence(problem.reason, problem.message, warning=True))
            for key, problem in current.items()
            if key not in self._reported and problem.about is not None
        ]
        self._reported = set(current)
        return events
