"""Which objects with flags there are, which of them is served under a name, and which under a flagSetId. No I/O.

A FeatureFlagConfiguration is served and not a FeatureFlag of the same name. Of several objects with one flagSetId the oldest is served, the
first by namespace and name among those of one second. Specs are kept as JSON text: as parsed values they are six times as large.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from controller.api import shard
from controller.api.configuration import FLAG_KIND, KIND
from controller.api.meta import ObjectKey, Resource
from evaluator.flags.model import PROVENANCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINDS: Final = (KIND, FLAG_KIND, shard.KIND)

Place: TypeAlias = tuple[str, str]
"""Namespace and name: what both kinds share."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One object as it was last seen."""

    meta: Resource
    """Without spec and status; of its annotations only ours."""
    spec: bytes
    """JSON."""
    number: int
    """Another one for each content; the newest is the largest."""
    flag_set_id: str = ""
    shards: tuple[str, ...] = ()
    """Names of the FlagShards that it consists of."""

    @property
    def place(self) -> Place:
        """Under which name it is."""
        return self.meta.namespace, self.meta.name

    def resource(self) -> Resource:
        """The object with its spec."""
        return replace(self.meta, spec=orjson.loads(self.spec))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two objects claim what only one can have."""

    reason: str
    """`Shadowed`: a FeatureFlagConfiguration has the same name. `FlagSetIdTaken`: an older object has the same flagSetId."""
    loser: Resource
    winner: Resource
    claim: str
    """The name or the flagSetId."""


@dataclass(frozen=True, slots=True)
class Change:
    """What came of something learnt."""

    places: frozenset[Place] = frozenset()
    """Whose content may be another."""
    claims: frozenset[str] = frozenset()
    """flagSetIds that these places had before or have now."""


UNCHANGED: Final = Change()


class Catalog:
    """All that the watches told."""

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, Seen] = {}
        self._numbers = itertools.count(1)
        self._claims: dict[str, set[Place]] = {}
        self._claimed: dict[Place, str] = {}
        self._users: dict[Place, set[Place]] = {}
        """Which objects consist of a shard, by the shard's place."""

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
        flag_set_id, shards = _claim(spec)
        seen = Seen(meta, orjson.dumps(spec), next(self._numbers), flag_set_id, shards)
        self._seen[meta.key] = seen
        return self._changed(known, seen)

    def forget(self, kind: str, namespace: str, name: str) -> Change:
        """It is gone."""
        known = self._seen.pop(ObjectKey(kind, namespace, name), None)
        return UNCHANGED if known is None else self._changed(known, None)

    def get(self, key: ObjectKey) -> Seen | None:
        """The object as last seen, or None."""
        return self._seen.get(key)

    def served(self, place: Place) -> Seen | None:
        """The object that is served under this name."""
        for kind in (KIND, FLAG_KIND):
            if (found := self._seen.get(ObjectKey(kind, *place))) is not None:
                return found
        return None

    def shard(self, place: Place) -> Seen | None:
        """The FlagShard of this name."""
        return self._seen.get(ObjectKey(shard.KIND, *place))

    def claims(self, flag_set_id: str) -> list[Seen]:
        """Objects with this flagSetId, the one that comes first in front."""
        found = [self.served(place) for place in self._claims.get(flag_set_id, ())]
        return sorted(filter(None, found), key=_age)

    def flag_set_id(self, place: Place) -> str:
        """What the object that is served there claims; empty for nothing."""
        return self._claimed.get(place, "")

    def conflicts(self) -> Iterator[Conflict]:
        """All that there are now."""
        for key, seen in tuple(self._seen.items()):
            if key.kind == FLAG_KIND:
                winner = self._seen.get(ObjectKey(KIND, key.namespace, key.name))
                if winner is not None:
                    yield Conflict(
                        "Shadowed", seen.meta, winner.meta, f"{key.namespace}/{key.name}"
                    )
        for flag_set_id, places in tuple(self._claims.items()):
            if len(places) > 1:
                first, *others = self.claims(flag_set_id)
                for other in others:
                    yield Conflict("FlagSetIdTaken", other.meta, first.meta, flag_set_id)

    def _changed(self, before: Seen | None, after: Seen | None) -> Change:
        seen = after or before
        assert seen is not None  # noqa: S101 - one of both is always there
        if seen.meta.key.kind == shard.KIND:
            places = set(self._users.get(seen.place, ()))
            for place in places:
                self._renumber(place)
        else:
            places = {seen.place}
            self._list(before, after)
        claims = set()
        for place in places:
            claims.add(self.flag_set_id(place))
            self._claim_anew(place)
            claims.add(self.flag_set_id(place))
        return Change(frozenset(places), frozenset(claims - {""}))

    def _renumber(self, place: Place) -> None:
        """A shard of it came or went, so its content is another."""
        for kind in (KIND, FLAG_KIND):
            key = ObjectKey(kind, *place)
            if (seen := self._seen.get(key)) is not None and seen.shards:
                self._seen[key] = replace(seen, number=next(self._numbers))

    def _list(self, before: Seen | None, after: Seen | None) -> None:
        for seen in filter(None, (before,)):
            for name in seen.shards:
                place = (seen.meta.namespace, name)
                self._users.get(place, set()).discard(seen.place)
                if not self._users.get(place):
                    self._users.pop(place, None)
        for seen in filter(None, (after,)):
            for name in seen.shards:
                self._users.setdefault((seen.meta.namespace, name), set()).add(seen.place)

    def _claim_anew(self, place: Place) -> None:
        now, before = self._claim_of(place), self._claimed.pop(place, "")
        if before and before != now:
            self._claims[before].discard(place)
            if not self._claims[before]:
                del self._claims[before]
        if now:
            self._claimed[place] = now
            self._claims.setdefault(now, set()).add(place)

    def _claim_of(self, place: Place) -> str:
        seen = self.served(place)
        if seen is None or not seen.shards:
            return seen.flag_set_id if seen is not None else ""
        parts = (self.shard((place[0], name)) for name in seen.shards)
        return next((part.flag_set_id for part in parts if part and part.flag_set_id), "")


def _meta(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    ours = {key: text for key, text in annotations.items() if key.startswith(PROVENANCE_PREFIX)}
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
            "metadata": kept | {"annotations": ours},
        }
    )


def _same(known: Resource, meta: Resource) -> bool:
    return known.uid == meta.uid and known.generation == meta.generation


def _age(seen: Seen) -> tuple[str, Place]:
    return seen.meta.created, seen.place


def _claim(spec: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """What a spec says of itself without being read whole: its flagSetId, and its shards."""
    document = spec.get("flagSpec")
    if document is None:
        document = spec.get("featureFlagSpec")
    if isinstance(document, str):
        try:
            document = orjson.loads(document)
        except ValueError:
            document = None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    wanted = metadata.get("flagSetId") if isinstance(metadata, dict) else None
    shards = spec.get("shards") if spec.get("flagSpec") is None else None
    names = [
        str(each.get("name"))
        for each in (shards if isinstance(shards, list) else ())
        if isinstance(each, dict)
    ]
    return (wanted if isinstance(wanted, str) else ""), tuple(dict.fromkeys(names))
