"""Worlds in which two features meet: each feature changes a scene, and every two make a world.

The set has the flags `banner` and `pay`. The newest commit turns `banner` on, and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.delivery.delivered import delivery_of, shard_of
from controller.proxy.building import EncodedFlagSet, build, compose
from evaluator.flags.candidates import definition_digest
from evaluator.flags.canonical import canonical
from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing
from evaluator.flags.references import Expander
from evaluator.resolving.resolve import compile_flag_set
from tests.worlds.delivery import (
    AT_STEP,
    FIRST,
    MIXED,
    NEW,
    OLD,
    OWN_NEW,
    OWN_OLD,
    World,
    candidate,
    conditions,
    document,
    entry,
    flag_set,
    make,
    override,
    rollout,
    set_object,
    source,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controller.api.meta import ObjectKey, Resource
    from evaluator.resolving.resolve import CompiledFlagSet
    from tests.worlds.delivery import Fields

REMOTE: Final = "https://flags.example.com/v1"
_SWITCH: Final = {"variants": {"on": True, "off": False}, "defaultVariant": "on"}
_PROBLEM: Final = {
    "severity": "error", "file": "flags/base.json", "line": 9, "column": 9, "path": "$.flags.pay",
    "message": '"defaultVarient" is unknown; did you mean "defaultVariant"?',
}  # fmt: skip


@dataclass
class Scene:
    """What features make of a set, before it is a world."""

    old: Fields = field(default_factory=document)
    new: Fields = field(default_factory=lambda: document("banner"))
    """The flags of the two commits."""
    guarded: bool = False
    held: bool = False
    direct: bool = False
    suspended: bool = False
    sharded: bool = False
    remote: bool = False
    ordered: bool = False
    overridden: bool = False
    rolled_out: bool = False
    kind: str = "FeatureFlagConfiguration"
    readers: tuple[str, ...] = ()
    """How evaluators read it, beside or in place of a proxy's stream."""

    @property
    def desired(self) -> Fields:
        """The flags that are applied."""
        flags = self.old if self.guarded else self.new
        if not (self.direct and self.held):
            return flags
        bad = {**flags["flags"]["pay"], "defaultVariant": "of"}
        return {**flags, "flags": {**flags["flags"], "pay": bad}}

    @property
    def differs(self) -> bool:
        """Whether the rollout has a flag to roll out."""
        return not self.guarded and self.new["flags"]["banner"]["state"] == "ENABLED"

    def world(self) -> PairWorld:
        """The objects, and what evaluators read."""
        shards = [*self._shards()]
        others = [source()] if not self.direct else []
        others += [self._writer()] if not self.direct else []
        others += [override()] if self.overridden else []
        others += [self._rollout()] if self.rolled_out else []
        return PairWorld((*others, self._object(), *shards), scene=self)

    def _parts(self) -> Iterator[tuple[str, Fields]]:
        flags, shared = self.desired["flags"], {k: v for k, v in self.desired.items() if k != "flags"}
        for part in ({"flags": {}, **shared}, *({"flags": {key: flag}} for key, flag in flags.items())):
            yield shard_of("checkout", part)

    def _shards(self) -> Iterator[Resource]:
        if self.sharded:
            for name, spec in self._parts():
                yield make("FlagShard", name, spec=spec, status={})
        if self.remote:
            name, spec = shard_of("remote", {"flags": {"remote": {"state": "ENABLED", **_SWITCH}}})
            yield make("FlagShard", name, spec=spec, status={})

    def _writer(self) -> Resource:
        spec: Fields = {"suspend": True} if self.suspended else {}
        target = [{"kind": self.kind, "name": "checkout"}]
        if self.guarded:
            why = conditions("PruneGuard", f"{NEW} by Ada is held: it would remove 5 of 6 flags.")
            known: Fields = {"conditions": why, "pendingRemovals": ["a"], "target": target}
            return flag_set(OLD, NEW, OWN_OLD, spec=spec, **known)
        if not self.held:
            return flag_set(spec=spec, target=target)
        why = conditions(
            "PartiallyApplied", f"{NEW} by Ada is applied, except 1 of 3 flags: {_PROBLEM['message']}"
        )
        return flag_set(
            lacking=1, spec=spec, target=target, held=[{"name": "pay", "revision": OLD}], heldFlags=1,
            problems=[_PROBLEM], problemCount=1, conditions=why,
        )  # fmt: skip

    def _object(self) -> Resource:
        changed = self.remote or self.overridden or (self.rolled_out and self.differs)
        own, revision = (OWN_OLD, OLD) if self.guarded else (OWN_NEW, NEW)
        status: Fields = {"localDigest": own} if changed else {}
        if self.remote:
            name, spec = shard_of("remote", {"flags": {"remote": {"state": "ENABLED", **_SWITCH}}})
            listed = [{"name": name, "digest": spec["digest"]}]
            status["providers"] = [
                {"name": REMOTE, "type": "http", "version": "7", "flags": 1, "shards": listed}
            ]
        if self.rolled_out:
            flags = {"banner": self._definition()} if self.differs else {}
            step = entry("Exposed", FIRST, step="1/2", share="10") if self.differs else entry("Idle", "")
            status["rollouts"] = [{**step, "flags": flags}]
        if self.direct and self.held:
            status |= {
                "problems": [_PROBLEM],
                "problemCount": 1,
                "conditions": conditions("InvalidFlags", "a flag is bad"),
            }
        served = "0/0" if self.readers and "proxy" not in self.readers else "3/3"
        made = set_object(revision, MIXED if changed else own, served, kind=self.kind, **status)
        spec = {"flagSpec": self.desired}
        if self.sharded:
            spec = {"shards": [{"name": name, "digest": part["digest"]} for name, part in self._parts()]}
        if self.remote:
            spec["remoteFlagProvider"] = {"name": "http", "uri": REMOTE}
        return replace(made, spec=spec, labels={} if self.direct else made.labels)

    def _definition(self) -> str:
        parsed = parse(_bytes(self.new), file="flags.json").flag_set
        return definition_digest(parsed.flags["banner"], Expander(parsed.evaluators))

    def _rollout(self) -> Resource:
        if not self.differs:
            return rollout()
        reason = {"reason": "OverrideActive"} if self.overridden else {}
        made = rollout(candidate("Progressing", FIRST, **AT_STEP, **reason))
        return _with_flags(made, {"banner": self._definition()})


