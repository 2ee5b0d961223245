"""What waits for a person, with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.page.delivery.pending_work import pending_work
from controller.page.rendering import page

if TYPE_CHECKING:
    from controller.page.visit import Visit
    from evaluator.http.messages import Response


def pending_view(visit: Visit) -> Response:
    """Everything that waits, in all flag sets that the caller may see."""
    return page(
        "pending.html",
        visit=visit,
        now=visit.now,
        faults=visit.source.faults(),
        sections=pending_work(visit.states, visit.other_waits),
    )
