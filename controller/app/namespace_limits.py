"""The limits of each namespace, as the settings have them: the hosts that its objects may name, and its
quotas.
"""

from __future__ import annotations

import ipaddress
import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel

from controller.api import flagsource
from controller.runtime.hosts import Hosts
from controller.runtime.limits import NamespaceLimits
from controller.runtime.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from controller.app.settings import ControllerSettings
    from controller.runtime.cache import Cache

    Usage: TypeAlias = Callable[[], Mapping[str, int]]
    """Usage of one limited resource, by namespace."""


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
    """The hosts that MetricTemplates, webhooks of FlagRollouts and deletion guards may have. A metric server
    knows of every tenant, so one inside the cluster is asked only where the operator names it.
    """
    return Hosts(
        settings.rollout_hosts,
        settings.denied_rollout_hosts,
        kind="rollout",
        api_server=_names_of(api_server),
        local=None if settings.rollout_hosts else False,
    )


def kubeconfig_hosts_of(settings: ControllerSettings, api_server: str) -> Hosts:
    """The hosts that API servers of other clusters may have."""
    return Hosts(
        settings.kubeconfig_hosts,
        settings.denied_kubeconfig_hosts,
        kind="kubeconfig",
        api_server=_names_of(api_server),
        plain_http=False,
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


def limits_of(settings: ControllerSettings) -> NamespaceLimits:
    """The limits of each namespace at the controller."""
    return NamespaceLimits(
        artifact_bytes=settings.quota_artifact_bytes,
        mirror_bytes=settings.quota_mirror_bytes,
        git_processes=settings.quota_git_processes,
    )


def artifact_quota(limits: NamespaceLimits, objects: Cache) -> Quota:
    """The quota on bytes of the artifacts of FlagSources."""
    return Quota("bytes of artifacts", "--quota-artifact-bytes", limits.artifact_bytes, stored_bytes, objects)


def artifact_usage(objects: Cache) -> dict[str, Usage]:
    """The bytes of artifacts that namespaces have, by the field of `NamespaceLimits`."""
    return {"artifact_bytes": partial(_stored_by_namespace, objects)}


class QuotaMetrics(Collector):
    """How much of each limited resource namespaces use."""

    def __init__(self, limits: NamespaceLimits, usages: Mapping[str, Usage]) -> None:
        """`usages` by the field of `NamespaceLimits`."""
        self._limits = limits
        self._usages = usages

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape, in a thread beside the loop."""
        labels = ("namespace", "quota")
        used = GaugeMetricFamily("flagstaff_quota_used", "What a namespace has.", labels=labels)
        limit = GaugeMetricFamily("flagstaff_quota_limit", "What a namespace may have.", labels=labels)
        for name, usage in self._usages.items():
            most: int = getattr(self._limits, name)
            for namespace, number in usage().items() if most else ():
                used.add_metric((namespace, to_camel(name)), number)
                limit.add_metric((namespace, to_camel(name)), most)
        yield used
        yield limit


def _stored_by_namespace(objects: Cache) -> Counter[str]:
    usage: Counter[str] = Counter()
    for source in objects.of_kind(flagsource.KIND):
        usage[source.namespace] += stored_bytes(source)
    return usage
