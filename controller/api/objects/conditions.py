"""Conditions, as kstatus reads them (https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).

`Ready` sums up. `Reconciling` and `Stalled` are there only while they are True, and never both. What else a
kind has to say stands in positive details, such as `ArtifactInStorage`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

READY: Final = "Ready"
"""Whether the object does what its spec says, as of its newest generation."""
RECONCILING: Final = "Reconciling"
"""True while the controller works on it, or waits, or will retry."""
STALLED: Final = "Stalled"
"""True while the controller cannot go on until somebody changes something."""
PROPAGATED: Final = "Propagated"
"""A detail: whether all who follow a flag set serve it. `Ready` does not wait for it."""
LAST_GOOD_SAVED: Final = "LastGoodSaved"
"""A detail, there only while it is False: an evaluator serves flags that are not on its disk."""
REMOTE_FLAGS: Final = "RemoteFlagsFetched"
"""A detail: whether the newest flags of a remote provider are in force. `Ready` does not depend on it."""
NAME_CONFLICT: Final = "NameConflict"
"""A detail, there only while it is True: another object claims the name or the flagSetId."""
OVERRIDE_ACTIVE: Final = "OverrideActive"
"""A detail, there only while it is True: FlagOverrides are in force for flags of the set."""
ROLLOUT_ACTIVE: Final = "RolloutActive"
"""A detail, there only while it is True: new definitions of flags are rolled out, or held back."""
SUPERSEDED: Final = "Superseded"
"""A detail, there only while it is True: the FlagSet that wrote an object writes another one now."""
DEPENDENCIES_SERVED: Final = "DependenciesServed"
"""A detail, there only while it is False: changes of what a FlagSet depends on are being rolled out."""
DRIFT_CONTESTED: Final = "DriftContested"
"""A detail, there only while it is True: another writer keeps overwriting what a FlagSet writes."""
DRIFT_KEPT: Final = "DriftKept"
"""A detail, there only while it is True: what a FlagSet wrote was changed, and its policy keeps that."""

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

MESSAGE_CHARACTERS: Final = 1_000
"""What a condition's message may have: the API server takes more, but people do not read more."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of an object's state."""

    type: str
    """What the condition is about."""
    status: str
    """Whether it holds."""
    reason: str = ""
    """Why, as one stable word for scripts."""
    message: str = ""
    """Why, in a sentence for people."""
    since: Annotated[str, Field(alias="lastTransitionTime")] = field(default="", compare=False)
    """Time at which the status changed last, RFC 3339; empty until the condition is written."""


CONDITIONS: Final = WithJsonSchema(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"description": "What the condition is about.", "type": "string", "maxLength": 316},
                "status": {
                    "description": "Whether it is so.",
                    "type": "string",
                    "enum": [TRUE, FALSE, UNKNOWN],
                },
                "reason": {
                    "description": "Why, as one stable word for scripts.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                },
                "message": {
                    "description": "Why, in a sentence for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "lastTransitionTime": {
                    "description": "When the status changed last.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The generation of the spec that it is about.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    }
)
"""The list as Kubernetes has it (metav1.Condition)."""


def short(message: str) -> str:
    """Shorten a message to the length that a condition may have."""
    return message if len(message) <= MESSAGE_CHARACTERS else message[: MESSAGE_CHARACTERS - 1] + "…"


def condition_json(condition: Condition, before: Condition, *, generation: int, now: str) -> dict[str, Any]:
    """Return the condition as in a status; its transition time changes only with its status."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": short(condition.message),
        "lastTransitionTime": before.since if before.since and before.status == condition.status else now,
        "observedGeneration": generation,
    }
