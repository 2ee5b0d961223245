"""The port by which flags are fetched from a remote provider: HTTP, flagd.sync, or a source's artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.api.remote_provider import RemoteFlagProvider
    from evaluator.flags.layers.parsed import Parsed

INVALID: Final = "InvalidFlags"
"""The reason for an answer that holds no flags that can be served."""


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """What an object asks of its provider."""

    resource: Resource
    spec: RemoteFlagProvider
    version: str = ""
    """The version in force, which need not be sent again; empty: send what there is."""

    @property
    def key(self) -> ObjectKey:
        """Return which object asks."""
        return self.resource.key

    @property
    def account(self) -> str | None:
        """Return the service account that Secrets are read as; None: that of the installation."""
        return self.spec.service_account_name


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a provider sent; a helper process is given it as it is."""

    read: Callable[[], Parsed]
    """Reads the flags: a function of a module, with its arguments. Takes long. Raises Setback."""
    version: str = ""
    """The version as the provider names it, in one line; empty: it names none."""
    version_key: str = "version"
    """The metadata of the set that names the version where the provider does not."""
    modified: datetime | None = None
    """When it was changed, as far as the provider says; aware."""
    large: bool = False
    """Whether the flags may be many times larger than what was sent."""


class RemoteSource(Protocol):
    """A type of provider."""

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """Return what the provider has, bounded and not judged yet; None: `request.version` still. Raises
        Setback.
        """


def place_of(spec: RemoteFlagProvider) -> str:
    """Return the name of a provider, without the query of a URL, which may be secret."""
    if spec.type == "flagSource":
        return f"FlagSource/{spec.flag_source}"
    place = (spec.url or "").partition("?")[0]
    return f"{place} {spec.selector}" if spec.type == "grpc" and spec.selector else place
