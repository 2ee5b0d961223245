"""FlagReceipt: what one proxy knows of who serves one flag set.

Members are identified by 48 bits of a hash and stand in lists of 16 characters each, so that 10,000 of them
fit into an object with room to spare; only laggards have names, and a few of the others, who lag where this
proxy is the one that is behind.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from controller.api.objects.fields import Model
from controller.api.objects.status import StatusModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from controller.api.objects.meta import Resource

KIND: Final = "FlagReceipt"
OBSERVED_AT: Final = "flagstaff.dev/observed-at"
"""Annotation of a FeatureFlagConfiguration: when its revision was first seen, RFC 3339 with milliseconds."""
LEASE_PREFIX: Final = "flagstaff-proxy-"
"""The name of a proxy's Lease before its identity."""
PROXY_LABEL: Final = {"app.kubernetes.io/part-of": "flagstaff", "app.kubernetes.io/component": "proxy"}
"""The labels of the objects that a proxy writes."""

MOST_LAGGARDS: Final = 20
"""Most laggards that one proxy names, and most others."""
MOST_GROUPS: Final = 64
"""Lists in one receipt."""
_ID: Final = 6
_ENTRY: Final = 12
_LATEST: Final = 2**48 - 1


class ServedGroup(Model):
    """Members that serve the same."""

    digest: str = ""
    """Empty: nothing yet."""
    revision: str = ""
    silent: bool = False
    """Whether they have sent no report for a while."""
    claimed: bool = False
    """Whether their names are unverified."""
    members: str = ""
    """Packed, see `pack`."""


class Laggard(Model):
    """A member that is silent, or serves something else than it should."""

    id: str
    name: str
    """`namespace/pod`, or the instance of a process outside pods."""
    node: str = ""
    serves: str = ""
    """A revision, or a digest where none is known; empty: nothing."""
    since: str = ""
    """RFC 3339."""
    silent: bool = False
    claimed: bool = False
    """The name is not verified."""


class FlagReceiptSpec(Model):
    """The proxy that writes a receipt, and the object that it is about."""

    configuration: Annotated[str, Field(min_length=1, max_length=253)]
    """The FeatureFlagConfiguration beside it."""
    proxy: Annotated[str, Field(min_length=1, max_length=253)]


class FlagReceiptStatus(StatusModel):
    """What the proxy knows."""

    digest: str = ""
    """The digest of what it delivers."""
    observed_at: str | None = None
    """Time at which it first observed the change to that digest."""
    groups: Annotated[tuple[ServedGroup, ...], Field(max_length=MOST_GROUPS)] = ()
    left: str = ""
    """Members that left within the time until one is silent, packed: another proxy may not know yet."""
    left_claimed: str = ""
    """Members that left, as in `left`, but whose names are not verified."""
    left_before: str = ""
    """Members that left earlier. Another proxy counts them as silent, or they report to it after a return."""
    left_before_claimed: str = ""
    laggards: Annotated[tuple[Laggard, ...], Field(max_length=MOST_LAGGARDS)] = ()
    others: Annotated[tuple[Laggard, ...], Field(max_length=MOST_LAGGARDS)] = ()
    """Some who serve what is delivered: laggards, where something newer is and this proxy has not seen it."""
    latency: dict[str, int] | None = None
    """Members by step of `Histogram`, from observed to served; None where there are none: server-side apply
    makes null of an empty map that was not empty before, and refuses it.
    """
    delivered: int = 0
    """Streams of subscribers that send no receipts."""
    claimed: int = 0
    """Members whose names are not verified."""


def member_id(namespace: str, pod: str, instance: str) -> bytes:
    """The id of a pod, by its uid or name, or of a process outside pods."""
    what = f"pod\n{namespace}\n{pod}" if pod else f"instance\n{instance}"
    return hashlib.blake2b(what.encode(errors="surrogatepass"), digest_size=_ID).digest()


def entry(member: bytes, connected_at: int) -> bytes:
    """Encode one member of a list: its id, and when it connected, in ms since 1970 (big-endian)."""
    return member + min(connected_at, _LATEST).to_bytes(6, "big")


def pack(entries: Iterable[bytes]) -> str:
    """A list as text: the entries in order, in base64."""
    return base64.b64encode(b"".join(sorted(entries))).decode()


def unpack(text: str) -> Iterator[tuple[bytes, int]]:
    """Return the ids of a list, and when each connected. Raises ValueError for any other text."""
    try:
        whole = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("members are not base64") from error
    if len(whole) % _ENTRY:
        raise ValueError("members are cut off")
    for at in range(0, len(whole), _ENTRY):
        yield whole[at : at + _ID], int.from_bytes(whole[at + _ID : at + _ENTRY], "big")


def receipt_name(configuration: str, proxy: str) -> str:
    """The object's name: readable, and one for each pair."""
    suffix = hashlib.sha256(f"{configuration}\n{proxy}".encode()).hexdigest()[:12]
    return f"{configuration[:120].rstrip('-.')}.{proxy[:100].rstrip('-.').lower()}.{suffix}"


def pair_of(found: Resource) -> tuple[str, str]:
    """Return the configuration and the proxy of a FlagReceipt; empty if malformed."""
    pair = (found.spec.get("configuration"), found.spec.get("proxy"))
    configuration, proxy = (each if isinstance(each, str) else "" for each in pair)
    return configuration, proxy
