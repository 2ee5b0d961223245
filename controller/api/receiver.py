"""FlagReceiver: who may wake a source."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.fields import LocalReference, Model, Name
from controller.api.objects.status import Status

KIND: Final = "FlagReceiver"
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


class FlagReceiverStatus(Status):
    """What became of it."""

    webhook_path: str | None = None
