"""What is to be written and removed, from what is wanted and what is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.api import configuration, flagset, shard
from controller.api.meta import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controller.api.meta import Resource

MADE = (configuration.KIND, configuration.FLAG_KIND, shard.KIND)
"""Kinds that a FlagSet writes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes, in their order."""

    write: tuple[Mapping[str, Any], ...]
    remove: tuple[Resource, ...]
    """At once."""
    outdated: tuple[Resource, ...]
    """Shards of an earlier content: somebody may be reading them still."""


def plan(wanted: Sequence[Mapping[str, Any]], found: Iterable[Resource], *, prune: bool) -> Plan:
    """Compare. `found` is what the FlagSet wrote before, and whatever stands where it wants to write."""
    there = {each.key: each for each in found}
    keys = {key_of(manifest) for manifest in wanted}
    write = tuple(
        manifest
        for manifest in wanted
        if (known := there.get(key_of(manifest))) is None or not matches(known, manifest)
    )
    others = [each for key, each in sorted(there.items()) if key not in keys and not each.deleting]
    return Plan(
        write=write,
        remove=tuple(each for each in others if prune and each.key.kind != shard.KIND),
        outdated=tuple(each for each in others if each.key.kind == shard.KIND),
    )


def key_of(manifest: Mapping[str, Any]) -> ObjectKey:
    """Which object a manifest is of."""
    meta = manifest["metadata"]
    return ObjectKey(manifest["kind"], meta["namespace"], meta["name"])


def matches(found: Resource, manifest: Mapping[str, Any]) -> bool:
    """Whether an object says all that the manifest says, and in its spec nothing else."""
    meta = manifest["metadata"]
    owners = meta.get("ownerReferences", [])
    return (
        found.spec == manifest["spec"]
        and found.labels.items() >= meta["labels"].items()
        and found.annotations.items() >= meta.get("annotations", {}).items()
        and all(any(same_owner(owner, each) for each in found.owners) for owner in owners)
        and (bool(owners) or not found.owners)
    )


def same_owner(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two owner references name the same object."""
    return one.get("uid") == other.get("uid") and one.get("kind") == other.get("kind")


def belongs_to(found: Resource, name: str) -> bool:
    """Whether the FlagSet `name` wrote it."""
    return found.labels.get(flagset.LABEL) == name
