"""The changes of flags that the Events of a FlagSet tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api.objects.provenance import AUTHOR, SUBJECT
from controller.events.alerts.commit_pages import commit_in
from controller.page.page_source import FlagChange, FlagHistory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.page.delivery.shown_events import ShownEvent
    from evaluator.flags.model import FlagSet

GAP: Final = (
    "Changes older than an hour are not shown: the cluster keeps Events no longer. The repository has them."
)


def last_changes(events: Iterable[ShownEvent], flag_set: FlagSet) -> dict[str, FlagChange]:
    """The newest change of each flag; `events`: of the FlagSet, the newest first."""
    changes: dict[str, FlagChange] = {}
    for event in events:
        for key, words in event.differences.items():
            if key in flag_set.flags and key not in changes:
                changes[key] = _change(event, words)
    return changes


def history(events: Iterable[ShownEvent], key: str) -> FlagHistory:
    """All changes of a flag that these Events tell."""
    told = ((event, event.differences) for event in events)
    return FlagHistory(tuple(_change(event, words[key]) for event, words in told if key in words), gap=GAP)


def _change(event: ShownEvent, words: str) -> FlagChange:
    revision, metadata = event.revision, event.metadata
    return FlagChange(
        commit_in(revision) or revision, metadata.get(AUTHOR, ""), metadata.get(SUBJECT, ""), event.at, words
    )
