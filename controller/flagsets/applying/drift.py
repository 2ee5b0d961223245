"""Drift that comes back: corrected at once a few times, then with growing pauses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.flagset_status import FlagSetStatus
from controller.api.objects.conditions import DRIFT_CONTESTED, DRIFT_KEPT, TRUE, Condition
from controller.runtime.event import Occurrence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from controller.api.objects.meta import Resource

REASON: Final = "DriftContested"
AT_ONCE: Final = 3
"""Corrections without a pause: a person who tries again stops at that."""
CALM: Final = 60.0
"""Seconds in which nothing was to be corrected, though it might have been: the dispute is over."""
_FIRST: Final = 5.0
_MOST: Final = 60.0


@dataclass(slots=True)
class Kept:
    """The changes by others, where the policy keeps them."""

    message: str = ""
    """Empty: nothing was."""

    def occurrences(self, changed: Sequence[str], resource: Resource) -> tuple[Occurrence, ...]:
        """`changed` describes each changed object; an occurrence where the status does not show it yet."""
        self.message = (
            f"{'; '.join(changed)}; it stays so, since spec.driftPolicy is Warn: undo the change, or set "
            "spec.driftPolicy to Correct"
            if changed
            else ""
        )
        if not changed or FlagSetStatus.of(resource).condition(DRIFT_KEPT).message == self.message:
            return ()
        return (Occurrence(DRIFT_KEPT, self.message, warning=True),)

    def conditions(self) -> tuple[Condition, ...]:
        """Return it as a condition of the FlagSet."""
        return (Condition(DRIFT_KEPT, TRUE, DRIFT_KEPT, self.message),) if self.message else ()


@dataclass(slots=True)
class DriftRecord:
    """The recent corrections of one FlagSet."""

    times: int = 0
    last: datetime | None = None
    message: str = ""
    """Names the object and who changes it, as far as known."""

    def pause(self, now: datetime) -> float:
        """Seconds until drift may be corrected."""
        return max(0.0, self._length() - self._since(now))

    def record_correction(self, change: str, now: datetime) -> tuple[Occurrence, ...]:
        """Note that `change` was corrected; returns an occurrence if that starts a dispute."""
        if self.over_in(now) == 0.0:
            self.times = 0
        self.times += 1
        self.last = now
        self.message = (
            f"{change} repeatedly; it is restored at most every {_MOST:.0f} seconds until that ends: "
            "stop what changes it, or change the source"
        )
        return (Occurrence(REASON, self.message, warning=True),) if self.times == AT_ONCE else ()

    def open(self, now: datetime) -> bool:
        """Whether another writer keeps overwriting what we write."""
        return self.times >= AT_ONCE and self.over_in(now) > 0.0

    def over_in(self, now: datetime) -> float:
        """Return the seconds until it is over, if there is no further change."""
        return max(0.0, self._length() + CALM - self._since(now))

    def conditions(self, now: datetime) -> tuple[Condition, ...]:
        """Return it as a condition of the FlagSet."""
        return (Condition(DRIFT_CONTESTED, TRUE, REASON, self.message),) if self.open(now) else ()

    def _length(self) -> float:
        # The exponent is bounded: a dispute may last for months.
        past = min(self.times - AT_ONCE, 10)
        return min(_MOST, _FIRST * 2.0**past) if past >= 0 else 0.0

    def _since(self, now: datetime) -> float:
        # Where the clock was set back, it is unknown: taken for long ago.
        return float("inf") if self.last is None else abs((now - self.last).total_seconds())
