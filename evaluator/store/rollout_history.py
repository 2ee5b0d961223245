"""Keeps the recent rollouts of flags, so that a late event counts for the arm that its user had.

Only definitions are kept, a bounded number of them, and in memory: no evaluation context.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaluator.resolving.rollout_flag import RolloutFlag
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store

KEPT_SECONDS: Final = 3600.0
"""Seconds for which a flag that was served is kept."""
LATE_SECONDS: Final = 300.0
"""Seconds after the end of a rollout in which an event without a time counts for its last step."""
MOST_STATES: Final = 8
"""Most definitions that are kept of a flag."""
MOST_FLAGS: Final = 1_000
"""Most flags of which earlier definitions are kept."""


@dataclass(slots=True)
class _Served:
    """A flag in a rollout, and when it was served; Unix seconds."""

    flag: RolloutFlag
    since: float
    until: float | None = None


class RolloutHistory:
    """The flags in rollouts that a store has served lately."""

    def __init__(self, store: Store) -> None:
        self._served: dict[str, deque[_Served]] = {}
        self.close: Callable[[], None] = store.subscribe(self._record)

    def keys(self, snapshot: Snapshot) -> list[str]:
        """Return the keys of a snapshot's flags that are in a rollout, or were in one lately."""
        current, flags = snapshot.compiled.in_rollouts, snapshot.flag_set.flags
        return [*current, *(key for key in self._served if key not in current and key in flags)]

    def flag_at(
        self, snapshot: Snapshot, key: str, moment: float | None, *, now: float
    ) -> RolloutFlag | None:
        """Return a flag as it was in its rollout at a moment, Unix seconds; None if it was in none, or that
        is not known any more. Without a moment: as in `snapshot`, or as in a rollout that ended a moment ago.
        """
        current = snapshot.compiled.in_rollouts.get(key)
        if current is not None and (moment is None or moment >= snapshot.served_since):
            return current
        moment = now if moment is None else moment
        for state in reversed(self._served.get(key, ())):
            if state.since <= moment:
                in_time = state.until is None or moment < state.until + LATE_SECONDS
                return state.flag if in_time else None
        return None

    def revisions(self, key: str) -> set[str]:
        """Return the digests of the candidates that are kept of a flag."""
        return {state.flag.revision for state in self._served.get(key, ())}

    def _record(self, snapshot: Snapshot) -> None:
        now, current = snapshot.served_since, snapshot.compiled.in_rollouts
        for key, states in list(self._served.items()):
            newest, flag = states[-1], current.get(key)
            if newest.until is None and (flag is None or flag.flag != newest.flag.flag):
                newest.until = now
            while states and states[0].until is not None and states[0].until < now - KEPT_SECONDS:
                states.popleft()
            if not states:
                del self._served[key]
        for key, flag in current.items():
            if key not in self._served and len(self._served) >= MOST_FLAGS:
                continue
            states = self._served.setdefault(key, deque(maxlen=MOST_STATES))
            if not states or states[-1].until is not None:
                states.append(_Served(flag, now))
