"""Paths of objects on an API server, its responses, and the setbacks that they mean for a step. Pure."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from controller.api.kinds import PLURALS
from controller.api.parsing import OBJECT_NAME
from controller.runtime.setbacks import Failed, Passing, Stalled
from evaluator.host.times import parse_http_date

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime


def root_of(api_version: str) -> str:
    """The path of an API version: of the list of its kinds."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def path_of(api_version: str, kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of all of its kind in the namespace. Raises Stalled for a bad name."""
    if not (OBJECT_NAME.fullmatch(namespace) and (not name or OBJECT_NAME.fullmatch(name))):
        raise Stalled("InvalidSpec", f"{kind} {name[:253]!r}: not a valid object name")
    path = f"{root_of(api_version)}/namespaces/{namespace}/{PLURALS[kind]}"
    return f"{path}/{name}" if name else path


def service_account_user(namespace: str, name: str) -> str:
    """Return the user name of a service account. Raises Stalled for an invalid name."""
    if not (OBJECT_NAME.fullmatch(namespace) and OBJECT_NAME.fullmatch(name)):
        raise Stalled("InvalidSpec", f"{name[:253]!r}: no service account can have this name")
    return f"system:serviceaccount:{namespace}:{name}"


def paths_of_all(api_version: str, plural: str, namespaces: Sequence[str]) -> list[str]:
    """Return the paths of all objects of a kind, in `namespaces` or in all."""
    root = root_of(api_version)
    paths = [f"{root}/namespaces/{quote(namespace, safe='')}/{plural}" for namespace in namespaces]
    return paths or [f"{root}/{plural}"]


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account whose rights requests use."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """Return the API server's name for it. Raises Stalled for an invalid name."""
        return service_account_user(self.namespace, self.name)


_OURS: Final = ServiceAccount("flagstaff-system", "flagstaff-controller")
_IMPERSONATION: Final = "flagstaff-impersonation"
_REFUSED: Final = " cannot impersonate"
"""Followed by ` resource`, or by `-on:serviceaccount:get resource`, whichever right was asked for last."""


@contextlib.contextmanager
def add_grant_command(namespace: str, role: str, acting: ServiceAccount | None) -> Iterator[None]:
    """Add the command to a Failed (AccessDenied) that the block raises: the one that binds the ClusterRole
    `role`, or the one by which we may act as that account at all.
    """
    try:
        yield
    except Failed as failed:
        if failed.reason != "AccessDenied":
            raise
        if _REFUSED in failed.message:
            role, acting = _IMPERSONATION, None
        raise Failed(failed.reason, f"{failed.message}; {_command(namespace, role, acting)}") from failed


def _command(namespace: str, role: str, acting: ServiceAccount | None) -> str:
    subject = acting or _OURS
    name = role if acting is None else f"{role}-{acting.name}"
    return (
        f"kubectl create rolebinding {name} -n {namespace} --clusterrole={role} "
        f"--serviceaccount={subject.namespace}:{subject.name}"
    )


_REFUSED_USER: Final = re.compile(r'User "([\w.:@/-]+)" cannot ')


def grant_of_refused(refusal: str, namespace: str, role: str) -> str:
    """The command that binds the ClusterRole `role`, or that of impersonation where that is refused, to the
    user whom an API server's refusal names; empty where it names none.
    """
    match = _REFUSED_USER.search(refusal)
    if match is None:
        return ""
    role = _IMPERSONATION if _REFUSED in refusal else role
    user = match[1]
    account = user.removeprefix("system:serviceaccount:")
    name, subject = (role, f"--user={user}")
    if account != user:
        name, subject = f"{role}-{account.rpartition(':')[2]}", f"--serviceaccount={account}"
    return f"kubectl create rolebinding {name} -n {namespace} --clusterrole={role} {subject}"


