"""FlagReceiver: who may wake a source."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.objects.definition import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Column, Definition
from controller.api.objects.fields import LocalReference, Model, Name
from controller.api.objects.status import Status

KIND: Final = "FlagReceiver"
EVERY: Final = "*"


class SourceToWake(Model):
    """A FlagSource in the same namespace, or each of them."""

    kind: Literal["FlagSource"] = "FlagSource"
    """FlagSource is the only one."""
    name: Name
    """The FlagSource's name, or * for each of them."""


class FlagReceiverSpec(Model):
    """What the user asks for."""

    type: Literal["generic-hmac", "github", "gitlab", "gitea"]
    """How the sender signs, and how its payload reads."""
    secret_ref: LocalReference
    """A Secret beside this object; `token` is the shared key, `previousToken` one that is still believed
    while senders are moved.
    """
    events: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """The sender's names of events that count; push where none is given. A ping is answered and wakes
    nobody.
    """
    resources: Annotated[tuple[SourceToWake, ...], Field(min_length=1, max_length=64)]
    """FlagSources beside this object that may be woken; `*` is each of them. Of these only those wake whose
    repository and branch the payload names.
    """
    suspend: bool = False
    """While true, deliveries are answered with 503 and wake nobody."""


class FlagReceiverStatus(Status):
    """What became of it."""

    webhook_path: str | None = None
    """The path of the endpoint; nobody who does not know the token can guess it."""


DEFINITION: Final = Definition(
    KIND,
    "flagreceivers",
    "frcv",
    "FlagReceiver lets a Git server's push webhook wake sources.",
    spec=FlagReceiverSpec,
    status=FlagReceiverStatus,
    columns=(READY_COLUMN, STATUS_COLUMN, AGE_COLUMN, Column("Path", ".status.webhookPath", priority=1)),
)
