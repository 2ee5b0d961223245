"""Templates to responses: all text is escaped, and no answer may load or run anything from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from controller.delivery.state import digests, state_words
from controller.page import links, words
from controller.page.delivery import proxy_members
from evaluator.http.messages import Headers, Response
from evaluator.resolving.rule_clauses import outcome_words, subject_words

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER: Final = Path(__file__).parent
STATIC: Final = FOLDER / "static"
PREFIX: Final = "/ui"
NAVIGATION: Final = (("flags", "Flags"), ("delivery", "Delivery"), ("pending", "Pending"))
"""The views that every page links to, and their titles."""
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


def address(view: str, /, **query: object) -> str:
    """Return the address of a view such as `flags`; what is empty is left out of the query."""
    encoded = urlencode({name: str(value) for name, value in query.items() if value not in ("", None)})
    return f"{PREFIX}/{view}{'?' if encoded else ''}{encoded}"


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page made of a template."""
    body = environment().get_template(template).render(values)
    return Response(status, body.encode("utf-8", "replace"), (*_HTML, *SAFE))


@cache
def environment() -> Environment:
    """The templates, escaped and strict: a name that is missing is an error."""
    # Imported here: most commands show no page.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    templates = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {
        "address": address,
        "navigation": NAVIGATION,
        "commit_link": links.commit_link,
        "request_link": links.request_link,
        "place_link": links.place_link,
        "problem_link": links.problem_link,
        "revision_link": links.revision_link,
        "anchor": words.anchor,
        "outcome_words": outcome_words,
        "subject_words": subject_words,
    }
    templates.filters |= {
        "after": words.after,
        "ago": words.ago,
        "clock": words.clock,
        "chart": words.chart,
        "capitalize_first": words.capitalize_first,
        "person": words.person,
        "moment": proxy_members.moment,
        "layer": state_words.layer_text,
        "problem": state_words.problem_text,
        "rate": words.rate_text,
        "total_rate": words.total_rate,
        "short": digests.short,
        "value": words.value_text,
    }
    return templates
