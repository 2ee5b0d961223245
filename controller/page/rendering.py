"""Templates to responses: all text is escaped, and no answer may load or run anything from elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from controller.delivery import digests, state_words
from controller.delivery.digests import short
from controller.events.commit_pages import change_request_page, commit_in, file_link, link
from controller.page.page_source import FlagChange, LayerPlace, PageSource, ShownSet, VariantRates
from evaluator.host.texts import cut
from evaluator.host.times import duration_text, parse_time
from evaluator.http.messages import Headers, Response
from evaluator.resolving.rule_words import outcome_words, subject_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from jinja2 import Environment

    from controller.api.flagset_status import ProblemStatus
    from controller.delivery.actions import Wait
    from controller.delivery.set_state import SetState
    from evaluator.flags.model import Json


def commit_link(address: str, change: FlagChange) -> str:
    """The page of a commit of the repository at `address`; empty where it is not known."""
    return link(address, f"@sha1:{change.commit}") if change.commit else ""


def request_link(address: str, change: FlagChange) -> str:
    """The page of the pull or merge request that the commit's subject names; empty where there is none."""
    return change_request_page(commit_link(address, change), change.subject)


def place_link(address: str, revision: str, place: LayerPlace) -> str:
    """The page of a line in a revision; empty where it is not known."""
    commit = commit_in(revision)
    return file_link(address, commit, place.file, place.line) if commit else ""


def problem_link(address: str, revision: str, problem: ProblemStatus) -> str:
    """The page of the line with a problem of a revision; empty where it is not known."""
    if not problem.file or not problem.line:
        return ""
    return place_link(address, revision, LayerPlace(problem.file, problem.line))


def revision_link(address: str, revision: str) -> str:
    """The page of a revision such as `main@sha1:…`; empty where it is not known."""
    return link(address, revision)


CODE_DEFAULT: Final = "default of the code"
"""The text in place of a variant where the caller's own default counts."""
_UNITS: Final = (
    (86_400 * 365, "year"),
    (86_400 * 30, "month"),
    (86_400, "day"),
    (3600, "hour"),
    (60, "minute"),
)


def ago(moment: datetime | None, now: datetime) -> str:
    """`3 hours ago`; empty for an unknown moment."""
    if moment is None:
        return ""
    length = _length((now - moment).total_seconds())
    return f"{length} ago" if length else "just now"


def _length(seconds: float) -> str:
    """`3 hours`; empty below a minute."""
    for size, unit in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return ""


def clock(moment: datetime) -> str:
    """`2026-11-28 12:03:04 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def after(seconds: float) -> str:
    """`after 1.2s`, or roughly `after 3 hours`."""
    if seconds >= 3600:
        return f"after {_length(seconds)}"
    return f"after {duration_text(seconds)}" if seconds else "at once"


def person(author: str) -> str:
    """`Ada` of `Ada <ada@example.com>`."""
    return author.partition(" <")[0].strip() or author


def anchor(candidate: str) -> str:
    """The name of a candidate's place in the view of its delivery, by its digest."""
    return f"candidate-{short(candidate.rpartition(':')[2])}"


def value_text(value: Json, most: int = 120) -> str:
    """A variant's value as JSON, cut after `most` characters."""
    return cut(json.dumps(value, ensure_ascii=False, default=str), most)


def capitalize_first(text: str) -> str:
    """The text with its first letter in upper case, unless it begins with a revision or the key of a flag;
    the others stay.
    """
    first = text.partition(" ")[0]
    return text if "@" in first or first.endswith(":") else text[:1].upper() + text[1:]


def total_rate(rates: VariantRates) -> str:
    """The evaluations per minute of the newest interval, of all variants."""
    return f"{sum(values[-1] for values in rates.rates.values()):.0f}/min"


def chart(rates: VariantRates, variants: Sequence[str]) -> str:
    """Rates as JSON for the script that draws them: `{"times": […], "series": [[variant, place, rates], …]}`,
    in the order of the flag's variants; a variant's place among them decides its colour.
    """
    places = {variant: place for place, variant in enumerate(variants)}
    ordered = sorted(rates.rates, key=lambda variant: places.get(variant, len(places)))
    series = [
        [variant or CODE_DEFAULT, places.get(variant, len(places)), rates.rates[variant]]
        for variant in ordered
    ]
    return json.dumps({"times": rates.times, "series": series})


def rate_text(rates: VariantRates) -> str:
    """The evaluations per minute of the newest interval: `12 a minute: on 9, off 3`."""
    newest = {variant or CODE_DEFAULT: values[-1] for variant, values in rates.rates.items()}
    parts = ", ".join(f"{variant} {value:.0f}" for variant, value in newest.items())
    return f"{sum(newest.values()):.0f} a minute: {parts}"


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
        "commit_link": commit_link,
        "request_link": request_link,
        "place_link": place_link,
        "problem_link": problem_link,
        "revision_link": revision_link,
        "anchor": anchor,
        "outcome_words": outcome_words,
        "subject_words": subject_words,
    }
    templates.filters |= {
        "after": after,
        "ago": ago,
        "clock": clock,
        "chart": chart,
        "capitalize_first": capitalize_first,
        "person": person,
        "moment": parse_time,
        "layer": state_words.layer_text,
        "problem": state_words.problem_text,
        "rate": rate_text,
        "total_rate": total_rate,
        "short": digests.short,
        "value": value_text,
    }
    return templates


class NotShown(LookupError):
    """There is nothing to show; the text says what is missing."""


def page_number(query: Mapping[str, str]) -> int:
    """The page of rows that a query asks for, from 1; 1 for what is no number."""
    text = query.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


@dataclass(frozen=True)
class Visit:
    """A view that was asked for, and what its caller may see."""

    view: str
    """Its name, which its path ends with."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    source: PageSource
    now: datetime
    has_form: bool = False
    """Whether a form was sent; it may be empty."""

    @property
    def address(self) -> str:
        """The address of what is shown."""
        return address(self.view, **self.query)

    @cached_property
    def sets(self) -> Sequence[str]:
        """The names of the flag sets that the caller may see."""
        return self.source.sets()

    @cached_property
    def states(self) -> Sequence[SetState]:
        """The state of each set that the caller may see."""
        return self.source.states()

    @cached_property
    def other_waits(self) -> Sequence[Wait]:
        """What objects wait for that are about no set."""
        return self.source.other_waits()

    @property
    def pending(self) -> int:
        """How many things wait."""
        return sum(len(state.waits) for state in self.states) + len(self.other_waits)

    @property
    def set_name(self) -> str:
        """The flag set that is shown: that of the query, or the first; empty: there is none."""
        return self.query.get("set") or next(iter(self.sets), "")

    @cached_property
    def shown_set(self) -> ShownSet:
        """The flag set that is shown. Raises NotShown."""
        shown = self.source.shown_set(self.set_name) if self.set_name else None
        if shown is None:
            # The same words for a set that is hidden as for one that is not there.
            raise NotShown(
                f"There is no flag set {self.set_name!r}, or you may not see it."
                if self.set_name
                else "There is no flag set yet, or you may see none."
            )
        return shown
