"""The quotas of each namespace, as the settings have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.flagsets.stage import flag_count
from controller.runtime.limits import Limits, NamespaceLimits
from controller.runtime.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from controller.api.meta import Resource
    from controller.runtime.cache import Cache
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


def _one(_resource: Resource) -> int:
    """Also of what fails: it is looked at as well."""
    return 1
