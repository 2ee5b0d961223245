"""One request for a view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from controller.page.rendering import address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.delivery.state.set_state import SetState
    from controller.delivery.state.wait_model import Wait
    from controller.page.page_source import PageSource, ShownSet


class NotShown(LookupError):
    """There is nothing to show; the text says what is missing."""


def page_number(query: Mapping[str, str]) -> int:
    """The page of rows that a query asks for, from 1; 1 for what is no number."""
    text = query.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else 1


@dataclass(frozen=True)
class Visit:
    """A view that was asked for, and what its caller may see."""

    view: str
    """Its name, which its path ends with."""
    query: Mapping[str, str]
    form: Mapping[str, str]
    source: PageSource
    now: datetime
    has_form: bool = False
    """Whether a form was sent; it may be empty."""

    @property
    def address(self) -> str:
        """The address of what is shown."""
        return address(self.view, **self.query)

    @cached_property
    def sets(self) -> Sequence[str]:
        """The names of the flag sets that the caller may see."""
        return self.source.sets()

    @cached_property
    def states(self) -> Sequence[SetState]:
        """The state of each set that the caller may see."""
        return self.source.states()

    @cached_property
    def other_waits(self) -> Sequence[Wait]:
        """What objects wait for that are about no set."""
        return self.source.other_waits()

    @property
    def pending(self) -> int:
        """How many things wait."""
        return sum(len(state.waits) for state in self.states) + len(self.other_waits)

    @property
    def set_name(self) -> str:
        """The flag set that is shown: that of the query, or the first; empty: there is none."""
        return self.query.get("set") or next(iter(self.sets), "")

    @cached_property
    def shown_set(self) -> ShownSet:
        """The flag set that is shown. Raises NotShown."""
        shown = self.source.shown_set(self.set_name) if self.set_name else None
        if shown is None:
            # The same words for a set that is hidden as for one that is not there.
            raise NotShown(
                f"There is no flag set {self.set_name!r}, or you may not see it."
                if self.set_name
                else "There is no flag set yet, or you may see none."
            )
        return shown
