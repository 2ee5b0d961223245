"""Which hosts each kind of object may have us ask, by the settings and by where the API server is."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from controller.runtime.tenancy.hosts import Hosts

if TYPE_CHECKING:
    from controller.app.settings.process_settings import ControllerSettings


def source_hosts_of(settings: ControllerSettings, api_server: str) -> Hosts:
    """The hosts that FlagSources may use. `api_server`: its URL, as our client has it, here and below."""
    return Hosts(
        settings.source_hosts,
        settings.denied_source_hosts,
        api_server=_names_of(api_server),
        in_cluster=not settings.deny_cluster_hosts,
        plain_http=not settings.deny_http_sources,
    )


def artifact_hosts_of(settings: ControllerSettings, api_server: str) -> Hosts:
    """The hosts that artifacts of Flux's sources may be on, whose names --artifact-hosts has."""
    return Hosts(denied=settings.denied_artifact_hosts, kind="artifact", api_server=_names_of(api_server))


def provider_hosts_of(settings: ControllerSettings, api_server: str) -> Hosts:
    """The hosts that FlagProviders may use."""
    return Hosts(
        settings.provider_hosts,
        settings.denied_provider_hosts,
        kind="provider",
        api_server=_names_of(api_server),
        local=settings.allow_local_providers,
    )


def rollout_hosts_of(settings: ControllerSettings, api_server: str) -> Hosts:
    """The hosts that MetricTemplates and webhooks of FlagRollouts may have. A metric server knows of every
    tenant, so one inside the cluster is asked only where the operator names it.
    """
    return Hosts(
        settings.rollout_hosts,
        settings.denied_rollout_hosts,
        kind="rollout",
        api_server=_names_of(api_server),
        local=None if settings.rollout_hosts else False,
    )


def _names_of(api_server: str) -> tuple[str, ...]:
    """The API server serves no Git, but its responses to such a request may end up in messages. One on this
    machine is a developer's, as are the Git servers beside it; the lists deny this machine by default.
    """
    names = (urlsplit(api_server).hostname, os.environ.get("KUBERNETES_SERVICE_HOST"))
    return tuple(dict.fromkeys(name for name in names if name and not _is_loopback(name)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
