"""From source to evaluators: all flag sets in a table, one of them stage by stage, and the last Events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.delivery.state.reach import Target, reach
from controller.delivery.state.set_state import Reach
from controller.delivery.state.state_words import held_text, laggard_texts, meanwhile_text
from controller.page.delivery.commit_timeline import timeline
from controller.page.rendering import page
from controller.page.visit import NotShown, page_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.delivery.state.reach import Reached
    from controller.delivery.state.set_state import SetState
    from controller.page.delivery.shown_events import ShownEvent
    from controller.page.visit import Visit
    from evaluator.http.messages import Response

EVENTS: Final = 20
"""Events that are shown."""
ROWS: Final = 100
"""Flag sets on one page of the table."""
MOST_MEMBERS: Final = 500
"""Evaluators that are listed by name, laggards first."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One flag set, and how far its newest revision has come."""

    state: SetState
    reached: Reached

    @property
    def name(self) -> str:
        """NAMESPACE/NAME of the object that evaluators follow."""
        return f"{self.state.key.namespace}/{self.state.key.name}"

    @property
    def health(self) -> str:
        """`ready` once every user gets it, `failed` while a person must change something, or `waiting`."""
        if self.reached.level is Reach.SERVED_BY_ALL:
            return "ready"
        return "failed" if self.reached.blocked else "waiting"


def delivery_view(visit: Visit) -> Response:
    """`?set=&page=`. Raises NotShown."""
    listed = [Delivery(state, _reach_of(state)) for state in visit.states]
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
        **({} if shown is None else _details(visit, shown)),
    )


def _reach_of(state: SetState) -> Reached:
    return reach(state, Target(state.newest.revision or state.revision, allow_none=True, everybody=True))


def _details(visit: Visit, shown: Delivery) -> dict[str, Any]:
    """What the stages of one flag set are shown with."""
    state, known = shown.state, visit.source.members().get(shown.name, ())
    behind = (
        f"{member.name}: {member.state}, serves {member.revision or 'nothing'}"
        for member in known
        if member.lagging
    )
    return {
        "state": state,
        "steps": timeline(state, shown.reached, known),
        "meanwhile": [*map(held_text, state.held), meanwhile_text(state)],
        "laggards": laggard_texts(state.served) or tuple(behind),
        "members": known[:MOST_MEMBERS],
        "member_count": len(known),
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
    about = {str(key) for key in shown.state.objects}
    return [event for event in events if event.about in about]
