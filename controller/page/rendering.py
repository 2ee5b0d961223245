"""Templates to responses: all text is escaped, and no answer may load or run anything from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from controller.page import words
from evaluator.http.messages import Headers, Response

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER: Final = Path(__file__).parent
STATIC: Final = FOLDER / "static"
PREFIX: Final = "/ui"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE: Final[Headers] = (
    ("content-security-policy", _POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
)
"""Headers of every answer."""
_HTML: Final[Headers] = (("content-type", "text/html; charset=utf-8"), ("cache-control", "no-store"))


def address(view: str, **query: object) -> str:
    """Return the address of a view such as `flags`; what is empty is left out of the query."""
    given = urlencode({name: str(value) for name, value in query.items() if value not in ("", None)})
    return f"{PREFIX}/{view}{'?' if given else ''}{given}"


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page made of a template."""
    body = environment().get_template(template).render(values)
    return Response(status, body.encode("utf-8", "replace"), (*_HTML, *SAFE))


@cache
def environment() -> Environment:
    """The templates, escaped and strict: a name that is missing is an error."""
    # Imported here: most commands show no page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["address"] = address
    made.filters |= {
        "after": words.after,
        "ago": words.ago,
        "clock": words.clock,
        "person": words.person,
        "revision": words.short_revision,
        "value": words.value_text,
    }
    return made
