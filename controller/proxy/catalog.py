"""The objects with flags, which of them is served under a name or a flagSetId, and who subscribes. No I/O.

A subscriber asks for an object by its name, for the object that has a flagSetId, or for what is ordered for
the pods that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import orjson

from controller.api import flagshard
from controller.api.flagrollout import PROMOTE
from controller.api.flagset import LABEL, MANAGER_PREFIX, proven_writer
from controller.api.meta import SHARD_KEY, ObjectKey, Resource
from controller.api.remote_provider import entries_in_force
from controller.api.rollout_status import rollout_entries
from controller.api.status import SUPERSEDED, TRUE
from controller.delivery import standing_orders as orders
from controller.delivery.claims import KINDS, UNCHANGED, Claim, ClaimChange, ClaimIndex, Place, claim_of
from controller.delivery.rollouts import TARGETS_BY_SHARD
from controller.delivery.standing_orders import OrderedPods
from evaluator.flags.model import PROVENANCE_PREFIX
from evaluator.http.messages import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from controller.runtime.cache import Cache, Change
    from controller.runtime.informer import Transform
    from evaluator.wire.servicer import Deliver, Make


_KEPT: Final = (
    "name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "ownerReferences",
)  # fmt: skip
"""Fields of the metadata that a proxy needs, beside annotations and labels of ours."""


class EncodedSpec(Mapping[str, Any]):
    """A spec as JSON text, a sixth of its parsed size. Each access decodes it; `decode_spec` does so once."""

    __slots__ = ("claim", "text")

    def __init__(self, spec: Mapping[str, Any], claim: Claim) -> None:
        """`claim`: what the object claims, read while the spec was parsed."""
        self.text = orjson.dumps(spec)
        self.claim = claim

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


class ObjectCatalog:
    """The newest state of each object, and the index of names, shards and flagSetIds over them."""

    def __init__(self, objects: Cache) -> None:
        """`objects`: each of its changes is to be passed to `follow`."""
        self._objects = objects
        self.claims = ClaimIndex()
        self._written: dict[Place, dict[ObjectKey, None]] = {}
        """Objects that a FlagSet has written, by its namespace and name."""

    def __len__(self) -> int:
        return sum(len(self._objects.of_kind(kind)) for kind in KINDS)

    def follow(self, change: Change) -> ClaimChange:
        """Take in a change of an object with flags."""
        before, after = change.before, change.after
        if before is not None and after is not None and before.spec is after.spec:
            # Its status or an annotation changed: nothing that is served.
            return UNCHANGED
        self._list_written(before, after)
        if after is None:
            return self.claims.forget(change.latest.key)
        return self.claims.learn(cast("EncodedSpec", after.spec).claim)

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


def delivered(kind: str) -> Transform:
    """Return the transform of a kind with flags: the spec is encoded, and stays while nothing that is served
    changes.
    """

    def transform(body: Mapping[str, Any], known: Resource | None) -> Resource:
        resource = _without_spec(kind, body)
        if known is not None and _decisive(known) == _decisive(resource):
            return replace(resource, spec=known.spec, status=known.status)
        spec = body.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        return replace(resource, spec=EncodedSpec(spec, claim_of(resource, spec)))

    return transform


def _without_spec(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    ours = {key: text for key, text in annotations.items() if key.startswith(PROVENANCE_PREFIX)}
    wanted = {LABEL, SHARD_KEY, *_labels_of_writer(meta)}
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key in wanted}
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


def _labels_of_writer(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of the labels that a FlagSet has set: its own, and those of its shard."""
    for entry in meta.get("managedFields") or ():
        if isinstance(entry, dict) and str(entry.get("manager")).startswith(MANAGER_PREFIX):
            fields: object = entry
            for step in ("fieldsV1", "f:metadata", "f:labels"):
                fields = fields.get(step) if isinstance(fields, dict) else None
            yield from (name.removeprefix("f:") for name in (fields if isinstance(fields, dict) else ()))


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


_SOURCE: Final = "source="
_FLAGD_PREFIX: Final = "core.openfeature.dev/"
_IDENTIFIER: Final = "flagSetId="
MOST_IDENTIFIER: Final = 512
"""Characters of a flagSetId."""
SYNTAX: Final = "write core.openfeature.dev/NAMESPACE/NAME, NAMESPACE/NAME or flagSetId=ID"


