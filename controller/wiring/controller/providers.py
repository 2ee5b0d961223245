"""The providers of sources that a cluster's FlagSources may name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.flagsets.building.provenance import ProvenanceDetail
from controller.sources.bucket.factory import BucketFactory
from controller.sources.git.factory import GitFactory
from controller.sources.oci.factory import OciFactory
from controller.wiring.tenancy.hosts import source_hosts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.runtime.tenancy.limits import Limits
    from controller.settings import ControllerSettings
    from controller.sources.provider import ProviderFactory
    from controller.sources.secrets import ReadSecret
    from controller.wiring.tenancy.quotas import Usage


def providers_of(
    settings: ControllerSettings, limits: Limits, secret: ReadSecret, api_server: str
) -> dict[str, ProviderFactory[Any]]:
    """By the field of a FlagSource's spec that configures them. `api_server`: its URL."""
    authors = settings.provenance is ProvenanceDetail.FULL
    hosts = source_hosts_of(settings, api_server)
    git = GitFactory(
        secret,
        settings.storage_path / "mirrors",
        allow_local=settings.allow_local,
        authors=authors,
        hosts=hosts,
        limits=limits,
    )
    oci = OciFactory(secret, authors=authors, hosts=hosts)
    return {"git": git, "oci": oci, "bucket": BucketFactory(secret, hosts, authors=authors)}


def usages_of(providers: Iterable[ProviderFactory[Any]]) -> dict[str, Usage]:
    """What namespaces have of what is limited, by the field of `NamespaceLimits`."""
    return {
        name: usage for each in providers if isinstance(each, GitFactory) for name, usage in each.used.items()
    }
