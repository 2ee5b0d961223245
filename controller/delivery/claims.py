"""What objects claim, and which of several is served under a name and under a flagSetId. Pure.

A FeatureFlagConfiguration is served and not a FeatureFlag of the same name. A flagSetId `<namespace>/…`
belongs to that namespace: no object of another is served under it. Otherwise the oldest is served, the first
by namespace and name among those of one second. The proxy serves by this, and the controller writes it
into the objects' status.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from controller.api import flagshard
from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.flagset import proven_writer
from controller.api.meta import ObjectKey, Resource
from controller.api.remote_provider import provider_shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


Place: TypeAlias = tuple[str, str]
"""Namespace and name: what both kinds share."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one object claims."""

    key: ObjectKey
    created: str
    """RFC 3339."""
    maker: str = ""
    """The FlagSet that wrote it. One that writes both kinds is in no conflict with itself."""
    flag_set_id: str = ""
    shards: tuple[str, ...] = ()
    """Names of the FlagShards that it consists of."""
    remote: tuple[str, ...] = ()
    """Names of the FlagShards with the flags of its remote provider."""

    @property
    def place(self) -> Place:
        """Return the namespace and the name under which it is served."""
        return self.key.namespace, self.key.name


def claim_of(meta: Resource, spec: Mapping[str, Any]) -> Claim:
    """What an object claims, read off its spec without reading it whole."""
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
    return Claim(
        key=meta.key,
        created=meta.created,
        maker=proven_writer(meta),
        flag_set_id=wanted if isinstance(wanted, str) else "",
        shards=flagshard.names(spec) if spec.get("flagSpec") is None else (),
        remote=provider_shards(meta.status),
    )


def alike(before: Resource | None, after: Resource | None) -> bool:
    """Whether both claim the same for sure."""
    if before is None or after is None:
        return False
    same = before.uid == after.uid and before.generation == after.generation
    return same and proven_writer(before) == proven_writer(after)


KINDS: Final = (KIND, FLAG_KIND, flagshard.KIND)
SHADOWED: Final = "Shadowed"
"""A FeatureFlagConfiguration has the same name."""
FLAG_SET_ID_TAKEN: Final = "FlagSetIdTaken"
"""An object that comes before has the same flagSetId."""
FLAG_SET_ID_FOREIGN: Final = "FlagSetIdForeign"
"""The flagSetId belongs to another namespace."""


class _Turn(NamedTuple):
    """The order of the objects with one flagSetId."""

    created: str
    place: Place
    kind: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """An object claims what it cannot have."""

    reason: str
    """SHADOWED, FLAG_SET_ID_TAKEN or FLAG_SET_ID_FOREIGN."""
    loser: ObjectKey
    winner: ObjectKey | None
    """The object that has the claim; None: a namespace has it."""
    claim: str
    """The name or the flagSetId."""


@dataclass(frozen=True, slots=True)
class ClaimChange:
    """What a change of one object changes."""

    places: frozenset[Place] = frozenset()
    """The places of objects whose content may have changed."""
    claims: frozenset[str] = frozenset()
    """flagSetIds that these places had before or have now."""
    rivals: frozenset[ObjectKey] = frozenset()
    """Objects of which `Claims.conflicts_of` may return something else."""


UNCHANGED: Final = ClaimChange()


