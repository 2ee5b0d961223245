"""Fills in the words that an alert gives its messages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.parsing.templates import Words
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
    return Words(text).safe_substitute(metadata | given)[:MOST]