def _with_flags(resource: Resource, flags: Mapping[str, str]) -> Resource:
    listed = [{**one, "flags": dict(flags)} for one in resource.status["candidates"]]
    return replace(resource, status={**resource.status, "candidates": listed})


def _bytes(flags: Fields) -> bytes:
    return json.dumps(flags).encode()


@dataclass(frozen=True)
class PairWorld(World):
    """A world of two features, and the evaluators in it."""

    scene: Scene = field(default_factory=Scene)

    @property
    def promoted(self) -> Fields:
        """The definitions before the newest commit."""
        return self.scene.old

    def evaluators(self) -> dict[str, CompiledFlagSet]:
        """What is served by each way in which evaluators read the set, by the way."""
        assert self.target is not None
        progress, target = self.progress(), self.target
        shard = flagshard.finder(self._find, "shop")
        ways = {}
        readers = self.scene.readers or ("proxy",)
        if "proxy" in readers:
            sent = build(target, shard, _bytes(self.scene.old), progress)
            assert isinstance(sent, EncodedFlagSet)
            content = sent.document
            if self.scene.ordered:
                kill = make(
                    "FeatureFlag",
                    "kills",
                    spec={"flagSpec": {"flags": {"kill": {"state": "ENABLED", **_SWITCH}}}},
                    status={},
                )
                kills = build(kill, shard, None)
                assert isinstance(kills, EncodedFlagSet)
                content = compose(
                    (("shop/kills", "FeatureFlag/kills", kills), ("shop/checkout", "FlagSet/checkout", sent))
                ).document
            ways["proxy"] = compile_flag_set(parse(content, file="sync").flag_set)
        delivered = delivery_of(target, shard, progress).flag_set
        if "file" in readers:
            file = canonical(delivered, provenance=True)
            ways["file"] = compile_flag_set(parse(file, file="flags.json").flag_set)
        if "in-process" in readers:
            ways["in-process"] = compile_flag_set(delivered, bucketing=Bucketing.V3)
        return ways

    def _find(self, key: ObjectKey) -> Resource | None:
        return next((one for one in self.objects if one.key == key), None)


