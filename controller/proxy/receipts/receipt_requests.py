"""Reads the requests of `flagstaff.delivery.v1`: who sends a receipt, and what it says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from controller.proxy.receipts.members import MemberIdentity, Report
from controller.proxy.streams.stream_limits import host_of
from evaluator.http.messages import Code, RpcError
from evaluator.wire.delivery import MemberText

if TYPE_CHECKING:
    from controller.proxy.access.users import Caller
    from evaluator.http.messages import Call
    from evaluator.wire.delivery_pb2 import Member, ReportRequest

_TEXT: Final = 253
"""Characters of a name."""
_DIGEST: Final = 80
_LONGEST: Final = 400 * 86_400 * 1000
"""Milliseconds for which anything may be served."""


def read(kind: Any, message: bytes) -> Any:
    """The request in `message`, of the protobuf class `kind`. Raises RpcError INVALID_ARGUMENT."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise RpcError(Code.INVALID_ARGUMENT, "malformed request") from error


def identity(call: Call, member: Member, caller: Caller | None) -> MemberIdentity:
    """Return who reports: the token's pod, or else the claimed one. Raises RpcError INVALID_ARGUMENT."""
    text = MemberText.of(member)
    verified = caller is not None and caller.verified and bool(caller.pod)
    if caller is not None and verified:
        # Its node and its version are claims in any case.
        text = MemberText(
            text.instance, caller.namespace, caller.pod, caller.pod_uid, text.node, text.version
        )
    fields = (text.namespace, text.pod, text.pod_uid, text.instance, text.node, text.version)
    if any(len(field) > _TEXT or not field.isprintable() for field in fields):
        raise RpcError(Code.INVALID_ARGUMENT, "the member's name is too long or is not text")
    if not text.pod and not text.instance:
        raise RpcError(Code.INVALID_ARGUMENT, "the member names neither a pod nor an instance")
    return MemberIdentity(*fields, verified=verified, host=host_of(call.peer))


def report(request: ReportRequest, now: float) -> Report:
    """What a member says; `now` is Unix seconds. Raises RpcError INVALID_ARGUMENT."""
    digest, revision = request.digest, request.revision
    if len(digest) > _DIGEST or not (digest + revision).isprintable():
        raise RpcError(Code.INVALID_ARGUMENT, "the digest is too long or is not text")
    return Report(
        digest=digest,
        revision=revision[:_TEXT],
        served_at=now - min(request.served_for_ms, _LONGEST) / 1000,
        replaced=request.replaced,
        unsaved="".join(filter(str.isprintable, request.unsaved))[:_TEXT],
    )
