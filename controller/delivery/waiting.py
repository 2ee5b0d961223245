"""Decides for `flagstaff wait` whether a revision is served, from objects as they are. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.flagset_status import FlagSetStatus, HistoryEntry
from controller.api.objects.conditions import FALSE, READY, STALLED, TRUE
from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.api.openfeature.featureflagconfiguration import LaggardStatus

SHORTEST: Final = 7
"""Fewest characters that abbreviate a commit's name."""
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class WaitState:
    """How far a revision has come."""

    done: bool
    message: str
    """The state for people, in one line."""
    waits_for: tuple[str, ...] = ()
    """The members that do not serve it, as far as proxies name them."""
    over: bool = False
    """Whether it will not be served until a person changes something."""


@dataclass(frozen=True, slots=True)
class WaitTarget:
    """What is waited for."""

    revision: str
    """`main@sha1:…`, or a commit, or the beginning of one."""
    percent: float = 100.0
    allow_none: bool = False
    """Whether it is enough that there is no subscriber."""


def is_revision(text: str) -> bool:
    """Whether `text` is something that may be waited for."""
    return "@" in text or _COMMIT.fullmatch(text) is not None


def names(wanted: str, revision: str) -> bool:
    """Return whether `wanted` is this revision, its commit, or the beginning of its commit."""
    if wanted == revision:
        return True
    commit = revision.rpartition(":")[2]
    return _COMMIT.fullmatch(wanted) is not None and commit.startswith(wanted)


def wait_state(configuration: Resource | None, flag_set: Resource | None, wanted: WaitTarget) -> WaitState:
    """Return how far a revision has come, by the object and the FlagSet that writes it, if any."""
    if configuration is None:
        return WaitState(False, "the FeatureFlagConfiguration does not exist yet")
    status = ConfigurationStatus.of(configuration)
    if status.observed_generation != configuration.generation:
        return WaitState(False, "the controller has not processed the FeatureFlagConfiguration yet")
    entry = _entry(flag_set, wanted.revision)
    # Where the two differ, one of them is older: whether all flags are as the revision has them is not known.
    agree = flag_set is None or (FlagSetStatus.of(flag_set).digest or "") == status.own_digest
    partly = entry is not None and entry.held
    # Also a commit that changed no flag made what is in the object.
    same = entry is not None and entry.digest == status.own_digest
    if not agree or partly or not (same or names(wanted.revision, status.revision or "")):
        return _elsewhere(status.revision or "no revision", flag_set, wanted.revision)
    return _count_state(status, wanted)


def _entry(flag_set: Resource | None, wanted: str) -> HistoryEntry | None:
    """The newest entry of a revision in the FlagSet's history."""
    return next(
        (entry for entry in FlagSetStatus.of(flag_set).history if names(wanted, entry.revision)), None
    )


def _elsewhere(revision: str, flag_set: Resource | None, wanted: str) -> WaitState:
    """`found` is the revision that the FeatureFlagConfiguration has."""
    if flag_set is not None and flag_set.suspended:
        message = f"FlagSet {flag_set.name} is suspended, with {revision} applied; set spec.suspend to false"
        return WaitState(False, message, over=True)
    status, entry = FlagSetStatus.of(flag_set), _entry(flag_set, wanted)
    attempted = status.last_attempted_revision or ""
    partly = entry is not None and bool(entry.held)
    if names(wanted, attempted) and (entry is None or partly):
        ready = status.condition(READY)
        said = ready.message if ready.status == FALSE else ""
        lacking = "applied whole" if entry else "applied"
        # The message begins with the revision, and says what became of it.
        message = said if said.startswith(attempted) else f"{attempted} is not {lacking}"
        if said and message != said:
            message = f"{message}: {said}"
        judged = flag_set is not None and status.observed_generation == flag_set.generation
        return WaitState(False, message, over=judged and status.condition(STALLED).status == TRUE)
    if partly:
        return WaitState(False, f"{wanted} was applied only in part, and {attempted} has replaced it")
    if names(wanted, revision):
        return WaitState(
            False,
            f"the FeatureFlagConfiguration does not have the content that the FlagSet built from {revision}",
        )
    if entry:
        return WaitState(False, f"{wanted} was applied, and {revision} has replaced it")
    ready = status.condition(READY)
    why = f"; the FlagSet is not ready: {ready.message}" if ready.status == FALSE else ""
    return WaitState(False, f"the FeatureFlagConfiguration has {revision}, not {wanted}{why}")


def _count_state(status: ConfigurationStatus, wanted: WaitTarget) -> WaitState:
    total, served = status.total or 0, status.served_by or 0
    what = status.revision or status.digest
    if not total:
        message = f"no evaluator that sends receipts is subscribed to {what}"
        return WaitState(wanted.allow_none, message)
    message = f"{served} of {total} evaluators serve {what}"
    done = served * 100 >= wanted.percent * total
    return WaitState(done, message, _laggards(status, total - served))


def _laggards(status: ConfigurationStatus, lagging: int) -> tuple[str, ...]:
    lines = [line(laggard) for laggard in (status.laggards or ())[:lagging]]
    rest = lagging - len(lines)
    return (*lines, f"and {rest} more") if rest and lines else tuple(lines)


def line(laggard: LaggardStatus) -> str:
    """`shop/checkout-1 on node-3: silent since …, served main@sha1:…`."""
    node = f" on {laggard.node}" if laggard.node else ""
    serves, since = laggard.serves or "nothing", laggard.since or "an unknown time"
    if laggard.silent:
        return f"{laggard.name}{node}: silent since {since}, served {serves}"
    if laggard.reason:
        return f"{laggard.name}{node}: keeps {serves} since {since}: {laggard.reason}"
    return f"{laggard.name}{node}: serves {serves} (behind since {since})"
