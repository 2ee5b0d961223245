"""The quotas of each namespace, as the settings have them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel

from controller.api import flagset, flagsource
from controller.flagsets.stage import flag_count
from controller.runtime.tenancy.limits import Limits, NamespaceLimits
from controller.runtime.tenancy.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from controller.api.meta import Resource
    from controller.runtime.objects.cache import Cache
    from controller.settings import ControllerSettings


def limits_of(settings: ControllerSettings) -> Limits:
    """As the options have them."""
    return Limits(
        NamespaceLimits(
            sources=settings.quota_sources,
            flag_sets=settings.quota_flag_sets,
            artifact_bytes=settings.quota_artifact_bytes,
            mirror_bytes=settings.quota_mirror_bytes,
            git_processes=settings.quota_git_processes,
            flags=settings.quota_flags,
        )
    )


def source_quotas(limits: Limits, objects: Cache) -> tuple[Quota, Quota]:
    """How many FlagSources, and how many bytes of artifacts."""
    return _quota(_SOURCES, limits, objects), _quota(_ARTIFACTS, limits, objects)


def flag_set_quotas(limits: Limits, objects: Cache) -> tuple[Quota, Quota]:
    """How many FlagSets, and how many flags."""
    return _quota(_FLAG_SETS, limits, objects), _quota(_FLAGS, limits, objects)


def _quota(limited: _Limited, limits: Limits, objects: Cache) -> Quota:
    return Quota(
        limited.what,
        lambda namespace: _most(limited, limits, namespace),
        used=limited.used,
        objects=objects,
        option=f"--quota-{limited.name.replace('_', '-')}",
    )


class QuotaMetrics(Collector):
    """How much of each limited resource namespaces use, as the statuses of their objects show."""

    def __init__(self, objects: Cache, limits: Limits) -> None:
        self._objects = objects
        self._limits = limits

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape."""
        labels = ("namespace", "quota")
        used = GaugeMetricFamily("flagstaff_quota_used", "What a namespace has.", labels=labels)
        limit = GaugeMetricFamily("flagstaff_quota_limit", "What a namespace may have.", labels=labels)
        for each in (_SOURCES, _ARTIFACTS, _FLAG_SETS, _FLAGS):
            found: Counter[str] = Counter()
            for resource in self._objects.of_kind(each.kind):
                found[resource.namespace] += each.used(resource)
            for namespace, number in found.items():
                if most := _most(each, self._limits, namespace):
                    used.add_metric((namespace, to_camel(each.name)), number)
                    limit.add_metric((namespace, to_camel(each.name)), most)
        yield used
        yield limit


def _one(_resource: Resource) -> int:
    """Also of what fails: it is looked at as well."""
    return 1


class _Limited(NamedTuple):
    """What is limited of the objects of a kind."""

    kind: str
    name: str
    """The field of NamespaceLimits."""
    what: str
    """For people."""
    used: Callable[[Resource], int]
    """How much one object has by its status."""


def _most(limited: _Limited, limits: Limits, namespace: str) -> int:
    found: int = getattr(limits.of(namespace), limited.name)
    return found


_SOURCES: Final = _Limited(flagsource.KIND, "sources", "FlagSources", _one)
_ARTIFACTS: Final = _Limited(flagsource.KIND, "artifact_bytes", "bytes of artifacts", stored_bytes)
_FLAG_SETS: Final = _Limited(flagset.KIND, "flag_sets", "FlagSets", _one)
_FLAGS: Final = _Limited(flagset.KIND, "flags", "flags", flag_count)
