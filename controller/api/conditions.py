"""Conditions, as kstatus reads them (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).

`Ready` sums up. `Reconciling` and `Stalled` are there only while they are True, and never both. What else a
kind has to say stands in positive details, such as `ArtifactInStorage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
PROPAGATED: Final = "Propagated"
"""A detail: whether all who follow a flag set serve it. `Ready` does not wait for it."""
NAME_CONFLICT: Final = "NameConflict"
"""A detail, there only while it is True: another object claims the name or the flagSetId."""
DRIFT_CONTESTED: Final = "DriftContested"
"""A detail, there only while it is True: another writer keeps overwriting what a FlagSet writes."""
DRIFT_KEPT: Final = "DriftKept"
"""A detail, there only while it is True: another writer changed what a FlagSet wrote, and its policy keeps
the change.
"""

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

MESSAGE_CHARACTERS: Final = 1_000
"""What a condition's message may have: the API server takes more, but people do not read more."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of an object's state."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    """CamelCase and stable: scripts match it."""
    message: str = ""


def find(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of type `kind` in a status, or None."""
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), None)


def failure(status: Mapping[str, Any]) -> str:
    """The reason for which an object is not ready; empty while it is, or where it only waits: that is nothing
    wrong.
    """
    ready, going = find(status, READY), find(status, RECONCILING)
    if ready is None or ready.get("status") != FALSE:
        return ""
    return "" if going is not None and going.get("reason") == "Progressing" else str(ready.get("reason"))


def read(entry: Mapping[str, Any]) -> Condition:
    """A status's entry as a Condition."""
    return Condition(entry["type"], entry["status"], entry["reason"], entry.get("message", ""))


def why(status: Mapping[str, Any]) -> str:
    """What Ready says, behind a colon; empty where it says nothing."""
    found = find(status, READY)
    return f": {found['message']}" if found is not None and found.get("message") else ""


def short(message: str) -> str:
    """`message` as far as a condition holds it."""
    return message if len(message) <= MESSAGE_CHARACTERS else message[: MESSAGE_CHARACTERS - 1] + "…"


def written(
    condition: Condition, before: Mapping[str, Any] | None, *, generation: int, now: str
) -> dict[str, Any]:
    """`condition` as a status holds it; the transition's time moves only with its status."""
    kept = before is not None and before.get("status") == condition.status
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": short(condition.message),
        "lastTransitionTime": before.get("lastTransitionTime", now) if before and kept else now,
        "observedGeneration": generation,
    }
