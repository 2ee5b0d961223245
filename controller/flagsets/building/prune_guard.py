"""Finds a revision that removes flags in bulk, which is more often a mistake than a decision. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.flagsets.building.compose import refused
from evaluator.flags.syntax.problems import Problem, Severity

if TYPE_CHECKING:
    from controller.flagsets.building.compose import Composition
    from evaluator.flags.model import FlagSet

FEWEST: Final = 5
"""Fewer removed flags are never held, unless they are all that there were."""
PART: Final = 4
"""More than one in so many removed flags is held."""
_NAMED: Final = 5
_KEY_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class BulkRemoval:
    """Flags that a revision would remove."""

    keys: tuple[str, ...]
    """Sorted; never empty."""
    total: int
    """Flags that are served now."""

    def __str__(self) -> str:
        """`removes 8 of 10 flags: banner, checkout, …`, on one line however keys are written."""
        named = ", ".join(_printable(key) for key in self.keys[:_NAMED])
        more = ", …" if len(self.keys) > _NAMED else ""
        if self.total == 1:
            return f"removes the only flag: {named}"
        amount = f"{len(self.keys)} of {self.total}" if len(self.keys) < self.total else f"all {self.total}"
        return f"removes {amount} flags: {named}{more}"


def bulk_removal(before: FlagSet | None, after: FlagSet) -> BulkRemoval | None:
    """What `after` lacks of `before`, where that is every flag, or more than a quarter and at least five.

    None where fewer flags would go, or nothing was served before.
    """
    if before is None or not before.flags:
        return None
    gone, total = before.flags.keys() - after.flags.keys(), len(before.flags)
    if len(gone) == total or (len(gone) >= FEWEST and len(gone) * PART > total):
        return BulkRemoval(tuple(sorted(gone)), total)
    return None


def held(composition: Composition, removal: BulkRemoval, previous: FlagSet) -> Composition:
    """`composition` refused as a whole because of `removal`: `previous` stays, and a problem says why."""
    problem = Problem("", 0, 0, Severity.ERROR, "prune-guard", str(removal))
    return refused(previous, (*composition.problems, problem))


def _printable(key: str) -> str:
    clean = "".join(letter if letter.isprintable() else " " for letter in key[: _KEY_CHARACTERS + 1])
    return clean if len(clean) <= _KEY_CHARACTERS else f"{clean[: _KEY_CHARACTERS - 1]}…"
