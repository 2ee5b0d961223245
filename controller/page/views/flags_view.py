"""The flags of a set: search, filters, and a page of rows at a time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.page.flag_rows import PERIODS, SORTS, STATES, FlagFilter, select_flags
from controller.page.rendering import address, page

if TYPE_CHECKING:
    from controller.page.visit import Visit
    from evaluator.http.messages import Response


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
