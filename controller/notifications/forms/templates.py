"""Words that an alert gives its messages: a text with a fixed set of names, and nothing to compute. Pure."""

from __future__ import annotations

import re
from string import Template
from typing import TYPE_CHECKING, Final

from controller.api.provenance import AUTHOR, CHANGES, LINK, SUBJECT
from controller.notifications.messages import SUMMARY
from evaluator.flags.model import DIGEST_KEY, REVISION_KEY

if TYPE_CHECKING:
    from controller.api.provider import Message

MOST: Final = 4_000
"""Characters of what comes of a template."""
_METADATA: Final = {
    "author": AUTHOR,
    "changes": CHANGES,
    "digest": DIGEST_KEY,
    "link": LINK,
    "revision": REVISION_KEY,
    "subject": SUBJECT,
    "summary": SUMMARY,
}
NAMES: Final = frozenset(
    {"alert", "kind", "message", "name", "namespace", "reason", "severity", "state", *_METADATA}
)


class TemplateError(ValueError):
    """A template cannot be used; the text says where, as `line:column: why`."""


class _Words(Template):
    flags = re.RegexFlag(0)
    idpattern = r"[a-z]+"


def check(text: str) -> None:
    """Raises TemplateError for a name that is not known, and for a `$` that begins none."""
    for found in _Words.pattern.finditer(text):
        name = found["named"] or found["braced"]
        if found["invalid"] is not None:
            raise TemplateError(f"{_place(text, found.start())}: write $$ for a $ that begins no name")
        if name is not None and name not in NAMES:
            listed = ", ".join(sorted(NAMES))
            raise TemplateError(
                f'{_place(text, found.start())}: "{name[:64]}" is not known; there is {listed}'
            )


def filled(text: str, message: Message, namespace: str) -> str:
    """The text with what is known of the message; what is not known is empty."""
    metadata = {name: message.metadata.get(key, "") for name, key in _METADATA.items()}
    given = {
        "alert": message.alert,
        "kind": message.kind,
        "message": message.message,
        "name": message.name,
        "namespace": namespace,
        "reason": message.reason,
        "severity": message.severity,
        "state": message.state or "",
    }
    return _Words(text).safe_substitute(metadata | given)[:MOST]


def _place(text: str, position: int) -> str:
    before = text[:position]
    return f"{before.count(chr(10)) + 1}:{position - (before.rfind(chr(10)) + 1) + 1}"
