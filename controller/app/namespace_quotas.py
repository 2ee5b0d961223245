"""The quotas of each namespace, as the settings have them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel

from controller.api import flagset, flagsource
from controller.flagsets.stage import flag_count
from controller.runtime.tenancy.limits import Limits, NamespaceLimits
from controller.runtime.tenancy.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from controller.api.objects.meta import Resource
    from controller.app.settings import ControllerSettings
    from controller.runtime.objects.cache import Cache

    Usage: TypeAlias = Callable[[], Mapping[str, int]]
    """Usage of one limited resource, by namespace."""


def limits_of(
    settings: ControllerSettings, changed: Callable[[str], None] = lambda _namespace: None
) -> Limits:
    """As the options have them; `changed` is called with each namespace that gets others."""
    return Limits(
        NamespaceLimits(
            sources=settings.quota_sources,
            flag_sets=settings.quota_flag_sets,
            artifact_bytes=settings.quota_artifact_bytes,
            mirror_bytes=settings.quota_mirror_bytes,
            git_processes=settings.quota_git_processes,
            flags=settings.quota_flags,
        ),
        changed,
    )


def quotas_of(kind: str, limits: Limits, objects: Cache) -> tuple[Quota, Quota]:
    """How many objects of a kind there may be, and how much they may have."""
    count, content = (
        Quota(
            each.what,
            partial(_most, each.name, limits),
            used=each.used,
            objects=objects,
            option=f"--quota-{each.name.replace('_', '-')}",
        )
        for each in _LIMITED
        if each.kind == kind
    )
    return count, content


class QuotaMetrics(Collector):
    """How much of each limited resource namespaces use."""

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
                if most := _most(name, self._limits, namespace):
                    used.add_metric((namespace, to_camel(name)), number)
                    limit.add_metric((namespace, to_camel(name)), most)
        yield used
        yield limit


def object_usages(objects: Cache) -> dict[str, Usage]:
    """As the statuses of the objects show, by the field of `NamespaceLimits`."""
    return {each.name: partial(_used, each, objects) for each in _LIMITED}


def _used(limited: _Limited, objects: Cache) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in objects.of_kind(limited.kind):
        found[each.namespace] += limited.used(each)
    return found


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


def _most(name: str, limits: Limits, namespace: str) -> int:
    found: int = getattr(limits.of(namespace), name)
    return found


_LIMITED: Final = (
    _Limited(flagsource.KIND, "sources", "FlagSources", _one),
    _Limited(flagsource.KIND, "artifact_bytes", "bytes of artifacts", stored_bytes),
    _Limited(flagset.KIND, "flag_sets", "FlagSets", _one),
    _Limited(flagset.KIND, "flags", "flags", flag_count),
)
