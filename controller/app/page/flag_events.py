"""The changes of flags that the Events of a FlagSet list. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.provenance import AUTHOR, SUBJECT
from controller.delivery.changed_flags import MOST_NAME
from controller.events.alerts.commit_pages import commit_in
from controller.page.page_source import FlagChange, FlagHistory
from controller.page.words import difference
from controller.runtime.user_text.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.page.delivery.shown_events import ShownEvent
    from evaluator.flags.model import FlagSet

GAP: Final = (
    "Changes older than an hour are not shown: the cluster keeps Events no longer. The repository has them."
)


def last_changes(events: Iterable[ShownEvent], flag_set: FlagSet) -> dict[str, FlagChange]:
    """The newest change of each flag; `events`: of the FlagSet, the newest first."""
    names = {one_line(key, MOST_NAME): key for key in flag_set.flags}
    changes: dict[str, FlagChange] = {}
    for event in events:
        for line in event.changes:
            key = next((names[name] for name in _possible_names(line) if name in names), None)
            if key is not None and key not in changes:
                changes[key] = _change(event, line, one_line(key, MOST_NAME))
    return changes


def history(events: Iterable[ShownEvent], key: str) -> FlagHistory:
    """All changes of a flag that these Events list."""
    name = one_line(key, MOST_NAME)
    changes = tuple(
        _change(event, line, name)
        for event in events
        for line in event.changes
        if name in _possible_names(line)
    )
    return FlagHistory(changes, gap=GAP)


def _possible_names(line: str) -> Iterator[str]:
    """The names that a line such as `~ a: default off → on` may be about: a name may have colons itself."""
    rest = line[2:]
    yield rest
    end = rest.find(": ")
    while end >= 0:
        yield rest[:end]
        end = rest.find(": ", end + 1)


def _change(event: ShownEvent, line: str, name: str) -> FlagChange:
    revision, metadata = event.revision, event.metadata
    return FlagChange(
        commit_in(revision) or revision,
        metadata.get(AUTHOR, ""),
        metadata.get(SUBJECT, ""),
        event.at,
        difference(line, name),
    )
