"""A Secret's content, and the only hosts that may receive it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOWED_HOSTS: Final = "flagstaff.dev/allowed-hosts"
"""The annotation of a Secret: names and globs, separated by commas."""
REASON: Final = "SecretHostDenied"


_MOST: Final = 64
_LONGEST: Final = 253
"""Most characters of a host or glob: matching all of them takes a seventh of a second at most."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The hosts that may receive a Secret."""

    namespace: str = ""
    name: str = ""
    hosts: tuple[str, ...] | None = None
    """Names and globs; None: any host."""
    required: bool = False
    """Whether the installation asks for the annotation."""

    def require(self, host: str) -> None:
        """Raise Stalled (SecretHostDenied) for a host that the Secret may not be shown to."""
        host = host.strip("[]").lower().rstrip(".")
        if self.hosts is None and not self.required:
            return
        hosts = self.hosts or ()
        if len(hosts) > _MOST or any(len(pattern) > _LONGEST for pattern in hosts):
            why = f"may have {_MOST} hosts at most, of {_LONGEST} characters"
        elif any(fnmatchcase(host, pattern.lower()) for pattern in hosts):
            return
        else:
            why = "does not name it" if self.hosts is not None else "is missing, and must be there"
        raise Stalled(
            REASON,
            f"Secret {self.namespace}/{self.name} may not be used for host {host}: its annotation "
            f"{ALLOWED_HOSTS} {why}",
        )

    def require_free(self, subject: str) -> None:
        """Raise Stalled (SecretHostDenied) for a Secret of certain hosts that is to become `subject`."""
        if self.hosts is not None:
            raise Stalled(
                REASON,
                f"Secret {self.namespace}/{self.name} may not be used for {subject}: its annotation "
                f"{ALLOWED_HOSTS} binds it to hosts",
            )

    def require_annotation(self) -> Binding:
        """Return the binding for an installation that requires the annotation."""
        return replace(self, required=True)


UNBOUND: Final = Binding()
"""The binding of content that is not from a cluster."""


class SecretContent(dict[str, bytes]):
    """A Secret's content by key."""

    def __init__(self, content: Mapping[str, bytes], binding: Binding) -> None:
        super().__init__(content)
        self.binding = binding


def binding_of(content: Mapping[str, bytes]) -> Binding:
    """The binding of a Secret."""
    return content.binding if isinstance(content, SecretContent) else UNBOUND


def hosts_of(annotation: str | None) -> tuple[str, ...] | None:
    """Return the hosts that an annotation names, or None."""
    if annotation is None:
        return None
    return tuple(host.strip() for host in annotation.split(",") if host.strip())