@dataclass(frozen=True, slots=True)
class Named:
    """The FeatureFlagConfiguration of this name, or the FeatureFlag if there is none, or else what the
    FlagSet of this name writes.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Identified:
    """The oldest object with this flagSetId, among those that the reader may read."""

    flag_set_id: str
    reader: str = ""
    """Identifies who may read the same objects as the subscriber; empty: everything may be read."""

    def __str__(self) -> str:
        return f"flagSetId={self.flag_set_id}"


Topic: TypeAlias = Named | Identified | OrderedPods


def parse(selector: str) -> Topic:
    """A selector in any form of OpenFeature Operator and flagd. Raises RpcError INVALID_ARGUMENT."""
    if not selector:
        raise _invalid(f"a selector is needed: {SYNTAX}")
    if selector.startswith(_IDENTIFIER):
        wanted = selector.removeprefix(_IDENTIFIER)
        if not wanted or len(wanted) > MOST_IDENTIFIER or not wanted.isprintable():
            raise _invalid(f"flagSetId must be 1 to {MOST_IDENTIFIER} printable characters")
        return Identified(wanted)
    if selector.startswith(orders.PREFIX):
        pods = OrderedPods.parse(selector)
        if pods is None:
            raise _invalid(f"not a selector of standing orders: write {orders.SYNTAX}")
        return pods
    path = selector.removeprefix(_SOURCE).removeprefix(_FLAGD_PREFIX)
    namespace, slash, name = path.partition("/")
    if not slash or not orders.NAMESPACE.fullmatch(namespace) or not orders.NAME.fullmatch(name):
        raise _invalid(f"not a selector of this proxy: {SYNTAX}")
    return Named(namespace, name)


def _invalid(message: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, message)


@dataclass(slots=True)
class Listeners:
    """The subscribers of one topic."""

    place: Place | None = None
    """The object whose flags they were sent last."""
    sinks: dict[object, tuple[Make, Deliver]] = field(default_factory=dict)
    """For each, how flags are encoded and the function that receives them."""

    def all(self) -> tuple[tuple[Make, Deliver], ...]:
        """The sinks as they are now: one may be cancelled while others receive."""
        return tuple(self.sinks.values())


class Topics:
    """The topics with listeners."""

    def __init__(self, catalog: ObjectCatalog) -> None:
        self.moved: Callable[[Named], None] = lambda _topic: None
        """Called when a topic has the flags of another object than before."""
        self._catalog = catalog
        self._listeners: dict[Topic, Listeners] = {}
        self._identified: dict[str, set[Identified]] = {}
        """Topics by flagSetId, one for each reader."""
        self._elsewhere: dict[Place, set[Named]] = {}
        """Topics that have the flags of an object with another name than theirs: what a FlagSet writes."""

    def add(self, topic: Topic, make: Make, deliver: Deliver) -> tuple[Listeners, Callable[[], None]]:
        """(all listeners of the topic, the function that removes this one)."""
        token = object()
        listeners = self._listeners.setdefault(topic, Listeners())
        listeners.sinks[token] = (make, deliver)
        if isinstance(topic, Identified):
            self._identified.setdefault(topic.flag_set_id, set()).add(topic)

        def cancel() -> None:
            listeners.sinks.pop(token, None)
            if not listeners.sinks and self._listeners.get(topic) is listeners:
                self._drop(topic)

        return listeners, cancel

    def get(self, topic: Topic) -> Listeners | None:
        """Return all listeners of the topic; None if it has none."""
        return self._listeners.get(topic)

    def all(self) -> Iterator[tuple[Topic, Listeners]]:
        """Every topic with listeners."""
        yield from tuple(self._listeners.items())

    def topics_of_identifiers(self) -> Iterator[tuple[Topic, Listeners]]:
        """Every topic that is a flagSetId."""
        for topics in tuple(self._identified.values()):
            for topic in tuple(topics):
                if (listeners := self._listeners.get(topic)) is not None:
                    yield topic, listeners

    def of(self, place: Place, flag_set_ids: Iterable[str] = ()) -> list[tuple[Topic, Listeners]]:
        """The topics that may have the flags there: by the name, the flagSetId, or `flag_set_ids`."""
        ids = {self._catalog.claims.flag_set_id(place), *flag_set_ids}
        topics: list[Topic] = [topic for id_ in ids for topic in self._identified.get(id_, ())]
        topics.append(Named(*place))
        served = self._catalog.object_at(place)
        writer = "" if served is None else proven_writer(served)
        if writer not in {"", place[1]}:
            topics.append(Named(place[0], writer))
        topics += self._elsewhere.get(place, set()).difference(topics)
        return [(topic, self._listeners[topic]) for topic in topics if topic in self._listeners]

    def sinks(self, place: Place) -> Iterator[tuple[Make, Deliver]]:
        """The sinks of everybody who was sent the flags of the object there."""
        for _, listeners in self.of(place):
            if listeners.place == place:
                yield from listeners.all()

    def move(self, topic: Topic, listeners: Listeners, place: Place | None) -> None:
        """Note that the listeners of a topic are sent the flags of the object there; None: of none."""
        before, listeners.place = listeners.place, place
        if not isinstance(topic, Named) or before == place:
            return
        own = (topic.namespace, topic.name)
        if before not in {own, None}:
            self._elsewhere[before].discard(topic)
            if not self._elsewhere[before]:
                del self._elsewhere[before]
        if place not in {own, None}:
            self._elsewhere.setdefault(place, set()).add(topic)
        self.moved(topic)

    def clear(self) -> None:
        """Forget everybody."""
        self._listeners.clear()

    def _drop(self, topic: Topic) -> None:
        self.move(topic, self._listeners.pop(topic), None)
        if isinstance(topic, Identified):
            topics = self._identified[topic.flag_set_id]
            topics.discard(topic)
            if not topics:
                del self._identified[topic.flag_set_id]
