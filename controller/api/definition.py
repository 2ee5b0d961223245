"""What a kind's CustomResourceDefinition says beside its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.meta import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.fields import Model, SpecRule
    from controller.api.status import StatusModel


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`."""

    name: str
    path: str
    """A JSONPath."""
    type: str = "string"
    priority: int = 0
    """1: only with `-o wide`."""


READY_COLUMN: Final = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')
STATUS_COLUMN: Final = PrinterColumn("Status", '.status.conditions[?(@.type=="Ready")].message')
WITHHELD_COLUMNS: Final = (
    PrinterColumn("Rollout", '.status.conditions[?(@.type=="RolloutActive")].reason'),
    PrinterColumn("Override", '.status.conditions[?(@.type=="OverrideActive")].reason'),
)
"""Why not every user gets all flags of a set."""
AGE_COLUMN: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
SUSPENDED_COLUMN: Final = PrinterColumn("Suspended", ".spec.suspend", "boolean")


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind that users install. `crds/<plural>.yaml` is written from it and from the models."""

    kind: str
    plural: str
    short_name: str
    description: str
    """What an object of the kind is, for `kubectl explain`."""
    spec: type[Model]
    spec_description: str = "What is asked for."
    status: type[StatusModel] | None = None
    """None: objects have no status."""
    columns: tuple[PrinterColumn, ...] = (AGE_COLUMN,)
    api_version: str = API_VERSION
    older: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Versions that are served beside the newest, with what their schema of the spec says otherwise; None
    removes.
    """
    note: str = ""
    """A comment in the file, for those who install it."""
    is_for_users: bool = True
    """Whether `kubectl get flagstaff` lists its objects."""
    needs_spec: bool = True
    rules: tuple[SpecRule, ...] = ()
    """CEL rules over the whole object."""
