"""Conditions, as kstatus reads them, and what the status models of all kinds share.

kstatus: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus

`Ready` sums up. `Reconciling` and `Stalled` are there only while they are True, and never both. What else a
kind has to say stands in positive details, such as `ArtifactInStorage`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import Field, OnErrorOmit, ValidationError, WithJsonSchema

from controller.api.fields import INT64, Model
from evaluator.host.texts import cut

if TYPE_CHECKING:
    from controller.api.meta import Resource


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
FLAGS_EXPIRED: Final = "FlagsExpired"
"""A detail, there only while it is True: flags are past the date of their metadata, and served as before."""

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


def condition_json(condition: Condition, before: Condition, *, generation: int, now: str) -> dict[str, Any]:
    """Return the condition as in a status; its transition time changes only with its status."""
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": cut(condition.message, MESSAGE_CHARACTERS),
        "lastTransitionTime": before.since if before.since and before.status == condition.status else now,
        "observedGeneration": generation,
    }


class StatusModel(Model):
    """The fields of a status; each has a default, which stands where the object has none that can be read."""

    @classmethod
    def of(cls, resource: Resource | None) -> Self:
        """The status of an object, parsed once for each state of it. A field that is malformed counts as
        absent, and so does every one of an object that is not there.
        """
        if resource is None:
            return cls()
        known = resource.parsed
        if not isinstance(known, cls):
            known = cls._read(dict(resource.status))
            object.__setattr__(resource, "parsed", known)
        return known

    @classmethod
    def _read(cls, fields: dict[str, Any]) -> Self:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            malformed = {fault["loc"][0] for fault in error.errors(include_url=False, include_input=False)}
            return cls.model_validate({name: fields[name] for name in fields if name not in malformed})

    def __or__(self, newer: Self) -> Self:
        """Return a copy with the fields that `newer` sets."""
        return self.model_copy(update={name: getattr(newer, name) for name in newer.model_fields_set})

    def fields(self) -> dict[str, Any]:
        """Return the fields that were set, as in an object; nested defaults are left out."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for name in self.model_fields_set:
            value = getattr(self, name)
            # Here, the default is a value like others: an empty list, or None to have the field removed.
            alias = type(self).model_fields[name].alias or name
            fields.setdefault(alias, list(value) if isinstance(value, tuple) else value)
        return fields


class Status(StatusModel):
    """What `settle` writes into the status of each kind."""

    observed_generation: Annotated[int, INT64] = -1
    """The generation of the spec that this status is about; -1 before the first reconcile."""
    last_handled_reconcile_at: str | None = None
    """The last value of the annotation reconcile.fluxcd.io/requestedAt that was acted on."""
    conditions: Annotated[tuple[OnErrorOmit[Condition], ...], CONDITIONS] = ()
    """Ready sums up; Reconciling and Stalled are there only while they are True."""

    def condition(self, type_: str) -> Condition:
        """Return the condition of a type, or one with an empty status."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return Condition(type_, "")

    def conditions_of(self, type_: str) -> tuple[Condition, ...]:
        """The condition of a type, if there is one."""
        return tuple(condition for condition in self.conditions if condition.type == type_)

    @property
    def is_ready(self) -> bool:
        """Whether `Ready` is True."""
        return self.condition(READY).status == TRUE

    @property
    def failure(self) -> str:
        """Why the object is not ready, as a reason; empty while it is, and while it only waits."""
        ready = self.condition(READY)
        waits = self.condition(RECONCILING).reason == "Progressing"
        return ready.reason if ready.status == FALSE and not waits else ""

    @property
    def why(self) -> str:
        """What `Ready` says, behind a colon; empty where it says nothing."""
        message = self.condition(READY).message
        return f": {message}" if message else ""

    @property
    def content(self) -> tuple[str, str]:
        """(revision, digest) that the object is at; empty where none is known, or the kind has none."""
        return "", ""
