"""Versions among tags, and names for messages. Pure."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Final

from controller.api.references import parse_range, read_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LISTED_NAMES: Final = 10
_COMPARED_NAMES: Final = 200
_COMPARED: Final = 64
"""Most characters of names that are compared: comparing two takes time in the square of their length."""
_DIFFERENCE: Final = 8
"""Most characters that a name may be longer or shorter."""


def highest(tags: Iterable[str], text: str) -> str | None:
    """The tag of the highest version in the range `text`, or None. Takes seconds for 100,000 tags: call it in
    a thread. Raises InvalidTextError.
    """
    wanted = parse_range(text)
    matching = [
        (version.precedence_key, tag)
        for tag in tags
        if (version := read_version(tag)) is not None and wanted.match(version)
    ]
    return max(matching)[1] if matching else None


def near(wanted: str, names: Iterable[str], kinds: str) -> str:
    """Return a name similar to `wanted`, and some of the existing ones, as `tags: v1, v2`. Takes at most a
    tenth of a second, whatever the names are.
    """
    known = sorted(names)
    alike = (name for name in known if len(name) <= _COMPARED and abs(len(name) - len(wanted)) <= _DIFFERENCE)
    close = difflib.get_close_matches(wanted[:_COMPARED], islice(alike, _COMPARED_NAMES), n=1)
    question = f"did you mean {close[0]!r}? " if close else ""
    return question + shorten_list(known, kinds)


def shorten_list(names: Sequence[str], kinds: str) -> str:
    """Return some of the `names`: `tags: v1, v2 and 3 more`."""
    if not names:
        return f"there are no {kinds}"
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return f"{kinds}: {', '.join(names[:_LISTED_NAMES])}{more}"
