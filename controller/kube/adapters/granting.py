"""Adds to refusals of the API server the command that grants the missing right. Pure."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.kube.paths import service_account_user
from controller.runtime.reconciling.setbacks import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator


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
