"""The page as one function: from a request, and what its sender may see, to the response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from controller.page.rendering import PREFIX, SAFE, page
from controller.page.views.delivery_view import delivery_view
from controller.page.views.flag_view import flag_view
from controller.page.views.flags_view import flags_view
from controller.page.views.pending_view import pending_view
from controller.page.visit import NotShown, Visit
from evaluator.http.messages import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.page.page_source import PageSource
    from evaluator.http.messages import Request

VIEWS: Final[Mapping[tuple[str, str], Callable[[Visit], Response]]] = {
    ("GET", ""): flags_view,
    ("GET", "/flags"): flags_view,
    ("GET", "/delivery"): delivery_view,
    ("GET", "/pending"): pending_view,
    ("GET", "/flag"): flag_view,
    ("POST", "/flag"): flag_view,
}
"""The views by method and path below PREFIX."""
_MOST_FIELDS: Final = 200


def respond(request: Request, source: PageSource, now: datetime) -> Response:
    """Return the response to a request below `/ui`; it changes nothing."""
    method = "GET" if request.method == "HEAD" else request.method
    path = request.path.removeprefix(PREFIX).rstrip("/")
    view = VIEWS.get((method, path))
    if view is None:
        return Response(404, b"there is no such page\n", (("content-type", "text/plain"), *SAFE))
    form = request.body.decode("utf-8", "replace") if method == "POST" else ""
    view_name, query = path.strip("/") or "flags", _fields(request.query)
    visit = Visit(view_name, query, _fields(form), source, now, has_form=method == "POST")
    try:
        return view(visit)
    except NotShown as missing:
        return page("missing.html", 404, visit=visit, message=str(missing))


def _fields(text: str) -> dict[str, str]:
    """The fields of a query or a form; of a repeated one the last."""
    try:
        return dict(parse_qsl(text, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}
