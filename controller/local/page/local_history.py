"""The history of flags as far as it was read from a repository on this machine."""

from __future__ import annotations

import contextlib
import logging
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from controller.local.page.flag_commits import MOST_COMMITS, FlagCommits
from controller.page.page_source import FlagHistory, ShownSet
from evaluator.resolving.resolve import compile_flag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from controller.local.local_options import LocalOptions
    from controller.local.page.flag_commits import CommitChanges
    from controller.page.page_source import FlagChange, FlagPlace

log = logging.getLogger(__name__)

READ_SECONDS: Final = 30.0
"""Seconds for the history of one revision; what is not read by then is left out."""
SHOW_SECONDS: Final = 0.5
"""Seconds between two moments at which what was read so far is shown."""


class LocalHistory:
    """The commits that changed flags, and where flags are defined. `read` is called in a thread at a time;
    others see what it has read so far.
    """

    def __init__(self, folder: Path | None, options: LocalOptions) -> None:
        """folder: the repository; None: it is elsewhere."""
        self.address = ""
        """The URL of the repository's origin; empty: it has none."""
        self.last_changes: Mapping[str, FlagChange] = MappingProxyType({})
        """The newest change of each flag."""
        self.overlays: tuple[ShownSet, ...] = ()
        """The flags of other environments, named after their folders."""
        self._commits = None if folder is None else FlagCommits(folder, options)
        self._changes: tuple[CommitChanges, ...] = ()
        self._read_from = ""
        self._places: Mapping[str, tuple[FlagPlace, ...]] = MappingProxyType({})
        self._gap = "The history is being read." if folder else "The repository is not on this machine."

    def of(self, key: str) -> FlagHistory:
        """The history of a flag."""
        changes = tuple(commit.of(key) for commit in self._changes if key in commit.lines)
        return FlagHistory(changes, self._places.get(key, ()), self._gap)

    def read(self, commit: str, notify: Callable[[], None]) -> None:
        """Read the history up to a commit, or HEAD; `notify` is called when there is more to show."""
        commits = self._commits
        if commits is None:
            return
        try:
            self.address = commits.origin()
            self._places = MappingProxyType(commits.places(commit))
            self.overlays = tuple(
                ShownSet(folder, flag_set, compile_flag_set(flag_set), title=folder)
                for folder, flag_set in commits.overlays(commit).items()
            )
            self._read_changes(commits, commit, notify)
        except Exception:
            # libgit2 raises several; the page is served without a history then.
            log.exception("the history of flags cannot be read")
            self._gap = "The repository cannot be read."
        notify()

    def _read_changes(self, commits: FlagCommits, commit: str, notify: Callable[[], None]) -> None:
        known, newest = self._changes, ""
        read: list[CommitChanges] = []
        began = shown = monotonic()
        met = False

        def is_known(name: str) -> bool:
            nonlocal met, newest
            newest = newest or name
            met = name == self._read_from
            return met

        self._gap = ""
        with contextlib.closing(commits.read(commit, is_known)) as newer:
            for changes in newer:
                read.append(changes)
                if monotonic() - began > READ_SECONDS or len(read) >= MOST_COMMITS:
                    self._gap = "Earlier commits are not shown."
                    break
                if monotonic() - shown > SHOW_SECONDS:
                    shown = monotonic()
                    self._show((*read, *known))
                    notify()
        self._show((*read, *known) if met else tuple(read))
        self._read_from = newest

    def _show(self, changes: tuple[CommitChanges, ...]) -> None:
        last: dict[str, FlagChange] = {}
        for commit in reversed(changes):
            last |= {key: commit.of(key) for key in commit.lines}
        self._changes, self.last_changes = changes, MappingProxyType(last)
