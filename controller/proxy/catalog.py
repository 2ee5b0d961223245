"""Which objects with flags there are, and which of them is served under a name or a flagSetId. No I/O.

Specs are kept as JSON text: as parsed values they are six times as large.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from controller.api import shard
from controller.api.configuration import FLAG_KIND, KIND
from controller.api.flagset import LABEL
from controller.api.meta import ObjectKey, Resource
from controller.delivery.claims import UNCHANGED, Change, Claim, Claims, Place, claim_of
from evaluator.flags.model import PROVENANCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.delivery.claims import Conflict


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as it was last seen."""

    meta: Resource
    """Without spec and status; of its annotations and labels only ours."""
    spec: bytes
    """JSON."""
    number: int
    """Another one for each content; the newest is the largest."""
    claim: Claim

    @property
    def place(self) -> Place:
        """Under which name it is."""
        return self.claim.place

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the FlagShards that it consists of."""
        return self.claim.shards

    def resource(self) -> Resource:
        """The object with its spec."""
        return replace(self.meta, spec=orjson.loads(self.spec))


class Catalog:
    """All that the watches told."""

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, Seen] = {}
        self._numbers = itertools.count(1)
        self._claims = Claims()

    def __len__(self) -> int:
        return len(self._seen)

    def learn(self, kind: str, body: Mapping[str, Any]) -> Change:
        """Take a state in. Raises KeyError, TypeError or AttributeError for what is no object."""
        meta = _meta(kind, body)
        known = self._seen.get(meta.key)
        if known is not None and _same(known.meta, meta):
            # Its status or an annotation: nothing that is served.
            self._seen[meta.key] = replace(known, meta=meta)
            return UNCHANGED
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        claim = claim_of(meta, spec)
        self._seen[meta.key] = Seen(meta, orjson.dumps(spec), next(self._numbers), claim)
        return self._changed(kind, self._claims.learn(claim))

    def forget(self, kind: str, namespace: str, name: str) -> Change:
        """It is gone."""
        key = ObjectKey(kind, namespace, name)
        self._seen.pop(key, None)
        return self._changed(kind, self._claims.forget(key))

    def get(self, key: ObjectKey) -> Seen | None:
        """The object as last seen, or None."""
        return self._seen.get(key)

    def served(self, place: Place) -> Seen | None:
        """The object that is served under this name."""
        served = self._claims.served(place)
        return None if served is None else self._seen[served.key]

    def shard(self, place: Place) -> Seen | None:
        """The FlagShard of this name."""
        return self._seen.get(ObjectKey(shard.KIND, *place))

    def claims(self, flag_set_id: str) -> list[Seen]:
        """Objects with this flagSetId, the one that comes first in front."""
        found = map(self.served, self._claims.holders(flag_set_id))
        return [each for each in found if each is not None]

    def flag_set_id(self, place: Place) -> str:
        """What the object that is served there claims; empty for nothing."""
        return self._claims.flag_set_id(place)

    def conflicts(self) -> Iterator[Conflict]:
        """All that there are now."""
        return self._claims.conflicts()

    def _changed(self, kind: str, change: Change) -> Change:
        for place in change.places if kind == shard.KIND else ():
            self._renumber(place)
        return change

    def _renumber(self, place: Place) -> None:
        """A shard of it came or went, so its content is another."""
        for kind in (KIND, FLAG_KIND):
            key = ObjectKey(kind, *place)
            if (seen := self._seen.get(key)) is not None and seen.shards:
                self._seen[key] = replace(seen, number=next(self._numbers))


def _meta(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    ours = {key: text for key, text in annotations.items() if key.startswith(PROVENANCE_PREFIX)}
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key == LABEL}
    kept = {
        name: meta.get(name)
        for name in (
            "name",
            "namespace",
            "uid",
            "generation",
            "resourceVersion",
            "creationTimestamp",
        )
    }
    return Resource.of(
        {
            "apiVersion": body.get("apiVersion", ""),
            "kind": kind,
            "metadata": kept | {"annotations": ours, "labels": labels},
        }
    )


def _same(known: Resource, meta: Resource) -> bool:
    same = known.uid == meta.uid and known.generation == meta.generation
    return same and known.labels == meta.labels
