"""Says of an object with flags that the FlagSet which wrote it writes another one now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagset
from controller.api.flagset_status import FlagSetStatus
from controller.api.objects.conditions import SUPERSEDED, TRUE, Condition
from controller.api.objects.meta import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource
    from controller.api.openfeature.featureflagconfiguration import ConfigurationStatus
    from controller.runtime.objects.cache import Cache, Change

TARGET_CHANGED: Final = "TargetChanged"


def superseded_condition(
    resource: Resource, objects: Cache, status: ConfigurationStatus
) -> tuple[Condition, ...]:
    """The condition of an object that its FlagSet wrote and left; `status` says how many follow it."""
    writer = flagset.proven_writer(resource)
    flag_set = objects.get(ObjectKey(flagset.KIND, resource.namespace, writer)) if writer else None
    written = [(target.kind, target.name) for target in FlagSetStatus.of(flag_set).target]
    if not written or (resource.key.kind, resource.name) in written:
        return ()
    now = " and ".join(f"{kind} {name}" for kind, name in written)
    message = f"FlagSet {writer} writes {now} and not this object any more; {_followers(status)}"
    return (Condition(SUPERSEDED, TRUE, TARGET_CHANGED, message),)


def _followers(status: ConfigurationStatus) -> str:
    if status.total is None:
        return "no proxy reports who follows it"
    count = status.total + (status.delivered or 0)
    who = {0: "nobody follows", 1: "1 subscriber follows"}.get(count, f"{count} subscribers follow")
    return f"{who} it"


def targets_of_writer(_cache: Cache, change: Change) -> Iterator[ObjectKey]:
    """Yield the objects that a FlagSet wrote before a change of its status, and that it writes since."""
    for flag_set in filter(None, (change.before, change.after)):
        for target in FlagSetStatus.of(flag_set).target:
            yield ObjectKey(str(target.kind), flag_set.namespace, str(target.name))
