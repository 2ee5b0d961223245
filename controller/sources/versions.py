"""Versions among tags, ranges of them as npm writes them, and names for messages. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

import semantic_version

from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LISTED_NAMES: Final = 10


def parse_range(text: str) -> semantic_version.NpmSpec:
    """A range as in npm or Flux (commas, `v1`, a space after `>=`). Raises Stalled (InvalidReference)."""
    plain = re.sub(r"([<>=~^])\s+(?=[\dv])", r"\1", text.replace(",", " "))
    plain = re.sub(r"(?<![\w.+-])v(?=\d)", "", plain)
    # The library finds nothing between two prereleases; `<1.1.0-0` and `<1.1.0` leave out the same versions.
    plain = re.sub(r"<(\d+\.\d+\.\d+)-0(?=\s|$)", r"<\1", " ".join(plain.split()))
    try:
        return semantic_version.NpmSpec(plain)
    except ValueError:
        message = f"{text!r} is not a version range; write for example '>=1.0 <2', '1.x' or '^2.1'"
        raise Stalled("InvalidReference", message) from None


def highest(tags: Iterable[str], text: str) -> str | None:
    """The tag of the highest version in the range `text`, or None. Raises Stalled (InvalidReference)."""
    wanted = parse_range(text)
    found = [
        (version.precedence_key, tag)
        for tag in tags
        if (version := _version(tag)) is not None and wanted.match(version)
    ]
    return max(found)[1] if found else None


def is_older(tag: str, other: str) -> bool:
    """Whether `tag` is a lower version than `other`; False where one of them is none."""
    this, that = _version(tag), _version(other)
    return this is not None and that is not None and bool(this.precedence_key < that.precedence_key)


def _version(tag: str) -> semantic_version.Version | None:
    try:
        return semantic_version.Version(tag.removeprefix("v"))
    except ValueError:
        return None


def near(wanted: str, names: Iterable[str], kinds: str) -> str:
    """The name that may be meant by `wanted`, and some of those that there are, as `tags: v1, v2`."""
    known = sorted(names)
    found = difflib.get_close_matches(wanted, known[:1000], n=1)
    question = f"did you mean {found[0]!r}? " if found else ""
    return question + listed(known, kinds)


def listed(names: Sequence[str], kinds: str) -> str:
    """Some of the `names`: `tags: v1, v2 and 3 more`."""
    if not names:
        return f"there are no {kinds}"
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return f"{kinds}: {', '.join(names[:_LISTED_NAMES])}{more}"
