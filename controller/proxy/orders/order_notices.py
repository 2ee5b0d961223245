"""Log lines and Events about standing orders that cannot be followed, each once while it lasts."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from controller.proxy.orders.resolution import NOT_READY
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.delivery.standing_orders import OrderedPods
    from controller.proxy.orders.resolution import OrderProblem

_log = logging.getLogger(__name__)
MOST: Final = 1_000
"""Problems that are reported as Events at a time."""


class OrderNotices:
    """Remembers the problem of each topic."""

    def __init__(self) -> None:
        self._problems: dict[OrderedPods, tuple[OrderProblem, ...]] = {}
        self._reported: set[tuple[ObjectKey, str]] = set()

    def note(self, topic: OrderedPods, problems: Iterable[OrderProblem]) -> None:
        """The orders of the topic's pods have these problems now."""
        before = self._problems.pop(topic, ())
        # A direct set is made within moments.
        current = tuple(problem for problem in problems if problem.reason != NOT_READY)
        if current:
            self._problems[topic] = current
        elif before:
            _log.info("%s: the standing orders can be followed again", topic)
        known = {problem.message for problem in before}
        for problem in current:
            if problem.message not in known:
                _log.warning(
                    "%s: %s: %s; its pods keep what they have of that set, and follow the others",
                    topic, problem.reason, problem.message,
                )  # fmt: skip

    def take(self) -> list[tuple[Resource, Occurrence]]:
        """(object, Event) of every problem that no Event has named since it came up."""
        current: dict[tuple[ObjectKey, str], OrderProblem] = {}
        for problem in itertools.chain.from_iterable(self._problems.values()):
            if problem.about is not None and len(current) < MOST:
                current[problem.about.key, problem.message] = problem
        events = [
            (problem.about, Occurrence(problem.reason, problem.message, warning=True))
            for key, problem in current.items()
            if key not in self._reported and problem.about is not None
        ]
        self._reported = set(current)
        return events
