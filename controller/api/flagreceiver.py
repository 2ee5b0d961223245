"""FlagReceiver: an endpoint whose webhooks wake sources."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from controller.api.fields import LocalReference, Model, Name
from controller.api.kind import AGE_COLUMN, READY_COLUMN, STATUS_COLUMN, Kind, PrinterColumn
from controller.api.meta import API_VERSION
from controller.api.status import Status

KIND: Final = "FlagReceiver"
EVERY: Final = "*"
Sender = Literal[
    "generic-hmac", "github", "gitlab", "gitea", "bitbucket", "azure-devops", "harbor", "quay", "dockerhub"
]


class SourceToWake(Model):
    """A FlagSource in the same namespace, or each of them."""

    kind: Literal["FlagSource"] = "FlagSource"
    """The kind of the objects; FlagSource is the only one."""
    name: Name
    """The name of a FlagSource, or `*` for every FlagSource in the namespace."""


class FlagReceiverSpec(Model):
    """What the user asks for."""

    type: Sender
    """How the sender authenticates its payload, and how that is read; `gitea` is Forgejo's, too."""
    secret_ref: LocalReference
    """A Secret in the same namespace: `token`, the shared key, and `previousToken`, an older key that is
    accepted while senders are moved.
    """
    events: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    """The sender's names of the events that count, such as `push`, `create`, `release`, `Tag Push Hook` or
    `PUSH_ARTIFACT`; push events if there are none. A ping is answered and wakes nothing.
    """
    resources: Annotated[tuple[SourceToWake, ...], Field(min_length=1, max_length=64)]
    """The FlagSources to wake. Of these, a delivery wakes those whose repository and branch, registry and
    tag, or bucket its payload names.
    """
    suspend: bool = False
    """Answer each delivery with 503, and wake nothing."""


class FlagReceiverStatus(Status):
    """What became of it."""

    webhook_path: str | None = None
    """The path of the endpoint; nobody who does not know the token can guess it."""


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagreceivers",
    short_name="frcv",
    description="FlagReceiver lets push webhooks of Git servers and registries wake sources.",
    spec=FlagReceiverSpec,
    status=FlagReceiverStatus,
    columns=(
        READY_COLUMN,
        STATUS_COLUMN,
        AGE_COLUMN,
        PrinterColumn("Path", ".status.webhookPath", priority=1),
    ),
    modules="events/pushes events/receiver_reconciler events/receiver_stage events/webhook_payloads "
    "events/webhook_server",
    quota=20,
    is_granted=True,
    has_alerts=True,
)
