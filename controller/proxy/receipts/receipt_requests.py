"""Reads the requests of `flagstaff.delivery.v1`: who sends a receipt, and what it says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from controller.api.flagreceipt import MOST_HIDDEN
from controller.proxy.receipts.members import MemberIdentity, Report
from controller.proxy.streams.building import HiddenFlag
from evaluator.flags.composed import MOST_PARTS
from evaluator.flags.model import ComposedPart
from evaluator.http.messages import Code, RpcError, host_of
from evaluator.wire.delivery import MemberText

if TYPE_CHECKING:
    from controller.proxy.access.users import Caller
    from evaluator.http.messages import Call
    from evaluator.wire.delivery_pb2 import Member, ReportRequest

_TEXT: Final = 253
"""Characters of a name."""
_PLACE: Final = 400
"""Characters of a kind, a namespace and a name."""
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


@dataclass(frozen=True, slots=True)
class Claims:
    """What a member says of the flag sets that it serves."""

    namespace: str = ""
    """The namespace that it claims."""
    digest: str = ""
    revision: str = ""
    sets: tuple[ComposedPart, ...] = ()
    """Of a composition: the sets that it serves as parts of it."""
    hidden: tuple[HiddenFlag, ...] = ()
    """Flags under an override that another of its sources hides. Each set is as in FLAG_SET_KEY, or the
    selector of a source; empty: `origin` is the set that was asked for, `by` is not known.
    """


def claims(request: ReportRequest) -> Claims:
    """What a request says of flag sets. Raises RpcError INVALID_ARGUMENT."""
    parts = tuple(
        ComposedPart(part.order, part.flag_set, part.digest, part.revision[:_TEXT])
        for part in request.sets[:MOST_PARTS]
    )
    texts = [text for part in parts for text in part]
    if len(request.digest) > _DIGEST or not all(map(str.isprintable, (request.digest, request.revision))):
        raise RpcError(Code.INVALID_ARGUMENT, "the digest is too long or is not text")
    if any(len(text) > _PLACE or not text.isprintable() for text in texts):
        raise RpcError(Code.INVALID_ARGUMENT, "the name of a flag set is too long or is not text")
    hidden = tuple(HiddenFlag(flag.flag_set, flag.key, flag.by) for flag in request.hidden[:MOST_HIDDEN])
    return Claims(
        namespace=request.member.namespace,
        digest=request.digest,
        revision=request.revision[:_TEXT],
        sets=parts,
        hidden=tuple(flag for flag in hidden if len(flag.key) <= _TEXT and flag.key.isprintable()),
    )


def report(request: ReportRequest, now: float) -> Report:
    """What a member says of all that it serves; `now` is Unix seconds."""
    return Report(
        served_at=now - min(request.served_for_ms, _LONGEST) / 1000,
        replaced=request.replaced,
        unsaved="".join(filter(str.isprintable, request.unsaved))[:_TEXT],
    )
