"""Lists the names that exist, for a message about one that does not. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LISTED_NAMES: Final = 10


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
