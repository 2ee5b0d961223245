"""What the views of deliveries and of pending work show: the way of a commit, and what waits for a person.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.delivery.actions import FixFlag, Sort, Wait
from controller.delivery.digests import names_revision
from controller.delivery.set_state import Reach, Served, SetState, Where
from controller.delivery.state_words import advice, meanwhile_text
from controller.page.page_source import FleetMember, time_served_by
from evaluator.host.times import parse_duration, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from controller.api.flagset_status import ProblemStatus
    from controller.delivery.reach import Reached


_HALF: Final = 50
_ALL: Final = 100


@dataclass(frozen=True, slots=True)
class Milestone:
    """One step of a commit's way."""

    title: str
    """Committed, Seen, Built, Applied, On half of the evaluators, On all evaluators, For all users."""
    done: bool
    at: datetime | None = None
    """When it was done; None: it is not, or the time is not known."""
    seconds: float | None = None
    """Seconds since the step before, as far as both times are known."""


def timeline(state: SetState, reached: Reached, members: Sequence[FleetMember] = ()) -> tuple[Milestone, ...]:
    """The steps of the newest revision of a set, which has come as far as `reached`. Git records no time of a
    push: the way begins at the commit.
    """
    before: datetime | None = None
    steps = []
    for title, done, recorded in _steps(state, reached, members):
        # Some times have whole seconds, and an evaluator may have served the content before its commit.
        at = recorded if recorded is None or before is None else max(recorded, before)
        seconds = None if at is None or before is None else (at - before).total_seconds()
        steps.append(Milestone(title, done, at, seconds))
        before = at or before
    return tuple(steps)


def _steps(
    state: SetState, reached: Reached, members: Sequence[FleetMember]
) -> Iterator[tuple[str, bool, datetime | None]]:
    newest, served, level = state.newest, state.served, reached.level
    if newest.stored_at:
        yield "Committed", True, parse_time(newest.committed_at)
        yield "Seen", True, parse_time(newest.seen_at)
        yield "Built", True, parse_time(newest.stored_at)
    if state.writer is not None:
        entries = (entry for entry in state.history if names_revision(newest.revision, entry.revision))
        entry = next(entries, None)
        title = "Applied in part" if entry is not None and entry.held else "Applied"
        yield title, entry is not None, None if entry is None else parse_time(entry.applied_at)
    # Before it is delivered, the numbers are about another revision.
    delivered = level >= Reach.DELIVERED and bool(served.total)
    at: datetime | None = None
    for percent, title in ((_HALF, "On half of the evaluators"), (_ALL, "On all evaluators")):
        done = delivered and served.count * 100 >= percent * (served.total or 0)
        at = time_served_by(members, percent) if done else None
        if done and at is None and percent == _ALL:
            at = _last_follower(served)
        yield title, done, at
    everybody = level is Reach.SERVED_BY_ALL
    yield "For all users", everybody, at if everybody else None


def _last_follower(served: Served) -> datetime | None:
    began, seconds = parse_time(served.since), parse_duration(served.within)
    return None if began is None or seconds is None else began + timedelta(seconds=seconds)


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
        since=parse_time(wait.since),
    )
