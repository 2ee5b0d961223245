"""Times, names, revisions and values as the page writes them. Pure."""

from __future__ import annotations

import json
import re
from datetime import UTC
from typing import TYPE_CHECKING, Final

from controller.configurations.propagation import duration_text

if TYPE_CHECKING:
    from datetime import datetime

    from evaluator.flags.model import Json

_UNITS: Final = (
    (86_400 * 365, "year"),
    (86_400 * 30, "month"),
    (86_400, "day"),
    (3600, "hour"),
    (60, "minute"),
)
_DIGEST: Final = re.compile(r"^(.*@)?(?:sha1|sha256):([0-9a-f]{7})[0-9a-f]*$")


def ago(moment: datetime | None, now: datetime) -> str:
    """`3 hours ago`; empty for an unknown moment."""
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def clock(moment: datetime) -> str:
    """`2026-11-28 12:03:04 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def after(seconds: float) -> str:
    """`after 1.2s`."""
    return f"after {duration_text(seconds)}" if seconds else "at once"


def person(author: str) -> str:
    """`Ada` of `Ada <ada@example.com>`."""
    return author.partition(" <")[0].strip() or author


def short_revision(revision: str) -> str:
    """`main@1a2b3c4` of `main@sha1:1a2b3c4…`."""
    match = _DIGEST.match(revision)
    return f"{match[1] or ''}{match[2]}" if match else revision


def value_text(value: Json, most: int = 120) -> str:
    """A variant's value as JSON, cut after `most` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[: most - 1]}…"
