"""Which hosts each kind of object may have us ask, by the settings and by where the API server is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from controller.runtime.hosts import Hosts

if TYPE_CHECKING:
    from controller.settings import ControllerSettings


def source_hosts_of(settings: ControllerSettings) -> Hosts:
    """Of FlagSources."""
    return Hosts(
        settings.source_hosts,
        settings.denied_source_hosts,
        api_server=_api_server(),
        in_cluster=not settings.deny_cluster_hosts,
        plain_http=not settings.deny_http_sources,
    )


def artifact_hosts_of(settings: ControllerSettings) -> Hosts:
    """Of the artifacts of Flux's sources, whose names --artifact-hosts has."""
    return Hosts(denied=settings.denied_artifact_hosts, kind="artifact", api_server=_api_server())


def _api_server() -> tuple[str, ...]:
    """It answers nobody's Git, but may tell what is asked of it."""
    server = os.environ.get("KUBERNETES_SERVICE_HOST")
    return (server,) if server else ()
