"""What waits for a person, by sort, as the view of pending work lists it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.delivery.state.actions import FixFlag
from controller.delivery.state.set_state import Where
from controller.delivery.state.state_words import advice, meanwhile_text
from controller.delivery.state.wait_model import Sort
from controller.page.delivery.proxy_members import moment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from controller.api.flagset_status import ProblemStatus
    from controller.delivery.state.set_state import SetState
    from controller.delivery.state.wait_model import Wait

_TITLES: Final = {
    Sort.PROBLEM: "Problems",
    Sort.HELD: "Held flags",
    Sort.GUARD: "Waiting for acceptance",
    Sort.ROLLOUT: "Rollouts",
    Sort.OVERRIDE: "Overrides",
    Sort.SUSPENDED: "Suspended",
}


@dataclass(frozen=True, slots=True)
class PendingItem:
    """One thing that waits."""

    about: str
    """KIND/NAMESPACE/NAME."""
    message: str
    who: str
    """Whose move it is, such as `Person`."""
    meanwhile: str = ""
    """What is served until then; empty: the message says it."""
    problems: tuple[ProblemStatus, ...] = ()
    unlisted: int = 0
    """How many more problems there are."""
    revision: str = ""
    """The revision that has the problems."""
    address: str = ""
    """The URL of its source, for links to its Git server."""
    actions: tuple[tuple[str, bool], ...] = ()
    """What a person may do, the most likely first, each with whether it is a command to type."""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class PendingSection:
    """Things of one sort."""

    title: str
    items: tuple[PendingItem, ...]


def pending_work(states: Iterable[SetState], others: Iterable[Wait]) -> list[PendingSection]:
    """Return what waits, by sort, then by set; sorts without any are left out. `others`: what is about no
    set.
    """
    items: dict[Sort, list[PendingItem]] = {sort: [] for sort in _TITLES}
    for state in states:
        for wait in state.waits:
            items[wait.sort].append(_item_of_set(state, wait))
    for wait in others:
        items[wait.sort].append(_item(wait, Where.CLUSTER))
    return [PendingSection(title, tuple(items[sort])) for sort, title in _TITLES.items() if items[sort]]


def _item_of_set(state: SetState, wait: Wait) -> PendingItem:
    item, newest = _item(wait, state.where), state.newest
    if not any(isinstance(action, FixFlag) for action in wait.actions):
        return item
    # Each problem has a line of its own, with a link to its place.
    return replace(
        item,
        meanwhile=meanwhile_text(state),
        problems=newest.problems,
        unlisted=newest.problem_count - len(newest.problems),
        revision=newest.revision,
        address=state.address,
        actions=(),
    )


def _item(wait: Wait, where: Where) -> PendingItem:
    return PendingItem(
        str(wait.subject),
        wait.message,
        wait.who.value,
        actions=tuple(advice(action, where) for action in wait.actions),
        since=moment(wait.since),
    )
