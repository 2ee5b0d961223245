"""The views of the page: deliveries, flags, one flag, and what waits for a person. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.flag_calendar import CalendarEntry, calendar_lines, step_entry, to_come
from controller.delivery.flag_state import held_text
from controller.delivery.reach import Reached, ReachTarget, reach
from controller.delivery.set_state import Reach, SetState
from controller.delivery.state_words import laggard_texts, meanwhile_text
from controller.page.delivery_facts import pending_work, timeline
from controller.page.flag_rows import (
    PERIODS,
    SORTS,
    STATES,
    FlagFilter,
    definitions_of,
    flag_row,
    metadata_in,
    other_metadata,
    select_flags,
)
from controller.page.rendering import NotShown, Visit, address, page, page_number
from controller.page.what_if import InvalidContextError, WhatIf, attributes_of, read_context, what_if
from evaluator.flags.model import CONFIDENTIAL_KEY, EMPTY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.page.page_source import ShownEvent
    from evaluator.http.messages import Response


EVENTS: Final = 20
"""Events that are shown."""
ROWS: Final = 100
"""Flag sets on one page of the table."""
MOST_MEMBERS: Final = 500
"""Evaluators that are listed by name, laggards first."""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One flag set, and how far its newest revision has come."""

    state: SetState
    reached: Reached

    @property
    def name(self) -> str:
        """NAMESPACE/NAME of the object that evaluators follow."""
        return f"{self.state.key.namespace}/{self.state.key.name}"

    @property
    def names(self) -> tuple[str, str]:
        """Its name, and the same without the namespace."""
        return self.name, self.state.key.name

    @property
    def health(self) -> str:
        """`ready` once every user gets it, `failed` while a person must change something, or `waiting`."""
        if self.reached.level is Reach.SERVED_BY_ALL:
            return "ready"
        return "failed" if self.reached.blocked else "waiting"


def delivery_view(visit: Visit) -> Response:
    """`?set=&page=`. Raises NotShown."""
    listed = [DeliveryRow(state, _reach_of(state)) for state in visit.states]
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
    return reach(state, ReachTarget(state.newest.revision or state.revision, allow_none=True, everybody=True))


def _details(visit: Visit, shown: DeliveryRow) -> dict[str, Any]:
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
        "meanwhile": [
            *(held_text(flag, state.newest.problems) for flag in state.held),
            meanwhile_text(state),
        ],
        "calendar": [*calendar_lines(_calendar(visit, shown))],
        "laggards": laggard_texts(state.served) or tuple(behind),
        "members": known[:MOST_MEMBERS],
        "member_count": len(known),
    }


def _calendar(visit: Visit, shown: DeliveryRow) -> tuple[CalendarEntry, ...]:
    """What is to change by itself: times of schedules, and dates of steps."""
    names = (name for name in visit.sets if name in shown.names)
    flags = next((visit.source.shown_set(name) for name in names), None)
    dates = (
        step_entry(candidate.rollout.name, step.number, step.users, step.date)
        for candidate in shown.state.candidates
        for step in candidate.dates
    )
    return to_come((*(() if flags is None else flags.schedules), *dates), visit.now)


def _choose(listed: Sequence[DeliveryRow], name: str) -> DeliveryRow | None:
    """The delivery of a name, which may lack the namespace; without a name the only one there is."""
    if not name:
        return listed[0] if len(listed) == 1 else None
    return next((entry for entry in listed if name in entry.names), None)


def _first_row(number: int, count: int) -> int:
    return min((number - 1) * ROWS, max(0, count - 1) // ROWS * ROWS)


def _events(events: Sequence[ShownEvent], shown: DeliveryRow | None) -> Sequence[ShownEvent]:
    """The Events about what is shown."""
    if shown is None:
        return events
    about = {str(key) for key in shown.state.objects}
    return [event for event in events if event.about in about]


COLOURS: Final = 6
"""Colours of variants in the style sheet."""


def flag_view(visit: Visit) -> Response:
    """`?set=&key=`; a POST has the context of a what-if in its form."""
    shown, key = visit.shown_set, visit.query.get("key", "")
    state = shown.flags.get(key)
    if state is None:
        raise NotShown(f"There is no flag {key!r} in {shown.name}.")
    flag, metadata = state.flag, metadata_in(shown, key)
    variants = EMPTY if flag is None else flag.variants
    answer, complaint = (None, "") if flag is None else _what_if(visit, key)
    return page(
        "flag.html",
        visit=visit,
        shown=shown,
        key=key,
        row=flag_row(shown, key),
        colours={variant: place % COLOURS for place, variant in enumerate(variants)},
        definitions=definitions_of(state, shown.served),
        variants=variants,
        confidential=CONFIDENTIAL_KEY in metadata,
        metadata=other_metadata(metadata),
        history=visit.source.history(shown.name, key),
        environments=[
            (other, flag_row(other, key) if key in other.flags else None)
            for other in visit.source.environments(shown.name, key)
        ],
        rates=visit.source.rates(shown.name, [key]).get(key),
        attributes=() if flag is None else attributes_of(flag, shown.served),
        answer=answer,
        complaint=complaint,
    )


def _what_if(visit: Visit, key: str) -> tuple[WhatIf | None, str]:
    """(The answer, or None where nothing was asked; what is wrong with the question)."""
    if not visit.has_form:
        return None, ""
    try:
        context = read_context(visit.form)
    except InvalidContextError as error:
        return None, str(error)
    return what_if(visit.shown_set.served, key, context, int(visit.now.timestamp())), ""


def flags_view(visit: Visit) -> Response:
    """`?set=&q=&state=&owner=&since=&sort=&page=`."""
    shown, chosen = visit.shown_set, FlagFilter.of(visit.query)
    selection = select_flags(shown, chosen, visit.now)

    def page_address(number: int) -> str:
        """The address of a page of rows."""
        return address(
            "flags",
            set=visit.query.get("set"),
            q=chosen.text,
            state=chosen.state,
            owner=chosen.owner,
            since=chosen.since,
            sort=chosen.sort,
            page=number if number > 1 else None,
        )

    response = page(
        "flags.html",
        visit=visit,
        shown=shown,
        chosen=chosen,
        selection=selection,
        rates=visit.source.rates(shown.name, [row.key for row in selection.rows]),
        page_address=page_address,
        words={"state": STATES, "since": PERIODS, "sort": SORTS},
    )
    # htmx replaces the address by that of what it shows, so that it can be sent to a colleague.
    return response._replace(headers=(*response.headers, ("hx-replace-url", page_address(selection.page))))


def pending_view(visit: Visit) -> Response:
    """Everything that waits, in all flag sets that the caller may see."""
    return page(
        "pending.html",
        visit=visit,
        now=visit.now,
        faults=visit.source.faults(),
        sections=pending_work(visit.states, visit.other_waits),
    )
