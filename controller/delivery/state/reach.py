"""How far a revision has come, by the state of its set. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from controller.delivery.state.digests import names_revision
from controller.delivery.state.set_state import CandidateLayer, Reach, Verdict
from controller.delivery.state.state_words import laggard_texts, layers_text, served_text

if TYPE_CHECKING:
    from controller.api.flagset_status import HistoryEntry
    from controller.delivery.state.set_state import Layer, SetState

_STOPPED: Final = frozenset({"Failed", "Abandoned"})
"""Phases of candidates that only a person has rolled out again."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about."""

    revision: str
    """`main@sha1:…`, or a commit, or the beginning of one."""
    percent: float = 100.0
    """How many of the evaluators count as all."""
    allow_none: bool = False
    """Whether it is enough that there is no evaluator."""
    everybody: bool = False
    """Whether every user must get all of its flags."""
    rollout: str = ""
    """With `everybody`: the FlagRollout whose flags alone count; empty: all flags."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a revision has come."""

    level: Reach
    message: str
    """The same for people, in one line."""
    done: bool = False
    """Whether that is as far as was asked for."""
    blocked: bool = False
    """Whether it comes no further until a person changes something."""
    laggards: tuple[str, ...] = ()
    """The evaluators that do not serve it, as far as proxies name them."""


def reach(state: SetState, target: Target) -> Reached:
    """Return how far a revision has come."""
    entry = _entry(state, target.revision)
    if not state.exists:
        known = _before_delivery(state, target, entry)
        missing = f"{state.object_text} does not exist yet"
        return known if known.blocked else replace(known, message=missing)
    if not state.processed:
        level = Reach.APPLIED if entry is not None and not entry.held else Reach.UNKNOWN
        return Reached(level, f"the controller has not processed {state.object_text} yet")
    partly = bool(entry.held) if entry is not None else state.writer is None and state.newest.blocked
    # Also a commit that changed no flag made what is in the object.
    same = entry is not None and state.digests.has(entry.digest)
    if not state.digests.agree or partly or not (same or names_revision(target.revision, state.revision)):
        return _before_delivery(state, target, entry)
    return _after_delivery(state, target)


def _entry(state: SetState, wanted: str) -> HistoryEntry | None:
    """The newest entry of a revision among those that were applied."""
    return next((entry for entry in state.history if names_revision(wanted, entry.revision)), None)


def _before_delivery(state: SetState, target: Target, entry: HistoryEntry | None) -> Reached:
    """The object does not have the revision, or not whole."""
    wanted, newest, revision = target.revision, state.newest, state.revision or "no revision"
    writer = state.writer
    attempted = newest.revision
    if writer is not None and writer in state.suspended:
        message = f"{writer.kind} {writer.name} is suspended, with {revision} applied"
        level = Reach.FETCHED if names_revision(wanted, attempted) else Reach.UNKNOWN
        return Reached(level, message, blocked=True)
    partly = entry is not None and bool(entry.held)
    if names_revision(wanted, attempted) and (entry is None or partly):
        lacking = "applied whole" if entry or newest.verdict is Verdict.PARTLY else "applied"
        # The message of a refusal begins with the revision, and says what became of it.
        message = newest.message if newest.message.startswith(attempted) else f"{attempted} is not {lacking}"
        if newest.message and message != newest.message:
            message = f"{message}: {newest.message}"
        return Reached(Reach.FETCHED, message, blocked=newest.blocked)
    if partly:
        message = f"{wanted} was applied only in part, and {attempted} has replaced it"
        return Reached(Reach.FETCHED, message)
    level = Reach.UNKNOWN if entry is None else Reach.APPLIED
    if names_revision(wanted, revision) or names_revision(wanted, state.applied):
        content = "the content that the FlagSet built from"
        return Reached(level, f"{state.object_text} does not have {content} {wanted}")
    if entry is not None:
        return Reached(level, f"{wanted} was applied, and {state.applied} has replaced it")
    unready = writer is not None and newest.message and newest.verdict is not Verdict.APPLIED
    why = f"; the FlagSet is not ready: {newest.message}" if unready else ""
    return Reached(level, f"{state.object_text} has {revision}, not {wanted}{why}")


def _after_delivery(state: SetState, target: Target) -> Reached:
    served, withheld = state.served, state.withheld
    counted = served_text(served, state.revision or state.digests.effective)
    message = "; ".join(filter(None, (counted, layers_text(withheld))))
    total = served.total or 0
    enough = served.count * 100 >= target.percent * total if total else target.allow_none
    level = Reach.DELIVERED
    if enough and total:
        whole = not withheld and served.count == total
        level = Reach.SERVED_BY_ALL if whole else Reach.SERVED_IN_PART
    counted_layers = [layer for layer in withheld if _counts(layer, target)]
    stopped = any(isinstance(layer, CandidateLayer) and layer.phase in _STOPPED for layer in counted_layers)
    return Reached(level, message, enough and not counted_layers, stopped, laggard_texts(served))


def _counts(layer: Layer, target: Target) -> bool:
    """Whether a layer that withholds flags keeps the target from being reached."""
    named = isinstance(layer, CandidateLayer) and layer.rollout.name == target.rollout
    return target.everybody and (named or not target.rollout)
