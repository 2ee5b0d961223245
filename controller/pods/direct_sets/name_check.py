"""Finds what else has the name under which a workload's flags are to be served. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import flagset
from controller.api.objects.meta import ObjectKey
from controller.api.openfeature.featureflagconfiguration import FLAG_KIND, KIND
from controller.pods.settings import well_known

MANAGER: Final = "flagstaff-direct-sets"
"""The field manager of sets of workloads."""

if TYPE_CHECKING:
    from controller.api.objects.meta import Resource
    from controller.runtime.objects.cache import Cache


def name_refusal(objects: Cache, workload: ObjectKey) -> str:
    """Why the flags of a workload cannot get its name, and what to do; empty where they can."""
    namespace, name = workload.namespace, workload.name
    configuration = objects.get(ObjectKey(KIND, namespace, name))
    holder = _flag_set(objects, namespace, name) or _other_maker(configuration, workload)
    if not holder and objects.get(ObjectKey(FLAG_KIND, namespace, name)) is not None:
        holder = f"a {FLAG_KIND}"
    if not holder:
        return ""
    return (
        f"the flags of {workload.kind} {name} are served under its name, which {holder} has already; rename "
        f"one of the two, or remove the annotation and follow what is there with {well_known.FLAG_SET}"
    )


def is_set_of(configuration: Resource, workload: ObjectKey) -> bool:
    """Whether a FeatureFlagConfiguration was made of the annotation of this workload, or of one that had its
    kind and name before: it may have been kept when that was deleted.
    """
    owned_by = {(owner.get("kind"), owner.get("name")) for owner in configuration.owners}
    # Kubernetes removes the owner of what is kept. The label alone proves nothing: anybody may write it.
    proven = owned_by == {(workload.kind, workload.name)} or (
        not owned_by and MANAGER in configuration.managers
    )
    return proven and configuration.labels.get(well_known.DIRECT_SET) == workload.kind


def _flag_set(objects: Cache, namespace: str, name: str) -> str:
    """The FlagSet that writes, or will write, an object of this name; empty: none."""
    for resource in objects.of_kind(flagset.KIND, namespace):
        target = resource.spec.get("target")
        named = target.get("name") if isinstance(target, dict) else None
        if (named or resource.name) == name:
            return f"FlagSet {resource.name}"
    return ""


def _other_maker(configuration: Resource | None, workload: ObjectKey) -> str:
    if configuration is None or is_set_of(configuration, workload):
        return ""
    kind = configuration.labels.get(well_known.DIRECT_SET)
    return f"{kind} {configuration.name} with flags of its own" if kind else f"another {KIND}"
