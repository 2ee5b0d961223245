"""FlagAlert: of what a provider is reported."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.fields import LocalReference, Model, Name

KIND: Final = "FlagAlert"
PLURAL: Final = "flagalerts"
EVERY: Final = "*"

Expressions = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=32)
]


class EventSource(Model):
    """Objects of one kind in the alert's namespace."""

    kind: Literal["FlagSource", "FlagSet", "FlagReceiver", "FeatureFlagConfiguration", "FeatureFlag"]
    name: Name
    match_labels: dict[str, str] = Field(default_factory=dict)


class FlagAlertSpec(Model):
    """What the user asks for."""

    provider_ref: LocalReference
    event_severity: Literal["info", "error"] = "info"
    event_sources: Annotated[tuple[EventSource, ...], Field(min_length=1, max_length=64)]
    inclusion_list: Expressions = ()
    exclusion_list: Expressions = ()
    summary: Annotated[str, Field(max_length=255)] | None = None
    suspend: bool = False


class FlagAlertStatus(Model):
    """What became of it."""

    observed_generation: int = -1
    last_handled_reconcile_at: str | None = None
    conditions: tuple[dict[str, Any], ...] = ()
