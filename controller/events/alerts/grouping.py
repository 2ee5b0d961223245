"""Joins several messages of an alert with grouping into one. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.api.flagprovider import SEVERITIES
from controller.api.objects.meta import timestamp
from controller.api.objects.provenance import CHANGES
from evaluator.flags.model import REVISION_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.api.flagalert import FlagAlertSpec
    from controller.api.flagprovider import Message

KEY: Final = 16
"""Characters of a key that distinguish it from another."""
INCIDENTS: Final = frozenset({"pagerduty", "opsgenie", "alertmanager"})
"""Provider types that identify an incident by its object: its messages are never grouped."""
_LINES: Final = 20
MOST_JOINED: Final = 500
"""Most messages that are joined with one."""


def with_waiting_time(message: Message, spec: FlagAlertSpec, type_: str) -> Message:
    """Return the message with its group's waiting time, for a provider of this type."""
    if spec.group_wait is None or (type_ in INCIDENTS and message.state is not None):
        return message
    # All but the revision are fields of the message.
    revision = message.metadata.get(REVISION_KEY, "")
    group = "/".join((message.state or "", *(getattr(message, name, revision) for name in spec.group_by)))
    after = datetime.fromisoformat(message.time) + timedelta(seconds=spec.group_wait)
    return message.model_copy(update={"group": group, "after": timestamp(after)})


def group_of(message: Message, pending: Iterable[Message]) -> Message | None:
    """Return the waiting message to join with; None if the message would overtake one of its object."""
    if message.group is None:
        return None
    group = None
    for waiting in pending:
        if (
            (waiting.alert, waiting.group) == (message.alert, message.group)
            and waiting.after is not None
            and waiting.after > message.time
            and len(waiting.others) < MOST_JOINED
        ):
            group = waiting
        elif waiting.alert == message.alert and _is_about(waiting, _object(message)):
            group = None
    return group


def join(group: Message, message: Message) -> Message:
    """Join two messages; the result keeps the key, the object and the time of the first."""
    count = len(group.others) + 1
    lines = group.message if group.others else _line(group)
    if count < _LINES:
        lines = f"{lines}\n{_line(message)}"
    else:
        lines = "\n".join((*lines.split("\n")[: _LINES - 1], f"… and {count + 2 - _LINES} more"))
    changes = "\n".join(text for part in (group, message) if (text := part.metadata.get(CHANGES)))
    metadata = message.metadata | group.metadata | ({CHANGES: changes[:4_000]} if changes else {})
    objects = group.objects
    if not _is_about(group, _object(message)):
        objects = (*objects, _object(message))
    return group.model_copy(
        update={
            "message": lines,
            "metadata": metadata,
            "others": (*group.others, message.key[:KEY]),
            "objects": objects,
            "severity": max(group.severity, message.severity, key=SEVERITIES.index),
        }
    )


def _object(message: Message) -> str:
    place = f"{message.namespace}/" if message.namespace else ""
    return f"{message.kind}/{place}{message.name}"


def _is_about(message: Message, subject: str) -> bool:
    """Whether the message, or one joined with it, is about the object that `_object` names so."""
    return subject == _object(message) or subject in message.objects


def _line(message: Message) -> str:
    words = message.message.replace("\n", " ")
    return f"{_object(message)}: {words}"[:300]
