"""What the status models of all kinds share: read once for each object, and whatever stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import OnErrorOmit, ValidationError

from controller.api.objects.conditions import CONDITIONS, FALSE, READY, RECONCILING, TRUE, Condition
from controller.api.objects.fields import Model
from controller.api.objects.schema_words import INT64

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource


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
