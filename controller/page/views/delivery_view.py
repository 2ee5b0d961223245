"""From source to evaluators: all flag sets in a table, one of them stage by stage, and the last Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api.flagsource import source_address
from controller.page.delivery.commit_timeline import timeline
from controller.page.delivery.set_deliveries import deliveries
from controller.page.rendering import page
from controller.page.visit import NotShown, page_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.page.delivery.set_deliveries import Delivery
    from controller.page.delivery.shown_events import ShownEvent
    from controller.page.visit import Visit
    from evaluator.http.messages import Response

EVENTS: Final = 20
"""Events that are shown."""
ROWS: Final = 100
"""Flag sets on one page of the table."""
MOST_MEMBERS: Final = 500
"""Evaluators that are listed by name, laggards first."""


def delivery_view(visit: Visit) -> Response:
    """`?set=&page=`. Raises NotShown."""
    listed = deliveries(visit.source.objects(), visit.source.members())
    name = visit.query.get("set", "")
    shown = _choose(listed, name)
    if name and shown is None:
        raise NotShown(f"There is no flag set {name!r}, or you may not see it.")
    first = _first_row(page_number(visit.query), len(listed))
    return page(
        "delivery.html",
        visit=visit,
        now=visit.now,
        faults=visit.source.faults(),
        listed=listed[first : first + ROWS],
        earlier=first // ROWS if first else 0,
        later=first // ROWS + 2 if first + ROWS < len(listed) else 0,
        count=len(listed),
        shown=shown,
        events=_events(visit.source.events(), shown)[:EVENTS],
        **({} if shown is None else _details(shown)),
    )


def _details(shown: Delivery) -> dict[str, Any]:
    """What the stages of one flag set are shown with."""
    return {
        "steps": timeline(shown),
        "address_of_source": "" if shown.source is None else source_address(shown.source) or "",
        "members": shown.members[:MOST_MEMBERS],
        "unlisted": max(0, len(shown.members) - MOST_MEMBERS),
    }


def _choose(listed: Sequence[Delivery], name: str) -> Delivery | None:
    """The delivery of a name, which may lack the namespace; without a name the only one there is."""
    if not name:
        return listed[0] if len(listed) == 1 else None
    return next((entry for entry in listed if name in {entry.name, entry.name.partition("/")[2]}), None)


def _first_row(number: int, count: int) -> int:
    return min((number - 1) * ROWS, max(0, count - 1) // ROWS * ROWS)


def _events(events: Sequence[ShownEvent], shown: Delivery | None) -> Sequence[ShownEvent]:
    """The Events about what is shown."""
    if shown is None:
        return events
    about = {
        str(part.key) for part in (shown.source, shown.flag_set, shown.configuration) if part is not None
    }
    return [event for event in events if event.about in about]
