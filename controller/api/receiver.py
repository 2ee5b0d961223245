"""FlagReceiver: who may wake a source."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.fields import LocalReference, Model, Name

KIND: Final = "FlagReceiver"
PLURAL: Final = "flagreceivers"
EVERY: Final = "*"


class SourceToWake(Model):
    """A FlagSource in the same namespace, or each of them."""

    kind: Literal["FlagSource"] = "FlagSource"
    name: Name


class FlagReceiverSpec(Model):
    """What the user asks for."""

    type: Literal["generic-hmac", "github", "gitlab", "gitea"]
    secret_ref: LocalReference
    events: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    resources: Annotated[tuple[SourceToWake, ...], Field(min_length=1, max_length=64)]
    suspend: bool = False


class FlagReceiverStatus(Model):
    """What became of it."""

    observed_generation: int = -1
    last_handled_reconcile_at: str | None = None
    webhook_path: str | None = None
    conditions: tuple[dict[str, Any], ...] = ()
