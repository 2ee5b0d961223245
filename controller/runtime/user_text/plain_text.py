"""Text of strangers, as status, Events, logs and terminals may show it. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from controller.api.provenance import CHANGES

_LINES: Final = frozenset({CHANGES, "pending"})
"""Keys of what has several lines."""


def one_line(text: str, most: int) -> str:
    """At most `most` characters, in which nothing breaks the line or moves a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:most])


def json_object(content: str | bytes) -> dict[str, Any] | None:
    """The JSON object that a text of strangers is; None where it is anything else."""
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