def _hold(scene: Scene) -> None:
    # What is applied has the last good definition of `pay`, which is its present one.
    scene.held = True


def _disable(scene: Scene) -> None:
    scene.new["flags"]["banner"]["state"] = "DISABLED"


def _share_rules(scene: Scene) -> None:
    """Turn `banner` on by a shared rule that changes, not by its own definition."""
    for flags, matched in ((scene.old, "nobody"), (scene.new, "user")):
        flags["$evaluators"] = {"staff": {"starts_with": [{"var": "targetingKey"}, matched]}}
        flags["flags"]["banner"] |= {
            "defaultVariant": "off",
            "targeting": {"if": [{"$ref": "staff"}, "on", "off"]},
        }


def _set(**fields: Any) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        for name, value in fields.items():
            setattr(scene, name, value)

    return change


def _read(way: str) -> Callable[[Scene], None]:
    def change(scene: Scene) -> None:
        scene.readers = (*scene.readers, way)

    return change


FEATURES: Final[Mapping[str, Callable[[Scene], None]]] = {
    "shared $evaluators that change": _share_rules,
    "disabled": _disable,
    "held flag": _hold,
    "deletion guard": _set(guarded=True),
    "override": _set(overridden=True),
    "rollout": _set(rolled_out=True),
    "remote provider": _set(remote=True),
    "direct set": _set(direct=True),
    "standing order": _set(ordered=True),
    "shards of a large set": _set(sharded=True),
    "suspended": _set(suspended=True),
    "FeatureFlag target": _set(kind="FeatureFlag"),
    "file mode": _read("file"),
    "in-process provider": _read("in-process"),
}
APART: Final = {
    frozenset({"deletion guard", "held flag"}): "a revision that is held back has no flag applied",
    frozenset({"deletion guard", "direct set"}): "a direct set has no FlagSet, which guards deletions",
    frozenset({"direct set", "suspended"}): "a direct set has no FlagSet to suspend",
    frozenset({"direct set", "FeatureFlag target"}): "a direct set is a FeatureFlagConfiguration",
    frozenset({"direct set", "shards of a large set"}): "an annotation is smaller than a shard",
    frozenset(
        {"FeatureFlag target", "shards of a large set"}
    ): "a FeatureFlag has no shards: it is refused as too large",
    frozenset({"FeatureFlag target", "remote provider"}): "a FeatureFlag has no field for a remote provider",
    frozenset({"in-process provider", "standing order"}): "a pod without an evaluator follows no orders",
    frozenset(
        {"file mode", "standing order"}
    ): "an order comes by the proxy; the pod merges it with the file by keys",
    frozenset(
        {"file mode", "direct set"}
    ): "a direct set comes by the proxy; the pod merges it with the file by keys",
}
"""Pairs that do not meet in one delivered set, and why."""


def pairs() -> list[frozenset[str]]:
    """Every two features."""
    return [frozenset(pair) for pair in combinations(FEATURES, 2)]


def world_of(pair: frozenset[str]) -> PairWorld:
    """The world in which these features meet."""
    scene = Scene()
    for name, change in FEATURES.items():
        if name in pair:
            change(scene)
    return scene.world()


def name_of(pair: frozenset[str]) -> str:
    """`override with rollout`."""
    return " with ".join(name for name in FEATURES if name in pair)
