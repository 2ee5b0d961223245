"""Whom a change concerns. Pure.

Our own writes of status wake nobody but those who read what changed in it. Whoever claims the same name or flagSetId as another is not found
here, by looking at all objects, but by an index: `controller.api.claims`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api import configuration, flagset, flagsource, receipt, receiver, shard
from controller.api.conditions import PROPAGATED, READY, find
from controller.api.meta import REQUESTED_AT, ObjectKey
from evaluator.flags.model import PROVENANCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from controller.api.meta import Resource

RECONCILED: Final = frozenset(
    {
        flagsource.KIND,
        flagset.KIND,
        receiver.KIND,
        configuration.KIND,
        configuration.FLAG_KIND,
    }
)
"""Kinds that have a loop of their own."""
_HOLDERS: Final = (flagsource.KIND, receiver.KIND)
"""Kinds that refer to Secrets."""


def woken(
    before: Resource | None, after: Resource | None, of_kind: Callable[[str], Iterable[Resource]]
) -> set[ObjectKey]:
    """The keys to look at now that an object went from `before` to `after`; None: there is no such object."""
    seen = after or before
    if seen is None:
        return set()
    keys = set()
    if after is not None and seen.key.kind in RECONCILED and _asks(before, after):
        keys.add(after.key)
    if seen.key.kind == receipt.KIND:
        keys.update(_receivers(before, after, seen))
    else:
        keys.update(_dependents(before, after, seen, of_kind))
    return keys


def _asks(before: Resource | None, after: Resource) -> bool:
    """Whether the object itself asks to be looked at."""
    if before is None or before.uid != after.uid or before.generation != after.generation:
        return True
    asked = after.annotations.get(REQUESTED_AT)
    return asked != before.annotations.get(REQUESTED_AT) or after.deleting != before.deleting


def _dependents(
    before: Resource | None,
    after: Resource | None,
    seen: Resource,
    of_kind: Callable[[str], Iterable[Resource]],
) -> Iterator[ObjectKey]:
    kind, namespace = seen.key.kind, seen.namespace

    def sets() -> Iterator[Resource]:
        # Only asked for where any could be concerned: most changes are of a status.
        return (each for each in of_kind(flagset.KIND) if each.namespace == namespace)

    if kind in flagset.SOURCE_API and _artifact(before) != _artifact(after):
        yield from (each.key for each in sets() if _reads(each, seen.key))
    elif kind == flagset.KIND and _ready(before) != _ready(after):
        yield from (each.key for each in sets() if _depends(each, seen.name))
        if after is None:
            # What it left behind may be taken by whoever was refused it.
            yield from (each.key for each in sets() if _target(each) == _target(seen))
    elif kind in {configuration.KIND, configuration.FLAG_KIND, shard.KIND}:
        yield from _owners(before, after, seen)
        # Whoever was refused a target that belonged to another.
        if _label(before) != _label(after):
            yield from (each.key for each in sets() if _target(each) == seen.name)
        if kind == shard.KIND:
            every = of_kind(configuration.KIND)
            beside = (each for each in every if each.namespace == namespace)
            yield from (each.key for each in beside if _lists(each, seen.name))
    elif kind == "Secret" and _version(before) != _version(after):
        holders = (each for holder in _HOLDERS for each in of_kind(holder))
        beside = (each for each in holders if each.namespace == namespace)
        yield from (each.key for each in beside if seen.name in secrets_of(each))


def _receivers(
    before: Resource | None, after: Resource | None, seen: Resource
) -> Iterator[ObjectKey]:
    """What a receipt is about."""
    name = receipt.configuration_of(seen.spec)
    if name is not None and _told(before) != _told(after):
        yield ObjectKey(configuration.KIND, seen.namespace, name)


def _owners(before: Resource | None, after: Resource | None, seen: Resource) -> Iterator[ObjectKey]:
    """Whoever wrote an object looks again once its content is another's, or it is gone, and shows who serves it."""
    name = _label(after) or _label(before)
    if name and (_content(before) != _content(after) or _served(before) != _served(after)):
        yield ObjectKey(flagset.KIND, seen.namespace, name)


def _content(resource: Resource | None) -> Any:
    """What a FlagSet writes of an object; a change of metadata does not count as a generation."""
    if resource is None:
        return None
    annotations = {
        key: text for key, text in resource.annotations.items() if key.startswith(PROVENANCE_PREFIX)
    }
    return resource.uid, resource.generation, resource.labels, annotations, resource.owners


def _served(resource: Resource | None) -> Any:
    """Who serves it, as its status says."""
    if resource is None or "served" not in resource.status:
        return None
    known = find(resource.status.get("conditions", ()), PROPAGATED)
    said = known and (known.get("status"), known.get("reason"), known.get("message"))
    return resource.status.get("served"), resource.status.get("digest"), said


def _told(resource: Resource | None) -> Any:
    """What a proxy tells."""
    return None if resource is None else (resource.uid, resource.status)


def _version(resource: Resource | None) -> Any:
    return None if resource is None else (resource.uid, resource.resource_version)


def _label(resource: Resource | None) -> str | None:
    return resource.labels.get(flagset.LABEL) if resource is not None else None


def _target(flag_set: Resource) -> str:
    """The name of what a FlagSet writes, as far as its spec can be read."""
    target = flag_set.spec.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    return str(name or flag_set.name)


def secrets_of(resource: Resource) -> set[str]:
    """The names of the Secrets that a FlagSource or FlagReceiver refers to, as far as its spec can be read."""
    holders: list[Any] = [resource.spec, resource.spec.get("git")]
    names = set()
    for holder in holders:
        if isinstance(holder, dict):
            for field in ("secretRef", "proxySecretRef"):
                reference = holder.get(field)
                if isinstance(reference, dict):
                    names.add(str(reference.get("name")))
    return names


def _reads(flag_set: Resource, source: ObjectKey) -> bool:
    reference = flag_set.spec.get("sourceRef")
    if not isinstance(reference, dict):
        return False
    return reference.get("kind") == source.kind and reference.get("name") == source.name


def _depends(flag_set: Resource, name: str) -> bool:
    wanted = flag_set.spec.get("dependsOn")
    each = wanted if isinstance(wanted, list) else ()
    return any(isinstance(one, dict) and one.get("name") == name for one in each)


def _lists(resource: Resource, name: str) -> bool:
    shards = resource.spec.get("shards")
    each = shards if isinstance(shards, list) else ()
    return any(isinstance(one, dict) and one.get("name") == name for one in each)


def _artifact(resource: Resource | None) -> Any:
    if resource is None:
        return None
    artifact = resource.status.get("artifact")
    if not isinstance(artifact, dict):
        return None
    return artifact.get("revision"), artifact.get("digest"), artifact.get("url")


def _ready(resource: Resource | None) -> Any:
    if resource is None:
        return None
    ready = find(resource.status.get("conditions", ()), READY)
    status = resource.status
    told = status.get("observedGeneration"), status.get("lastAppliedRevision")
    return (ready and ready.get("status"), *told)
