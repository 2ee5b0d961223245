"""The objects with flags, and which of them is served under a name or a flagSetId. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from controller.api import flagshard
from controller.api.flagset import LABEL, proven_writer
from controller.api.objects.conditions import SUPERSEDED, TRUE
from controller.api.objects.meta import ObjectKey, Resource
from controller.api.remote_provider import entries_in_force
from controller.api.rollouts.flagrollout import PROMOTE
from controller.api.rollouts.served_rollout import rollout_entries
from controller.delivery.claim import claim_of
from controller.delivery.claims import UNCHANGED, Claims
from controller.delivery.progress.rollouts import TARGETS_BY_SHARD
from controller.runtime.objects.cache import Cache
from evaluator.flags.model import PROVENANCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Hashable

    from controller.delivery.claim import Place
    from controller.delivery.claims import ClaimChange

_KEPT: Final = (
    "name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "ownerReferences",
)  # fmt: skip
"""Fields of the metadata that a proxy needs, beside annotations and labels of ours."""


class EncodedSpec(Mapping[str, Any]):
    """A spec as JSON text, a sixth of its parsed size. Each access decodes it; `decode_spec` does so once."""

    __slots__ = ("text",)

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.text = orjson.dumps(spec)

    def __getitem__(self, name: str) -> Any:
        return orjson.loads(self.text)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(orjson.loads(self.text))

    def __len__(self) -> int:
        return len(orjson.loads(self.text))


def spec_bytes(resource: Resource) -> int:
    """The size in bytes of the spec of an object of the catalog."""
    return len(cast("EncodedSpec", resource.spec).text)


def decode_spec(resource: Resource) -> Resource:
    """An object of the catalog, with its spec as plain values."""
    return replace(resource, spec=orjson.loads(cast("EncodedSpec", resource.spec).text))


class Catalog:
    """The newest state of each object, and the index of names, shards and flagSetIds over them."""

    def __init__(self) -> None:
        self._objects = Cache([TARGETS_BY_SHARD])
        self.claims = Claims()
        self._written: dict[Place, dict[ObjectKey, None]] = {}
        """Objects that a FlagSet has written, by its namespace and name."""

    def __len__(self) -> int:
        return len(self._objects)

    def learn(self, kind: str, body: Mapping[str, Any]) -> ClaimChange:
        """Take in an object that a watch sends. Raises KeyError, TypeError, AttributeError if malformed."""
        resource = _without_spec(kind, body)
        known = self._objects.get(resource.key)
        if known is not None and _decisive(known) == _decisive(resource):
            # Its status or an annotation changed: nothing that is served.
            self._objects.put(replace(resource, spec=known.spec, status=known.status))
            return UNCHANGED
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        claim = claim_of(resource, spec)
        self._objects.put(replace(resource, spec=EncodedSpec(spec)))
        self._list_written(known, resource)
        return self.claims.learn(claim)

    def forget(self, kind: str, namespace: str, name: str) -> ClaimChange:
        """Remove a deleted object."""
        key = ObjectKey(kind, namespace, name)
        self._list_written(self._objects.get(key), None)
        self._objects.forget(key)
        return self.claims.forget(key)

    def object_at(self, place: Place) -> Resource | None:
        """Return the object that is served under this name; its spec is encoded."""
        claim = self.claims.holder(place)
        return None if claim is None else self._objects.get(claim.key)

    def written_by(self, flag_set: Place) -> Place | None:
        """Return where the objects are that the FlagSet of this namespace and name has written; None: it has
        written none.
        """
        resources = filter(None, map(self._objects.get, self._written.get(flag_set, ())))
        # What the FlagSet left behind when its target was renamed comes last.
        newest = min(resources, key=lambda resource: SUPERSEDED in resource.status, default=None)
        return None if newest is None else (newest.namespace, newest.name)

    def places_written_by(self, flag_set: Place) -> set[Place]:
        """Where all objects are that the FlagSet of this namespace and name has written."""
        return {(key.namespace, key.name) for key in self._written.get(flag_set, ())}

    def shards(self, place: Place) -> dict[str, Resource | None]:
        """The FlagShards of the object that is served there, by name; None for one that is not there yet."""
        claim = self.claims.holder(place)
        names = () if claim is None else (*claim.shards, *claim.remote)
        return {name: self._objects.get(ObjectKey(flagshard.KIND, place[0], name)) for name in names}

    def version(self, place: Place) -> Hashable:
        """Return a value that changes with the content that is served at a place; None: there is none."""
        served = self.object_at(place)
        if served is None:
            return None
        return (served.key.kind, _content(served), *map(_content, self.shards(place).values()))

    def find(self, key: ObjectKey) -> Resource | None:
        """An object by its key; its spec is encoded."""
        return self._objects.get(key)

    def places_promoted_by(self, namespace: str, shard: str) -> set[Place]:
        """Return the places of the objects whose status names a FlagShard of promoted definitions."""
        targets = self._objects.find(TARGETS_BY_SHARD, namespace, shard)
        return {(target.namespace, target.name) for target in targets}

    def holders(self, flag_set_id: str, namespace: str = "") -> list[Place]:
        """Return where the objects with this flagSetId are: first those of `namespace`, the oldest first."""
        # Objects of others, however many and old, keep no reader waiting for those of its own namespace.
        return sorted(self.claims.holders(flag_set_id), key=lambda place: place[0] != namespace)

    def _list_written(self, before: Resource | None, after: Resource | None) -> None:
        for resource in (before, after):
            if resource is None or resource.key.kind == flagshard.KIND or not proven_writer(resource):
                continue
            writer = resource.namespace, proven_writer(resource)
            keys = self._written.setdefault(writer, {})
            if resource is after:
                keys[resource.key] = None
            else:
                keys.pop(resource.key, None)
            if not keys:
                del self._written[writer]


def _without_spec(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    ours = {key: text for key, text in annotations.items() if key.startswith(PROVENANCE_PREFIX)}
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key == LABEL}
    kept = {name: meta.get(name) for name in _KEPT}
    managers = [
        {"manager": entry.get("manager")}
        for entry in meta.get("managedFields") or ()
        if isinstance(entry, dict)
    ]
    status = body.get("status")
    decisive: dict[str, Any] = {
        "providers": entries_in_force(status),
        "rollouts": [entry._asdict() for entry in rollout_entries(status)],
    }
    if _is_superseded(status):
        decisive[SUPERSEDED] = True
    return Resource.of(
        {
            "apiVersion": body.get("apiVersion", ""),
            "kind": kind,
            "metadata": kept | {"annotations": ours, "labels": labels, "managedFields": managers},
            "status": {name: entries for name, entries in decisive.items() if entries} or None,
        }
    )


def _is_superseded(status: object) -> bool:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return isinstance(conditions, list) and any(
        isinstance(condition, dict) and (condition.get("type"), condition.get("status")) == (SUPERSEDED, TRUE)
        for condition in conditions
    )


def _content(resource: Resource | None) -> Hashable:
    if resource is None:
        return None
    remote = resource.status.get("providers")
    return resource.uid, resource.generation, b"" if remote is None else orjson.dumps(remote)


def _decisive(resource: Resource) -> object:
    """Return the parts of an object that decide what is served, and to whom it belongs."""
    rollouts = resource.status.get("rollouts")
    promoted = rollouts and (rollouts, resource.annotations.get(PROMOTE))
    return _content(resource), promoted, SUPERSEDED in resource.status, resource.labels, resource.owners
