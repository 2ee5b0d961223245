"""Whether a FlagRollout has promoted a commit: what gates of later waves ask, be they statuses of commits,
FlagSets that depend on it, or webhooks of other clusters. Pure.

Health is no answer: a FlagRollout may be ready as it has not seen the commit yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from controller.api import featureflagconfiguration, flagset
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey, Resource
from controller.api.status import READY
from controller.delivery.digests import names_revision
from controller.delivery.overrides import set_name, target_of
from controller.delivery.reach import ReachTarget, reach
from controller.delivery.rollout_state import has_promoted
from controller.delivery.rollouts import rollouts_naming
from controller.delivery.set_reading import read_set
from controller.delivery.set_state import CandidateLayer, Reach, SetState
from controller.delivery.state_words import layers_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from controller.runtime.cache import Cache

_STOPPED: Final = frozenset({"Failed", "RollingBack", "Abandoned"})
"""Phases of candidates that nobody gets before a person decides."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """How far a commit is in a FlagRollout."""

    state: Literal["promoted", "pending", "stopped", "replaced"]
    """`stopped`: a person must change something. `replaced`: the set has a later commit now."""
    message: str

    @property
    def done(self) -> bool:
        """Whether everybody gets it, or did."""
        return self.state == "promoted"


def promotion_of(objects: Cache, rollout: Resource, revision: str, now: datetime) -> Promotion:
    """How far a revision is: its commit counts, whatever branch it came by."""
    state, wanted = state_of_rollout(objects, rollout, now), revision.rpartition(":")[2]
    entry = next((entry for entry in state.history if names_revision(wanted, entry.revision)), None)
    # Also a commit that changed no flag of the set is promoted with what is in it.
    same = {one.revision for one in state.history if entry is not None and one.digest == entry.digest}
    partly = entry is not None and bool(entry.held)
    if not partly and has_promoted(rollout, wanted, same):
        return Promotion("promoted", f"{revision} is promoted: everybody gets it")
    reached = reach(state, ReachTarget(wanted, 0.0, allow_none=True, everybody=True, rollout=rollout.name))
    if reached.level < Reach.DELIVERED:
        if entry is not None and state.digests.agree and not state.digests.has(entry.digest):
            return Promotion("replaced", reached.message)
        blocked = reached.blocked and not state.suspended
        return Promotion("stopped" if blocked else "pending", reached.message)
    own = [layer for layer in state.candidates if layer.rollout.name == rollout.name]
    if text := layers_text(_stopped(own)):
        return Promotion("stopped", text)
    ready = status_of(rollout).condition(READY).message
    waits = layers_text(own) or ready or f"FlagRollout {rollout.name} was not looked at yet"
    return Promotion(
        "pending", f"everybody is about to get {revision}" if not own and reached.done else waits
    )


def newest_revision(objects: Cache, rollout: Resource) -> str:
    """The revision that the set of a FlagRollout was last made of, or was to be; empty: none is known."""
    writer = _writer_of(objects, rollout, target := target_of(objects, rollout))
    judge = writer or target
    return "" if judge is None else status_of(judge).content[0]


def state_of_rollout(objects: Cache, rollout: Resource, now: datetime) -> SetState:
    """The state of the set that a FlagRollout is about."""
    target = target_of(objects, rollout)
    default = ObjectKey(featureflagconfiguration.KIND, rollout.namespace, set_name(rollout))
    writer = _writer_of(objects, rollout, target)
    return _read(objects, default if target is None else target.key, target, writer, [rollout], now)


def stopped_of_set(objects: Cache, flag_set: Resource, now: datetime) -> str:
    """Which changes of what a FlagSet has applied were stopped, in words; empty: none was."""
    key = ObjectKey(featureflagconfiguration.KIND, flag_set.namespace, flagset.target_name(flag_set))
    target = objects.get(key)
    rollouts = [
        rollout
        for name in sorted({flag_set.name, key.name})
        for rollout in rollouts_naming(objects, flag_set.namespace, name)
    ]
    state = _read(objects, key, target, flag_set, rollouts, now)
    known = state.processed and state.digests.agree
    return layers_text(_stopped(state.candidates)) if known else ""


def _stopped(layers: Iterable[CandidateLayer]) -> list[CandidateLayer]:
    return [layer for layer in layers if layer.phase in _STOPPED]


def writers_of(objects: Cache, rollout: Resource) -> Iterator[Resource]:
    """Yield the FlagSet that writes the flags of a FlagRollout, or is to, if there is one."""
    writer = _writer_of(objects, rollout, target_of(objects, rollout))
    if writer is not None:
        yield writer


def _writer_of(objects: Cache, rollout: Resource, target: Resource | None) -> Resource | None:
    named = ObjectKey(flagset.KIND, rollout.namespace, set_name(rollout))
    return objects.get(named if target is None else flagset.writer_key(target))


def _read(
    objects: Cache,
    key: ObjectKey,
    target: Resource | None,
    writer: Resource | None,
    rollouts: list[Resource],
    now: datetime,
) -> SetState:
    source = None if writer is None else flagset.source_key(writer)
    known = (target, writer, None if source is None else objects.get(source), *rollouts)
    return read_set(key, {one.key: one for one in known if one is not None}, now)
