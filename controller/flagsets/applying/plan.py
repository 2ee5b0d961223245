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
    found: Iterable[Resource],
    *,
    prune: bool,
    taken: Mapping[ObjectKey, Taken] | None = None,
) -> Plan:
    """Compare. `found` is what the FlagSet wrote before, and whatever stands where it wants to write."""
    there = {each.key: each for each in found}
    keys = {ObjectKey.of(manifest) for manifest in wanted}
    write = tuple(
        manifest
        for manifest in wanted
        if (known := there.get(key := ObjectKey.of(manifest))) is None
        or not matches(known, manifest, (taken or {}).get(key))
    )
    others = [each for key, each in sorted(there.items()) if key not in keys and not each.deleting]
    shards = [each for each in others if each.key.kind == flagshard.KIND]
    rest = [each for each in others if each.key.kind != flagshard.KIND]
    # What is left behind stays whole.
    left = frozenset() if prune else frozenset(name for each in rest for name in flagshard.names(each.spec))
    return Plan(
        write=write,
        remove=tuple(rest) if prune else (),
        outdated=tuple(each for each in shards if each.name not in left),
    )


def matches(found: Resource, manifest: Mapping[str, Any], taken: Taken | None = None) -> bool:
    """Whether an object says all that the manifest says, and in its spec nothing else."""
    meta = manifest["metadata"]
    spec = manifest["spec"]
    owners = meta.get("ownerReferences", [])
    return (
        (found.spec == spec or (taken is not None and taken.sent == spec and taken.kept == found.spec))
        and found.labels.items() >= meta["labels"].items()
        and found.annotations.items() >= meta.get("annotations", {}).items()
        and {(each["uid"], each["kind"]) for each in owners}
        <= {(each.get("uid"), each.get("kind")) for each in found.owners}
        and (bool(owners) or not any(each.get("kind") == flagset.KIND for each in found.owners))
    )


def belongs_to(found: Resource, name: str) -> bool:
    """Whether the FlagSet `name` wrote it."""
    return found.labels.get(flagset.LABEL) == name
