"""Sanitises untrusted text for statuses, Events, logs and terminals. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from controller.api.provenance import CHANGES

_LINES: Final = frozenset({CHANGES, "pending"})
"""Keys of values with several lines."""


def one_line(text: str, most: int) -> str:
    """Return at most `most` characters, without line breaks and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:most])


def json_object(content: str | bytes) -> dict[str, Any] | None:
    """Parse an untrusted text as a JSON object; None for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def cleaned(value: Any) -> Any:
    """A status or a part of one, in whose texts every sign that cannot be seen is U+FFFD. Revisions stay as
    they are, and what was observed of a spec: both are compared with what they were taken from. So do
    messages that wait and lists of changed flags, which are made of clean lines.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict):
        return {key: each if _is_kept(key) else cleaned(each) for key, each in value.items()}
    return [cleaned(each) for each in value] if isinstance(value, list) else value


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else "\ufffd"


def _is_kept(key: str) -> bool:
    return key in _LINES or key.startswith("observed") or key.endswith(("revision", "Revision"))
