"""The limits of each namespace, as the settings have them, and what namespaces use of them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel

from controller.api import flagsource
from controller.runtime.tenancy.limits import NamespaceLimits
from controller.runtime.tenancy.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from controller.app.settings.controller_settings import ControllerSettings
    from controller.runtime.objects.cache import Cache

    Usage: TypeAlias = Callable[[], Mapping[str, int]]
    """Usage of one limited resource, by namespace."""


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
