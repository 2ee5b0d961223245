"""Plans which objects are written and removed, from those wanted and those that exist. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.api import flagset, flagshard
from controller.api.objects.meta import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from controller.api.objects.meta import Resource


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes, in their order."""

    write: tuple[Mapping[str, Any], ...]
    remove: tuple[Resource, ...]
    """Objects to remove at once."""
    outdated: tuple[Resource, ...]
    """Shards of an earlier content, which clients may still be reading."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What an API server made of a manifest: it may drop unknown fields, and a webhook may add some."""

    sent: Mapping[str, Any]
    kept: Mapping[str, Any]
    """The spec as stored; `sent` is that of the manifest."""


def plan(
    wanted: Sequence[Mapping[str, Any]],
    existing: Iterable[Resource],
    *,
    prune: bool,
    taken: Mapping[ObjectKey, Taken] | None = None,
) -> Plan:
    """Compare `wanted` with `existing`: what the FlagSet wrote before, and any object in its place."""
    by_key = {known.key: known for known in existing}
    keys = {ObjectKey.of(manifest) for manifest in wanted}
    write = tuple(
        manifest
        for manifest in wanted
        if (known := by_key.get(key := ObjectKey.of(manifest))) is None
        or not matches(known, manifest, (taken or {}).get(key))
    )
    others = [other for key, other in sorted(by_key.items()) if key not in keys and not other.deleting]
    shards = [shard for shard in others if shard.key.kind == flagshard.KIND]
    rest = [other for other in others if other.key.kind != flagshard.KIND]
    # What is left behind stays whole.
    left = frozenset() if prune else frozenset(name for other in rest for name in flagshard.names(other.spec))
    return Plan(
        write=write,
        remove=tuple(rest) if prune else (),
        outdated=tuple(shard for shard in shards if shard.name not in left),
    )


def matches(existing: Resource, manifest: Mapping[str, Any], taken: Taken | None = None) -> bool:
    """Whether an object says all that the manifest says, and in its spec nothing else."""
    meta = manifest["metadata"]
    spec = manifest["spec"]
    owners = meta.get("ownerReferences", [])
    return (
        (existing.spec == spec or (taken is not None and taken.sent == spec and taken.kept == existing.spec))
        and existing.labels.items() >= meta["labels"].items()
        and existing.annotations.items() >= meta.get("annotations", {}).items()
        and {(owner["uid"], owner["kind"]) for owner in owners}
        <= {(owner.get("uid"), owner.get("kind")) for owner in existing.owners}
        and (bool(owners) or not any(owner.get("kind") == flagset.KIND for owner in existing.owners))
    )


def belongs_to(resource: Resource, name: str) -> bool:
    """Whether the FlagSet `name` wrote it."""
    return flagset.proven_writer(resource) == name
