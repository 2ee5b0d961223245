"""A member of a flag set: its identity, its report, and whether it lags. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.api.receipt import member_id


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The identity of a member."""

    namespace: str
    pod: str
    """Empty outside pods."""
    pod_uid: str
    instance: str
    node: str = ""
    version: str = ""
    verified: bool = False
    """Whether a reviewed token names the namespace and the pod; otherwise the member claims them."""
    host: str = field(default="", compare=False)
    """The address that its reports come from."""

    @property
    def id(self) -> bytes:
        """Return the same id for all processes of a pod, one after another, at every proxy. With a Pod uid
        the namespace does not count: unverified members could claim any.
        """
        namespace = "" if self.pod_uid else self.namespace
        return member_id(namespace, self.pod_uid or self.pod, self.instance)

    @property
    def name(self) -> str:
        """Return the name for people."""
        if not self.pod:
            return self.instance
        return f"{self.namespace}/{self.pod}" if self.namespace else self.pod


@dataclass(frozen=True, slots=True)
class Report:
    """What a member reports."""

    connected_at: int
    """Milliseconds since 1970 on its own clock."""
    digest: str = ""
    revision: str = ""
    served_at: float = 0.0
    """Unix seconds on our clock."""
    replaced: bool = False
    """Whether it replaced a content that was delivered before."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A member, and whether it lags."""

    who: MemberIdentity
    digest: str
    """Empty: it has nothing to serve yet."""
    revision: str
    silent: bool
    lagging: bool
    since: float
    """Unix seconds: since when it lags, or has served what it serves."""
