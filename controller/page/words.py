"""Times, names, revisions and values as the page writes them. Pure."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING, Final

from controller.configurations.propagation import duration_text
from controller.delivery.state.digests import short

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from controller.page.page_source import VariantRates
    from evaluator.flags.model import Json

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
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def capitalize_first(text: str) -> str:
    """The text with its first letter in upper case, unless it begins with a revision; the others stay."""
    return text if "@" in text.partition(" ")[0] else text[:1].upper() + text[1:]


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
