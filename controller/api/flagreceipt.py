"""FlagReceipt: what one proxy knows of who serves one flag set: numbers by digest, and names of few."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from controller.api.fields import ATOMIC_LIST, Model
from controller.api.kind import AGE_COLUMN, CONTROLLER, PROXY, READ, SHOWN_BY_PAGE, Kind, PrinterColumn, Right
from controller.api.meta import API_VERSION
from controller.api.status import StatusModel

if TYPE_CHECKING:
    from controller.api.meta import Resource

KIND: Final = "FlagReceipt"
OBSERVED_AT: Final = "flagstaff.dev/observed-at"
"""Annotation of a FeatureFlagConfiguration: when its revision was first seen, RFC 3339 with milliseconds."""
LEASE_PREFIX: Final = "flagstaff-proxy-"
"""The name of a proxy's Lease before its identity."""
PROXY_LABEL: Final = {"app.kubernetes.io/part-of": "flagstaff", "app.kubernetes.io/component": "proxy"}
"""The labels of the objects that a proxy writes."""

MOST_NAMED: Final = 20
"""Most laggards that one proxy names, and most members whose last good set is not saved."""
MOST_HIDDEN: Final = 20
"""Most overridden flags in one receipt that other sets hide."""
MOST_GROUPS: Final = 64
"""Most digests in one receipt."""


class ServedGroup(Model):
    """How many members serve the same."""

    digest: str = ""
    """Empty: nothing yet, one of many digests that few serve, or a set that does not follow any more."""
    revision: str = ""
    """The revision with that digest, as far as known."""
    count: Annotated[int, Field(ge=0)] = 0
    """Members that serve it and are not silent."""


class Laggard(Model):
    """A member by name, and what it serves: it is silent, or may serve something else than it should."""

    name: str
    """`namespace/pod`, or the instance of a process outside pods."""
    node: str = ""
    """The node that it runs on, as far as known."""
    digest: str = ""
    """The digest of what it serves; empty: nothing."""
    serves: str = ""
    """A revision, or a digest where none is known; empty: nothing."""
    since: str = ""
    """Since when it serves something else than it should, or is silent; RFC 3339."""
    silent: bool = False
    """Whether it sent no report for a while."""
    claimed: bool = False
    """The name is not verified."""
    reason: str = ""
    """Why it is not sent this set any more, and keeps what it had: OrderNotGranted, OrderUnknown or another
    reason of [standing orders](../standing-orders.md#when-an-order-is-refused); empty: it is sent it.
    """


class HiddenOverride(Model):
    """A flag of the set that is under an override, and that members have from another set."""

    flag: str
    """The flag's key."""
    by: str = ""
    """The set whose flag they serve, as `Kind/namespace/name`; empty: the proxy does not know it."""
    count: Annotated[int, Field(ge=0)] = 0
    """Members that serve that flag, and are not silent."""


class UnsavedMember(Model):
    """A member that serves flags that are not on its disk."""

    name: str
    """As a laggard's."""
    message: str = ""
    """Why they cannot be saved."""


class FlagReceiptSpec(Model):
    """The proxy that writes a receipt, and the object that it is about."""

    configuration: Annotated[str, Field(min_length=1, max_length=253)]
    """The FeatureFlagConfiguration beside it."""
    proxy: Annotated[str, Field(min_length=1, max_length=253)]
    """Who wrote it; its Lease, flagstaff-proxy- and this name, says whether it still runs."""


class FlagReceiptStatus(StatusModel):
    """What the proxy knows."""

    digest: str = ""
    """The digest of what it delivers."""
    observed_at: str | None = None
    """Time at which it first observed the change to that digest."""
    groups: Annotated[tuple[ServedGroup, ...], Field(max_length=MOST_GROUPS), ATOMIC_LIST] = ()
    """Members by what they serve."""
    silent: int = 0
    """Members that have sent no report for a while."""
    laggards: Annotated[tuple[Laggard, ...], Field(max_length=MOST_NAMED), ATOMIC_LIST] = ()
    """Those that have lagged for longest."""
    up_to_date: Annotated[tuple[Laggard, ...], Field(max_length=MOST_NAMED), ATOMIC_LIST] = ()
    """Some that serve what the proxy delivers: laggards where another proxy delivers something newer."""
    slowest_ms: int | None = None
    """Milliseconds from the change until the last member that followed it served it; None: nobody did."""
    unsaved: int = 0
    """Members whose last good set is not saved."""
    unsaved_members: Annotated[tuple[UnsavedMember, ...], Field(max_length=MOST_NAMED), ATOMIC_LIST] = ()
    """Some of them, by name."""
    hidden: Annotated[tuple[HiddenOverride, ...], Field(max_length=MOST_HIDDEN), ATOMIC_LIST] = ()
    """Overridden flags of this set that other sets of the members hide: those hidden for most come first."""
    delivered: int = 0
    """Streams of subscribers that send no receipts."""
    claimed: int = 0
    """Members whose names are not verified."""


def receipt_name(configuration: str, proxy: str) -> str:
    """The object's name: readable, and one for each pair."""
    suffix = hashlib.sha256(f"{configuration}\n{proxy}".encode()).hexdigest()[:12]
    return f"{configuration[:120].rstrip('-.')}.{proxy[:100].rstrip('-.').lower()}.{suffix}"


def pair_of(resource: Resource) -> tuple[str, str]:
    """Return the configuration and the proxy of a FlagReceipt; empty if malformed."""
    pair = (resource.spec.get("configuration"), resource.spec.get("proxy"))
    configuration, proxy = (name if isinstance(name, str) else "" for name in pair)
    return configuration, proxy


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagreceipts",
    short_name="freceipt",
    description=(
        "FlagReceipt is what one proxy knows of who serves one flag set. The controller sums all of "
        "them up in the FeatureFlagConfiguration's status."
    ),
    spec=FlagReceiptSpec,
    status=FlagReceiptStatus,
    columns=(
        PrinterColumn("Configuration", ".spec.configuration"),
        PrinterColumn("Proxy", ".spec.proxy"),
        PrinterColumn("Delivered", ".status.delivered", "integer"),
        PrinterColumn("Laggards", ".status.laggards[*].name"),
        AGE_COLUMN,
    ),
    is_for_users=False,
    judged=False,
    rights=(
        Right(CONTROLLER, (*READ, "delete")),
        SHOWN_BY_PAGE,
        Right(PROXY, ("get", "create", "patch", "delete")),
    ),
)
