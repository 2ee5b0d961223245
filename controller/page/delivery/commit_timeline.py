"""The way of the newest commit of a flag set, with the time of each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from controller.api.flagreceipt import OBSERVED_AT
from controller.api.flagset_status import FlagSetStatus
from controller.api.kinds import status_of
from controller.api.objects.artifact_status import SourceStatus
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
from controller.page.delivery.proxy_members import moment, time_served_by
from evaluator.host.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource
    from controller.page.delivery.set_deliveries import Delivery

_HALF: Final = 50
_ALL: Final = 100


@dataclass(frozen=True, slots=True)
class Milestone:
    """One step of a commit's way."""

    title: str
    """Committed, Seen, Built, Applied, Served by 50 %, Served by 100 %."""
    done: bool
    at: datetime | None = None
    """When it was done; None: it is not, or the time is not known."""
    seconds: float | None = None
    """Seconds since the step before, as far as both times are known."""


def timeline(delivery: Delivery) -> tuple[Milestone, ...]:
    """The steps of the newest revision of a delivery. Git records no time of a push: the way begins at the
    commit.
    """
    before: datetime | None = None
    steps = []
    for title, done, recorded in _steps(delivery):
        # Some times have whole seconds, and an evaluator may have served the content before its commit.
        at = recorded if recorded is None or before is None else max(recorded, before)
        seconds = None if at is None or before is None else (at - before).total_seconds()
        steps.append(Milestone(title, done, at, seconds))
        before = at or before
    return tuple(steps)


def _steps(delivery: Delivery) -> Iterator[tuple[str, bool, datetime | None]]:
    flag_set, configuration = delivery.flag_set, delivery.configuration
    source = None if delivery.source is None else status_of(delivery.source)
    artifact = source.artifact if isinstance(source, SourceStatus) else None
    newest = delivery.wanted if artifact is None else artifact.revision
    if artifact is not None:
        yield "Committed", True, moment(artifact.committed_at)
        yield "Seen", True, moment(artifact.metadata.get(OBSERVED_AT))
        yield "Built", True, moment(artifact.last_update_time)
    if flag_set is not None:
        entries = (entry for entry in FlagSetStatus.of(flag_set).history if entry.revision == newest)
        entry = next(entries, None)
        yield "Applied", entry is not None, None if entry is None else moment(entry.applied_at)
    if configuration is None:
        return
    status, members = ConfigurationStatus.of(configuration), delivery.members
    served, total = status.served_by or 0, status.total or 0
    if members:
        served, total = sum(not member.lagging for member in members), len(members)
    has_newest = _has_revision(flag_set, status, newest)
    for percent in (_HALF, _ALL):
        done = bool(has_newest and total and served * 100 >= percent * total)
        at = time_served_by(members, percent) if done else None
        if done and at is None and percent == _ALL:
            at = _last_follower(configuration.annotations.get(OBSERVED_AT), status.served_within)
        yield f"Served by {percent} %", done, at


def _has_revision(flag_set: Resource | None, status: ConfigurationStatus, revision: str) -> bool:
    """Whether an object has the content of a revision; before that, its numbers are about another one."""
    if flag_set is None:
        return status.revision == revision
    # Also a commit that changed no flag made what is in the object.
    digests = {entry.digest for entry in FlagSetStatus.of(flag_set).history if entry.revision == revision}
    return status.own_digest in digests


def _last_follower(observed_at: str | None, within: str | None) -> datetime | None:
    began, seconds = moment(observed_at), parse_duration(within or "")
    return None if began is None or seconds is None else began + timedelta(seconds=seconds)
