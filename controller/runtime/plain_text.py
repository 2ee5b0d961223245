"""Sanitises untrusted text for statuses, Events, logs and terminals. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import CHANGES
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANYWHERE: Final = 8
"""Characters of a secret that is removed even from the middle of a word."""
_SHORTEST: Final = 4
"""Characters of a secret that is removed at all: removing a shorter one, a part of any text, discloses it."""
_LINES: Final = frozenset({CHANGES, "pending"})
"""Keys of values with several lines."""


def one_line(text: str, most: int) -> str:
    """Return at most `most` characters, without line breaks and control characters; `…` for the rest."""
    return cut("".join(letter if letter.isprintable() else " " for letter in text[: most + 1]), most)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with `***` in place of secrets: of long ones anywhere, of short ones where they are
    whole words. A password such as `repo` would otherwise turn `repository` into `***sitory`.
    """
    # The longest first: a shorter one may be part of it.
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _ANYWHERE:
            text = text.replace(secret, "***")
        elif len(secret) >= _SHORTEST:
            text = re.sub(rf"(?<![^\W_]){re.escape(secret)}(?![^\W_])", "***", text)
    return text


def json_object(content: str | bytes) -> dict[str, Any] | None:
    """Parse an untrusted text as a JSON object; None for anything else."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def clean(value: Any) -> Any:
    """A status or a part of one, in whose texts every sign that cannot be seen is U+FFFD. Revisions stay as
    they are, and what was observed of a spec: both are compared with what they were taken from. So do
    messages that wait and lists of changed flags, which are made of clean lines.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_visible, value))
    if isinstance(value, dict):
        return {key: part if _is_kept(key) else clean(part) for key, part in value.items()}
    return [clean(part) for part in value] if isinstance(value, list) else value


def _visible(letter: str) -> str:
    return letter if letter.isprintable() else "\ufffd"


def _is_kept(key: str) -> bool:
    return key in _LINES or key.startswith("observed") or key.endswith(("revision", "Revision"))
