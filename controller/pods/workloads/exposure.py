"""Which hosts and annotations Flagds may give their Ingresses and HTTPRoutes. Pure.

Whoever may create a Flagd has objects made that they may not be allowed to make: an Ingress for somebody
else's host, or one with annotations by which some ingress controllers run code.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.openfeature.flagd import FlagdSpec

ALL: Final = ("*",)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Globs, in which `*` stands for dots and slashes, too."""

    hosts: tuple[str, ...] = ALL
    annotations: tuple[str, ...] = ALL
    """Of names of annotations."""

    def check(self, spec: FlagdSpec) -> None:
        """Raise Stalled for what is not allowed."""
        for host in _hosts(spec):
            # No host is any host, which `*` alone allows.
            if not _matches(host.lower() or "any host", self.hosts):
                raise Stalled(
                    "HostDenied",
                    f"host {host[:253] or '(any)'} is none of --flagd-hosts of the controller: "
                    f"{', '.join(self.hosts) or 'none is allowed'}",
                )
        for part in (spec.ingress, spec.gateway_api_routes):
            for name in sorted((part.annotations if part and part.enabled else None) or ()):
                if not _matches(name, self.annotations):
                    raise Stalled(
                        "AnnotationDenied",
                        f"annotation {name[:317]} is none of --flagd-annotations of the controller: "
                        f"{', '.join(self.annotations) or 'none is allowed'}",
                    )


def _hosts(spec: FlagdSpec) -> Iterator[str]:
    if spec.ingress is not None and spec.ingress.enabled:
        yield from spec.ingress.hosts or ("",)
        for entry in spec.ingress.tls:
            given = entry.get("hosts")
            yield from (str(host) for host in (given if isinstance(given, list) else ()))
    if spec.gateway_api_routes is not None and spec.gateway_api_routes.enabled:
        yield from spec.gateway_api_routes.hosts or ("",)


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)
