"""Words that an alert gives its messages: a text with a fixed set of names, and nothing to compute. Pure."""

from __future__ import annotations

import re
from string import Template
from typing import Final

from controller.api.parsing import InvalidTextError

NAMES: Final = frozenset(
    {
        "alert", "author", "changes", "digest", "kind", "link", "message", "name", "namespace", "page",
        "reason", "revision", "severity", "state", "subject", "summary",
    }
)  # fmt: skip


class Words(Template):
    """A text with `$name` and `${name}`."""

    flags = re.RegexFlag(0)
    idpattern = r"[a-z]+"


def check(text: str) -> None:
    """Raise InvalidTextError for a name that is not known, and for a `$` that begins none, with its place as
    `line:column: why`.
    """
    for match in Words.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if match["invalid"] is not None:
            raise InvalidTextError(f"{_place(text, match.start())}: write $$ for a $ that begins no name")
        if name is not None and name not in NAMES:
            listed = ", ".join(sorted(NAMES))
            raise InvalidTextError(
                f'{_place(text, match.start())}: "{name[:64]}" is not known; there is {listed}'
            )


def _place(text: str, position: int) -> str:
    before = text[:position]
    return f"{before.count(chr(10)) + 1}:{position - (before.rfind(chr(10)) + 1) + 1}"
