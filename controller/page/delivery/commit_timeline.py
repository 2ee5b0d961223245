"""The way of the newest commit of a flag set, with the time of each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.delivery.state.digests import names_revision
from controller.delivery.state.set_state import Reach
from controller.page.delivery.proxy_members import moment, time_served_by
from evaluator.host.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.delivery.state.reach import Reached
    from controller.delivery.state.set_state import Served, SetState
    from controller.page.delivery.proxy_members import FleetMember

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
        yield "Committed", True, moment(newest.committed_at)
        yield "Seen", True, moment(newest.seen_at)
        yield "Built", True, moment(newest.stored_at)
    if state.writer is not None:
        entries = (entry for entry in state.history if names_revision(newest.revision, entry.revision))
        entry = next(entries, None)
        title = "Applied in part" if entry is not None and entry.held else "Applied"
        yield title, entry is not None, None if entry is None else moment(entry.applied_at)
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
    began, seconds = moment(served.since), parse_duration(served.within)
    return None if began is None or seconds is None else began + timedelta(seconds=seconds)
