"""The quotas of each namespace, as the settings have them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel

from controller.api import flagset, flagsource
from controller.flagsets.stage import flag_count
from controller.runtime.limits import Limits, NamespaceLimits
from controller.runtime.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from prometheus_client.core import Metric

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache
    from controller.settings import ControllerSettings

    Usage: TypeAlias = Callable[[], Mapping[str, int]]
    """What namespaces have of something."""


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
    return (
        Quota(
            "FlagSources",
            lambda namespace: limits.of(namespace).sources,
            used=_one,
            objects=objects,
            option="--quota-sources",
        ),
        Quota(
            "bytes of artifacts",
            lambda namespace: limits.of(namespace).artifact_bytes,
            used=stored_bytes,
            objects=objects,
            option="--quota-artifact-bytes",
        ),
    )


def flag_set_quotas(limits: Limits, objects: Cache) -> tuple[Quota, Quota]:
    """How many FlagSets, and how many flags."""
    return (
        Quota(
            "FlagSets",
            lambda namespace: limits.of(namespace).flag_sets,
            used=_one,
            objects=objects,
            option="--quota-flag-sets",
        ),
        Quota(
            "flags",
            lambda namespace: limits.of(namespace).flags,
            used=flag_count,
            objects=objects,
            option="--quota-flags",
        ),
    )


class QuotaMetrics(Collector):
    """What namespaces have of what is limited there."""

    def __init__(self, limits: Limits, usages: Mapping[str, Usage]) -> None:
        """`usages` by the field of `NamespaceLimits`."""
        self._limits = limits
        self._usages = usages

    def collect(self) -> Iterator[Metric]:
        """Called by the registry at each scrape, in a thread beside the loop."""
        labels = ("namespace", "quota")
        used = GaugeMetricFamily("flagstaff_quota_used", "What a namespace has.", labels=labels)
        limit = GaugeMetricFamily("flagstaff_quota_limit", "What a namespace may have.", labels=labels)
        for name, usage in self._usages.items():
            for namespace, number in usage().items():
                most = getattr(self._limits.of(namespace), name)
                if most:
                    used.add_metric((namespace, to_camel(name)), number)
                    limit.add_metric((namespace, to_camel(name)), most)
        yield used
        yield limit


def object_usages(objects: Cache) -> dict[str, Usage]:
    """As the statuses of the objects tell."""
    return {
        name: partial(_of_objects, objects, kind, count)
        for kind, name, count in (
            (flagsource.KIND, "sources", _one),
            (flagsource.KIND, "artifact_bytes", stored_bytes),
            (flagset.KIND, "flag_sets", _one),
            (flagset.KIND, "flags", flag_count),
        )
    }


def _of_objects(objects: Cache, kind: str, count: Callable[[Resource], int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in objects.of_kind(kind):
        found[each.namespace] += count(each)
    return found


def _one(_resource: Resource) -> int:
    """Also of what fails: it is looked at as well."""
    return 1