_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""How the API server repeats, with status 500, that etcd takes no object of that size."""
MOST_RETRY_AFTER: Final = 30.0
"""Seconds: a proxy in between may ask for a day."""
_EDIT: Final = re.compile(r'conflict with "([^"]*)" using ')


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An answer of the API server."""

    status: int
    body: dict[str, Any]
    retry_after: float = 0.0
    """Seconds to wait before asking again, as the API server asked for."""
    date: datetime | None = None
    """The API server's clock; None if the answer has no date."""

    @property
    def message(self) -> str:
        """The message of a refusal."""
        return str(self.body.get("message", f"status {self.status}"))[:500]


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of `Retry-After`, bounded; 0 where there are none. A date is not read: the API server sends
    seconds.
    """
    text = headers.get("Retry-After", "").strip()
    return min(MOST_RETRY_AFTER, float(text)) if text.isascii() and text.isdigit() else 0.0


def date(headers: Mapping[str, str]) -> datetime | None:
    """The time of a response, by the clock of its server."""
    return parse_http_date(headers.get("Date", ""))


def require_object(answer: ApiResponse, kind: str, name: str) -> dict[str, Any]:
    """The object or list, with its metadata, that a good answer has. Raises a setback for any other."""
    require_good(answer, kind, name)
    if not isinstance(answer.body.get("metadata"), dict):
        # A proxy in between answers so: a load balancer with its page.
        what = f"{kind} {name}".strip()
        raise Failed("ApiServerFailed", f"{what}: the response is not an object: {answer.message}")
    return answer.body


def require_good(answer: ApiResponse, kind: str, name: str) -> None:
    """Raise a setback for an answer that is a refusal."""
    if 200 <= answer.status < 300:
        return
    what = f"{kind} {name}".strip()
    if answer.status in {HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED}:
        raise Failed("AccessDenied", f"{what}: {answer.message}")
    if answer.status in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}:
        raise Stalled("InvalidObject", f"{what}: {answer.message}")
    if any(refusal in answer.message for refusal in _TOO_LARGE):
        raise Stalled("InvalidObject", f"{what} is too large for the cluster to store; make it smaller")
    raise Failed("ApiServerFailed", f"{what}: {answer.message}")


def unreachable(address: str, error: BaseException) -> str:
    """An address that gave no answer, and why: `https://10.0.0.1:6443: connection refused`."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, TimeoutError):
        why = "no answer in time"
    elif isinstance(cause, ConnectionRefusedError):
        why = "connection refused"
    else:
        why = getattr(cause, "strerror", None) or str(cause)
    return f"{address}: {why or type(error).__name__}"[:300]


def causes(answer: ApiResponse) -> list[Mapping[str, Any]]:
    """Return the causes of a conflict, one for each field that has another owner; none for another answer."""
    if answer.status != HTTPStatus.CONFLICT:
        return []
    return list((answer.body.get("details") or {}).get("causes") or ())


def editor(cause: Mapping[str, Any]) -> str | None:
    """The field manager of an edit; None for one that applies. The API server marks an edit by the version
    that it was made `using`.
    """
    match = _EDIT.search(str(cause.get("message", "")))
    return match[1] if match else None


def conflict_message(kind: str, name: str, answer: ApiResponse) -> str:
    """Names the other field managers and their fields, which the API server lists one by one."""
    conflict_causes = causes(answer)
    owners = sorted({str(cause.get("message", "")) for cause in conflict_causes})
    fields = sorted({str(cause.get("field", "")) for cause in conflict_causes})[:3]
    others = "; ".join(owners)[:300] or answer.message
    return (
        f"{kind} {name} belongs to another: {others} ({', '.join(fields)}); "
        "remove it there, or give this FlagSet another target.name"
    )


def require_unchanged(answer: ApiResponse, kind: str, name: str) -> None:
    """Raise Passing where the API server refused a write that was decided on another version."""
    if answer.status == HTTPStatus.CONFLICT and not causes(answer):
        raise Passing(
            "ChangedMeanwhile", f"{kind} {name} changed after it was read; it is compared again", delay=0.1
        )
