"""The quotas of each namespace, as the settings have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.flagsets.stage import flag_count
from controller.runtime.quotas import Quota
from controller.sources.stage import stored_bytes

if TYPE_CHECKING:
    from controller.runtime.cache import Cache
    from controller.settings import ControllerSettings


def source_quotas(settings: ControllerSettings, objects: Cache) -> tuple[Quota, Quota]:
    """How many FlagSources, and how many bytes of artifacts."""
    return (
        Quota(
            "FlagSources",
            settings.quota_sources,
            used=lambda each: int("artifact" in each.status),
            objects=objects,
            option="--quota-sources",
        ),
        Quota(
            "bytes of artifacts",
            settings.quota_artifact_bytes,
            used=stored_bytes,
            objects=objects,
            option="--quota-artifact-bytes",
        ),
    )


def flag_set_quotas(settings: ControllerSettings, objects: Cache) -> tuple[Quota, Quota]:
    """How many FlagSets, and how many flags."""
    return (
        Quota(
            "FlagSets",
            settings.quota_flag_sets,
            used=lambda each: int("flags" in each.status),
            objects=objects,
            option="--quota-flag-sets",
        ),
        Quota("flags", settings.quota_flags, used=flag_count, objects=objects, option="--quota-flags"),
    )
