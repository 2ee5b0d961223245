"""The flags of a set: search, filters, and a page of rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.page.rendering import page

if TYPE_CHECKING:
    from controller.page.visit import Visit
    from evaluator.http.messages import Response


def flags_view(visit: Visit) -> Response:
    """`?set=&q=&state=&owner=&since=&page=`."""
    shown = visit.shown_set
    return page("flags.html", visit=visit, shown=shown, rows=[*shown.flag_set.flags.values()])
