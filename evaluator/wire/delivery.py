"""`flagstaff.delivery.v1`: names, how it is called, and members. The messages are in delivery.proto."""

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
MARK: Final = "flagstaff-receipts"
"""Header of a sync stream whose subscriber sends receipts: it is not to be counted as one that does not."""


class AskFailed(Exception):
    """The server did not answer, or refused; the text says what it said."""


class NotOffered(AskFailed):
    """The server has no such service."""


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
        """As it was received."""
        return cls(*(getattr(member, field.name) for field in fields(cls)))

    def message(self, connected_at_ms: int) -> Member:
        """As it is sent."""
        return Member(**asdict(self), connected_at_ms=connected_at_ms)
