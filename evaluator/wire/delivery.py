"""`flagstaff.delivery.v1`: names, calls and members. The messages are in delivery.proto."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from evaluator.wire.delivery_pb2 import Member

if TYPE_CHECKING:
    from evaluator.wire import delivery_pb2

SERVICE: Final = "/flagstaff.delivery.v1.Delivery/"
REPORT: Final = SERVICE + "Report"
LEAVE: Final = SERVICE + "Leave"
IDENTIFY: Final = SERVICE + "Identify"
MARK: Final = "flagstaff-receipts"
"""Header of a sync stream whose subscriber sends receipts, so that it is not counted as one without."""


class AskFailed(Exception):
    """The server did not answer, or refused; the text quotes its answer."""


class NotOffered(AskFailed):
    """The server does not have the service."""


Ask: TypeAlias = Callable[[str, bytes], Awaitable[bytes]]
"""(RPC path, request) -> response. Raises AskFailed."""


@dataclass(frozen=True, slots=True)
class MemberText:
    """The identity that a member claims; all of it may be empty but `instance`, or `pod`."""

    instance: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    version: str = ""

    @classmethod
    def of(cls, member: delivery_pb2.Member) -> Self:
        """Convert a received message."""
        return cls(*(getattr(member, field.name) for field in fields(cls)))

    def message(self) -> Member:
        """Return the message to send."""
        return Member(**asdict(self))