class ClaimIndex:
    """An index of all claims; the cost of a change grows with what it concerns, not with all there is."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, Claim] = {}
        self._users: dict[Place, set[ObjectKey]] = {}
        """Which objects consist of a shard, by the shard's place."""
        self._held: dict[Place, tuple[str, _Turn]] = {}
        """The flagSetId of what is served under a name, and its turn."""
        self._turns: dict[str, list[_Turn]] = {}
        """Sorted, by flagSetId."""
        self._foreign: dict[Place, str] = {}
        """The flagSetId of another namespace, which what is served under a name claims."""

    def follow(self, before: Resource | None, after: Resource | None) -> ClaimChange:
        """Take in a change of an object; None: there is none before, or after. Other kinds change nothing."""
        seen = after or before
        if seen is None or seen.key.kind not in KINDS or alike(before, after):
            return UNCHANGED
        if after is None:
            return self.forget(seen.key)
        return self.learn(claim_of(after, after.spec))

    def learn(self, claim: Claim) -> ClaimChange:
        """An object claims this now."""
        known = self._known.get(claim.key)
        self._known[claim.key] = claim
        return self._change(known, claim)

    def forget(self, key: ObjectKey) -> ClaimChange:
        """Drop the claims of a deleted object."""
        known = self._known.pop(key, None)
        return UNCHANGED if known is None else self._change(known, None)

    def holder(self, place: Place) -> Claim | None:
        """The claim of the object that is served under this name."""
        for kind in (KIND, FLAG_KIND):
            if (claim := self._known.get(ObjectKey(kind, *place))) is not None:
                return claim
        return None

    def holders(self, flag_set_id: str) -> list[Place]:
        """Return where the objects with this flagSetId are, in order of precedence."""
        return [turn.place for turn in self._turns.get(flag_set_id, ())]

    def flag_set_id(self, place: Place) -> str:
        """What the object that is served there claims; empty for nothing."""
        held = self._held.get(place)
        return "" if held is None else held[0]

    def conflicts(self) -> Iterator[Conflict]:
        """Return all current conflicts, one for each loser and claim. Any thread may call this."""
        for key in tuple(self._known):
            if key.kind == FLAG_KIND:
                yield from self._of_name((key.namespace, key.name))
        for flag_set_id, turns in tuple(self._turns.items()):
            now = tuple(turns)
            for loser in now[1:]:
                yield _taken_conflict(flag_set_id, loser, now[0])
        for place in tuple(self._foreign):
            yield from self._of_foreign(place)

    def conflicts_of(self, key: ObjectKey) -> list[Conflict]:
        """What an object loses, and the first that it wins over an object beside it."""
        place = (key.namespace, key.name)
        conflicts, served = self._of_name(place), self.holder(place)
        if served is None or served.key != key:
            return conflicts
        if place not in self._held:
            return [*conflicts, *self._of_foreign(place)]
        flag_set_id, own = self._held[place]
        turns = self._turns[flag_set_id]
        if turns[0] != own:
            return [*conflicts, _taken_conflict(flag_set_id, own, turns[0])]
        beside = (turn for turn in turns[1:] if turn.place[0] == place[0])
        return [*conflicts, *(_taken_conflict(flag_set_id, loser, own) for loser in islice(beside, 1))]

    def _of_name(self, place: Place) -> list[Conflict]:
        winner, loser = (self._known.get(ObjectKey(kind, *place)) for kind in (KIND, FLAG_KIND))
        if winner is None or loser is None or (winner.maker and winner.maker == loser.maker):
            return []
        return [Conflict(SHADOWED, loser.key, winner.key, "/".join(place))]

    def _of_foreign(self, place: Place) -> Iterator[Conflict]:
        served, claimed = self.holder(place), self._foreign.get(place)
        if served is not None and claimed is not None:
            yield Conflict(FLAG_SET_ID_FOREIGN, served.key, None, claimed)

    def _change(self, before: Claim | None, after: Claim | None) -> ClaimChange:
        seen = after or before
        assert seen is not None  # noqa: S101 - one of both is always there
        if seen.key.kind == flagshard.KIND:
            users = self._users.get(seen.place, ())
            places = frozenset((user.namespace, user.name) for user in users)
            rivals: set[Place] = set()
        else:
            places = frozenset({seen.place})
            same = before is not None and after is not None and before.maker == after.maker
            rivals = set() if same else set(places)
            self._list(seen.key, _parts(before), _parts(after))
        claims: set[str] = set()
        for place in places:
            claims.add(self.flag_set_id(place))
            rivals |= self._claim_anew(place)
            claims.add(self.flag_set_id(place))
        keys = (ObjectKey(kind, *place) for place in rivals for kind in (KIND, FLAG_KIND))
        return ClaimChange(
            places, frozenset(claims - {""}), frozenset(key for key in keys if key in self._known)
        )

    def _list(self, key: ObjectKey, before: Iterable[Place], after: Iterable[Place]) -> None:
        for part in before:
            self._users[part].discard(key)
            if not self._users[part]:
                del self._users[part]
        for part in after:
            self._users.setdefault(part, set()).add(key)

    def _claim_anew(self, place: Place) -> set[Place]:
        """Order what is served there under its flagSetId; returns the places whose conflicts have changed."""
        turn = self._turn(place)
        foreign = turn[0] if turn is not None and _is_foreign(turn[0], place) else ""
        known = self._foreign.pop(place, "")
        if foreign:
            self._foreign[place] = foreign
        before, now = self._held.get(place), None if foreign else turn
        if before == now:
            return {place} if foreign != known else set()
        ids = {held[0] for held in (before, now) if held is not None}
        firsts = {flag_set_id: self._first(flag_set_id) for flag_set_id in ids}
        if before is not None:
            del self._held[place]
            turns = self._turns[before[0]]
            del turns[bisect_left(turns, before[1])]
            if not turns:
                del self._turns[before[0]]
        if now is not None:
            self._held[place] = now
            insort(self._turns.setdefault(now[0], []), now[1])
        return {place}.union(
            *(self._moved_places(flag_set_id, first) for flag_set_id, first in firsts.items())
        )

    def _turn(self, place: Place) -> tuple[str, _Turn] | None:
        served = self.holder(place)
        if served is None:
            return None
        parts = [served]
        if served.shards:
            keys = (ObjectKey(flagshard.KIND, served.key.namespace, name) for name in served.shards)
            parts = [self._known[key] for key in keys if key in self._known]
        wanted = next((part.flag_set_id for part in parts if part.flag_set_id), "")
        return (wanted, _Turn(served.created, place, served.key.kind)) if wanted else None

    def _first(self, flag_set_id: str) -> _Turn | None:
        turns = self._turns.get(flag_set_id)
        return turns[0] if turns else None

    def _moved_places(self, flag_set_id: str, before: _Turn | None) -> set[Place]:
        """The places whose conflicts have changed, where `before` was the first: the first before and the
        first now and, where they differ, every place in their namespaces. For the others it is still an
        object in another namespace.
        """
        now = self._first(flag_set_id)
        firsts = {turn.place for turn in (before, now) if turn is not None}
        if before == now:
            return firsts
        namespaces = {namespace for namespace, _ in firsts}
        return firsts | {holder for holder in self.holders(flag_set_id) if holder[0] in namespaces}


def _is_foreign(flag_set_id: str, place: Place) -> bool:
    """Whether it belongs to another namespace than that of `place`."""
    namespace, slash, _ = flag_set_id.partition("/")
    return bool(slash) and namespace != place[0]


def _taken_conflict(flag_set_id: str, loser: _Turn, winner: _Turn) -> Conflict:
    return Conflict(FLAG_SET_ID_TAKEN, _key(loser), _key(winner), flag_set_id)


def _key(turn: _Turn) -> ObjectKey:
    return ObjectKey(turn.kind, *turn.place)


def _parts(claim: Claim | None) -> list[Place]:
    """Return the places of an object's FlagShards, those with remote flags last."""
    names = () if claim is None else (*claim.shards, *claim.remote)
    return [] if claim is None else [(claim.key.namespace, name) for name in names]
