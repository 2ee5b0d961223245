"""Worlds in which a flag set is served in one way or another: objects as a cluster has them, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controller.api import flagshard
from controller.api.meta import ObjectKey, Resource
from controller.delivery.delivered import delivery_of
from controller.delivery.rollouts import PROGRESS_INDEXES, PromotedSets, progress_of
from controller.delivery.set_reading import read_sets
from controller.delivery.set_state import Where
from controller.runtime.cache import Cache
from evaluator.flags.candidates import definition_digest
from evaluator.flags.model import Flag, State
from evaluator.flags.references import Expander
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from controller.delivery.delivered import Delivered
    from controller.delivery.set_state import SetState
    from evaluator.flags.accept import Progress
    from evaluator.flags.model import FlagSet

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
OLD, NEW = (f"main@sha1:{letter * 40}" for letter in "ab")
OWN_OLD, OWN_NEW, MIXED = (f"sha256:{digit * 64}" for digit in "123")
FIRST, SECOND = (f"sha256:{digit * 64}" for digit in "45")
"""Digests of candidates."""
SET = ObjectKey("FlagSet", "shop", "checkout")
OBJECT = ObjectKey("FeatureFlagConfiguration", "shop", "checkout")
SINCE = "2026-01-02T11:00:00Z"
END = "2026-01-02T18:00:00Z"

Fields = dict[str, Any]
FLAGS = ("banner", "pay")
"""The keys of the set's flags, each with the variants on and off."""


def document(*on: str, disabled: str = "") -> Fields:
    """The flags: these with the default variant on, as NEW has banner, the others off, as OLD has them."""
    variants = {"on": True, "off": False}
    flags = {
        key: {
            "state": "DISABLED" if key == disabled else "ENABLED",
            "variants": variants,
            "defaultVariant": "on" if key in on else "off",
        }
        for key in FLAGS
    }
    return {"flags": flags}


def definitions(*keys: str) -> dict[str, str]:
    """The digests of the new definitions of these flags."""
    flags = (Flag(key, State.ENABLED, {"on": True, "off": False}, "on") for key in keys)
    return {flag.key: definition_digest(flag, Expander({})) for flag in flags}


def make(kind: str, name: str, *, spec: Fields, status: Fields, **metadata: Any) -> Resource:
    """An object of the namespace shop whose status is about its spec."""
    return thing(kind, name, spec, {"observedGeneration": 1, **status}, **metadata)


def conditions(reason: str = "", message: str = "", **others: tuple[str, str, str]) -> list[Fields]:
    """Ready, False with a reason if there is one, and others as (status, reason, message)."""
    given = {"Ready": ("False" if reason else "True", reason or "Succeeded", message), **others}
    if reason and reason != "Progressing":
        given["Stalled"] = ("True", reason, message)
    if reason == "Progressing":
        given["Reconciling"] = ("True", reason, message)
    return [
        {"type": type_, "status": status, "reason": why, "message": text, "lastTransitionTime": SINCE}
        for type_, (status, why, text) in given.items()
    ]


def source(revision: str = NEW, **spec: Any) -> Resource:
    """A FlagSource of Git."""
    artifact = {
        "url": "http://artifacts/x", "revision": revision, "digest": OWN_OLD, "lastUpdateTime": SINCE,
        "metadata": {"flagstaff.dev/author": "Ada <ada@example.com>"},
    }  # fmt: skip
    status = {"artifact": artifact, "conditions": conditions(message=f"stored {revision}")}
    return make(
        "FlagSource", "flags", spec={"git": {"url": "https://git.example.com/f"}, **spec}, status=status
    )


def flag_set(
    applied: str = NEW, attempted: str = NEW, own: str = OWN_NEW, *, lacking: int = 0,
    spec: Fields | None = None, **status: Any,
) -> Resource:  # fmt: skip
    """A FlagSet that has applied a revision."""
    newest = {
        "revision": applied, "digest": own, "appliedAt": SINCE, "author": "Ada <ada@example.com>",
        **({"held": lacking} if lacking else {}),
    }  # fmt: skip
    earlier = {"revision": OLD, "digest": OWN_OLD, "appliedAt": "2026-01-01T11:00:00Z"}
    known = {
        "lastAppliedRevision": applied, "lastAttemptedRevision": attempted, "digest": own, "flags": 3,
        "lastGoodRevision": OLD if lacking else applied, "served": "3/3",
        "history": [newest] if applied == OLD else [newest, earlier],
        "target": [{"kind": "FeatureFlagConfiguration", "name": "checkout"}],
        "conditions": conditions(message=f"Applied revision: {applied}"),
    }  # fmt: skip
    reference = {"sourceRef": {"kind": "FlagSource", "name": "flags"}}
    return make("FlagSet", "checkout", spec={**reference, **(spec or {})}, status={**known, **status})


def set_object(
    revision: str = NEW, digest: str = OWN_NEW, served: str = "3/3", *, kind: str = OBJECT.kind,
    on: tuple[str, ...] | None = None, **status: Any,
) -> Resource:  # fmt: skip
    """The object that the FlagSet has written; `on`: the flags that are, if not as the revision has them."""
    flags = (("banner",) if revision == NEW else ()) if on is None else on
    known = {
        "revision": revision, "digest": digest, "flags": 3, "served": served,
        "total": int(served.partition("/")[2]), "conditions": conditions(message="3 flags are valid"),
    }  # fmt: skip
    return make(
        kind, "checkout", spec={"flagSpec": document(*flags)}, status={**known, **status},
        labels={"flagstaff.dev/flagset": "checkout"},
        managedFields=[{"manager": "flagstaff-flagset/shop/checkout"}],
    )  # fmt: skip


def entry(phase: str, candidate: str = FIRST, *flags: str, step: str = "", share: str = "") -> Fields:
    """An entry of `status.rollouts` of an object."""
    given = {"name": "checkout", "shard": "checkout-1", "phase": phase, "flags": definitions(*flags)}
    optional = {"candidate": candidate, "step": step, "share": share}
    return given | {name: text for name, text in optional.items() if text}


def candidate(phase: str, digest: str = FIRST, *flags: str, **fields: Any) -> Fields:
    """A candidate in the status of a FlagRollout."""
    known = {"digest": digest, "revision": NEW, "author": "Ada <ada@example.com>", "phase": phase}
    return {**known, "flags": definitions(*flags), "stepStartedAt": SINCE, "salt": "s/", **fields}


AT_STEP = {"step": 0, "stepText": "1/2", "share": 10.0, "shareText": "10%"}


def rollout(*candidates: Fields, spec: Fields | None = None, **status: Any) -> Resource:
    """A FlagRollout of the set."""
    steps = [{"share": 10, "minDuration": "10m", "approval": "Required"}, {"share": 50}]
    known = {
        "phase": candidates[0]["phase"] if candidates else "Idle", "candidates": [*candidates],
        "running": len(candidates), "promoted": {"digest": OWN_OLD, "revision": OLD, "shard": "checkout-1"},
        "conditions": conditions(message="rolling out"),
    }  # fmt: skip
    return make(
        "FlagRollout", "checkout",
        spec={"flagSetRef": {"name": "checkout"}, "flags": ["*"], "steps": steps, **(spec or {})},
        status={**known, **status},
    )  # fmt: skip


def override(
    name: str = "checkout.banner", flag: str = "banner", state: str = "Active", **spec: Any
) -> Resource:
    """A FlagOverride of the set."""
    known = {
        "flagSetRef": {"name": "checkout"}, "flag": flag, "variant": "off", "reason": "INC-4711",
        "expiresAt": END,
    }  # fmt: skip
    return make(
        "FlagOverride", name, spec={**known, **spec},
        status={"state": state, "hides": "default on", "conditions": conditions()},
        annotations={"flagstaff.dev/set-by": "ada"},
    )  # fmt: skip


def laggard(name: str = "shop/pod-1", *, silent: bool = False) -> Fields:
    """An evaluator that does not serve the newest flags."""
    return {"name": name, "node": "node-1", "serves": OLD, "since": SINCE, "silent": silent}


@dataclass(frozen=True)
class World:
    """Objects, and where they are."""

    objects: tuple[Resource, ...]
    revision: str = NEW
    """The newest commit."""
    where: Where = Where.CLUSTER

    @property
    def state(self) -> SetState:
        """The state of the one flag set."""
        (state,) = read_sets(self.objects, NOW, self.where)
        return state

    @property
    def promoted(self) -> Fields:
        """The definitions that everybody got before the newest commit."""
        return document()

    @property
    def target(self) -> Resource | None:
        """The object with the flags."""
        return next((one for one in self.objects if one.key == self.state.key), None)

    def progress(self) -> Progress:
        """The rollouts and overrides, as every process applies them."""
        objects = Cache(PROGRESS_INDEXES)
        promoted = {"digest": OWN_OLD, "flagSpec": self.promoted}
        for resource in (make("FlagShard", "checkout-1", spec=promoted, status={}), *self.objects):
            objects.put(resource)
        assert self.target is not None
        return progress_of(objects, self.target, NOW.timestamp(), PromotedSets(objects.get))

    def served_flags(self) -> FlagSet:
        """What an evaluator has that is not behind."""
        return self._delivery().flag_set

    def desired_flags(self) -> FlagSet:
        """What the object has, without rollouts and overrides."""
        return self._delivery().desired

    def _delivery(self) -> Delivered:
        assert self.target is not None
        by_key = {resource.key: resource for resource in self.objects}
        return delivery_of(self.target, flagshard.finder(by_key.get, "shop"), self.progress())


def _rolled_out(
    *entries: Fields, candidates: tuple[Fields, ...] = (), spec: Fields | None = None, **fields: Any
) -> World:
    """A world in which the set has rollouts as the entries say. `spec`: other fields of the FlagRollout."""
    on = tuple(key for one in entries for key in one["flags"])
    target = set_object(digest=MIXED, localDigest=OWN_NEW, rollouts=[*entries], on=on, **fields)
    return World((source(), flag_set(), target, rollout(*candidates, spec=spec)))


_BAD_FLAG = f'{NEW} by Ada is applied, except 1 of 3 flags: flags/base.json:4:9: "defaultVarient" is unknown.'
_PROBLEM = {
    "severity": "error", "file": "flags/base.json", "line": 4, "column": 9, "path": "$.flags.banner",
    "message": '"defaultVarient" is unknown; did you mean "defaultVariant"?',
}  # fmt: skip
_HELD = flag_set(
    lacking=1, held=[{"name": "banner", "revision": OLD}], heldFlags=1, problems=[_PROBLEM], problemCount=1,
    conditions=conditions("PartiallyApplied", _BAD_FLAG),
)  # fmt: skip
_STEP = entry("Exposed", FIRST, "banner", step="1/2", share="10")
_AT_STEP = candidate("Progressing", FIRST, "banner", **AT_STEP)
_REMOTE = {"name": "https://flags.example.com/v1", "type": "http", "version": "7", "flags": 2}
_REFUSED = f"{NEW} by Ada is refused: flags/base.json:4:9: expecting a comma. {OLD} stays served"
_GUARD = f"{NEW} by Ada is held: it would remove 5 of 6 flags. {OLD} stays served."

WORLDS = {
    "everybody has it": World((source(), flag_set(), set_object())),
    "the object does not exist yet": World((source(), flag_set())),
    "the source has a newer commit": World((source(), flag_set(OLD, OLD, OWN_OLD), set_object(OLD, OWN_OLD))),
    "a flag is held": World((source(), _HELD, set_object(on=()))),
    "the commit is refused": World(
        (
            source(),
            flag_set(
                OLD,
                NEW,
                OWN_OLD,
                problems=[_PROBLEM],
                problemCount=1,
                conditions=conditions("BuildFailed", _REFUSED),
            ),
            set_object(OLD, OWN_OLD),
        )
    ),
    "the deletion guard waits": World(
        (
            source(),
            flag_set(
                OLD,
                NEW,
                OWN_OLD,
                pendingRemovals=["a", "b", "c", "d", "e"],
                conditions=conditions("PruneGuard", _GUARD),
            ),
            set_object(OLD, OWN_OLD),
        )
    ),
    "an evaluator is behind": World((source(), flag_set(), set_object(served="2/3", laggards=[laggard()]))),
    "an evaluator is silent": World(
        (source(), flag_set(), set_object(served="2/3", laggards=[laggard(silent=True)]))
    ),
    "nobody reports": World((source(), flag_set(), set_object(served="0/0"))),
    "a rollout is at its first step": _rolled_out(_STEP, candidates=(_AT_STEP,)),
    "a rollout is at its first step, and an evaluator is behind": _rolled_out(
        _STEP, candidates=(_AT_STEP,), served="2/3", laggards=[laggard()]
    ),
    "a rollout is at an audience": _rolled_out(
        entry("Exposed", FIRST, "banner", step="1/2", share="0"),
        candidates=(candidate("Progressing", FIRST, "banner", step=0, stepText="1/2", shareText="audience"),),
    ),
    "two candidates run beside each other": _rolled_out(
        _STEP,
        entry("Exposed", SECOND, "pay", step="2/2", share="50"),
        candidates=(
            _AT_STEP,
            candidate("Progressing", SECOND, "pay", step=1, stepText="2/2", share=50.0, shareText="50%"),
        ),
    ),
    "a step waits for an approval": _rolled_out(
        _STEP,
        candidates=(
            candidate(
                "Progressing", FIRST, "banner", **AT_STEP, reason="WaitingForApproval", heldSince=SINCE
            ),
        ),
    ),
    "a step is held by its checks": _rolled_out(
        _STEP,
        candidates=(
            candidate(
                "Progressing",
                FIRST,
                "banner",
                **AT_STEP,
                reason="CheckErrors",
                verdict="Error",
                message="http://prometheus:9090: connection refused",
            ),
        ),
    ),
    "a freeze is in force": _rolled_out(
        entry("Held", FIRST, "banner"),
        candidates=(
            candidate(
                "Pending", FIRST, "banner", reason="Frozen", message="year-end, until 2026-01-07T00:00:00Z"
            ),
        ),
    ),
    "a rollout waits for a date": _rolled_out(
        entry("Held", FIRST, "banner"),
        candidates=(
            candidate(
                "Pending", FIRST, "banner", reason="WaitingForDate", message="until 2026-12-05T08:00:00+01:00"
            ),
        ),
        spec={
            "steps": [
                {"share": 10, "at": "2026-12-05T08:00:00+01:00"},
                {"share": 50, "at": "2026-12-07T08:00:00+01:00"},
            ]
        },
    ),
    "the rollout was aborted": _rolled_out(
        entry("Held", FIRST, "banner"), candidates=(candidate("Failed", FIRST, "banner", reason="Aborted"),)
    ),
    "a change is queued": _rolled_out(
        _STEP, entry("Held", SECOND, "pay"), candidates=(_AT_STEP, candidate("Queued", SECOND, "pay"))
    ),
    "the rollout is promoted, and not all serve it": _rolled_out(
        entry("Everyone", FIRST, "banner", share="100"),
        candidates=(candidate("Promoting", FIRST, "banner", step=1, stepText="2/2"),),
        served="2/3",
        laggards=[laggard()],
    ),
    "the rollout is gone": World(
        (
            source(),
            flag_set(),
            set_object(digest=MIXED, localDigest=OWN_NEW, rollouts=[entry("Abandoned", FIRST, "banner")]),
        )
    ),
    "the rollout has not seen the flags yet": _rolled_out(entry("Held", "", "banner")),
    "an override is in force": World(
        (source(), flag_set(), set_object(digest=MIXED, localDigest=OWN_NEW), override())
    ),
    "an override for an audience is in force": World(
        (
            source(),
            flag_set(),
            set_object(digest=MIXED, localDigest=OWN_NEW),
            override(audience={"==": [{"var": "country"}, "NL"]}),
        )
    ),
    "an override has ended": World(
        (source(), flag_set(), set_object(), override(expiresAt="2026-01-02T11:59:00Z"))
    ),
    "an override is over a step": World(
        (
            *_rolled_out(
                _STEP,
                candidates=(candidate("Progressing", FIRST, "banner", **AT_STEP, reason="OverrideActive"),),
            ).objects,
            override(),
        )
    ),
    "an override over a step has ended": _rolled_out(
        _STEP,
        candidates=(
            candidate(
                "Progressing",
                FIRST,
                "banner",
                **AT_STEP,
                reason="OverrideEnded",
                interruptedBy="checkout.banner",
            ),
        ),
    ),
    "remote flags are merged": World(
        (source(), flag_set(), set_object(digest=MIXED, localDigest=OWN_NEW, providers=[_REMOTE]))
    ),
    "remote flags are stale": World(
        (
            source(),
            flag_set(),
            set_object(
                digest=MIXED,
                localDigest=OWN_NEW,
                providers=[{**_REMOTE, "staleSince": SINCE, "message": "status 500"}],
                conditions=conditions(RemoteFlagsFetched=("False", "FetchFailed", "status 500")),
            ),
        )
    ),
    "the FlagSet is suspended": World(
        (source(), flag_set(OLD, OLD, OWN_OLD, spec={"suspend": True}), set_object(OLD, OWN_OLD))
    ),
    "the FlagRollout is suspended": World(
        (
            *_rolled_out(_STEP).objects[:3],
            rollout(
                candidate("Progressing", FIRST, "banner", **AT_STEP, reason="Suspended"),
                spec={"suspend": True},
            ),
        )
    ),
    "the flag of a candidate is disabled": World(
        (
            source(),
            flag_set(),
            replace(
                set_object(rollouts=[entry("Idle", FIRST, "banner")]),
                spec={"flagSpec": document("banner", disabled="banner")},
            ),
            rollout(candidate("Progressing", FIRST, "banner", **AT_STEP, reason="FlagDisabled")),
        )
    ),
    "the FlagSet is suspended in a rollout": World(
        (source(), flag_set(spec={"suspend": True}), *_rolled_out(_STEP, candidates=(_AT_STEP,)).objects[2:])
    ),
    "a flag is held under an override": World(
        (source(), _HELD, set_object(digest=MIXED, localDigest=OWN_NEW, on=()), override(variant="on"))
    ),
    "remote flags are under an override": World(
        (
            source(),
            flag_set(),
            set_object(digest=MIXED, localDigest=OWN_NEW, providers=[_REMOTE]),
            override(flag="remote"),
        )
    ),
    "two overrides are in force": World(
        (
            source(),
            flag_set(),
            set_object(digest=MIXED, localDigest=OWN_NEW),
            override(),
            override("checkout.pay", "pay", variant="on"),
        )
    ),
    "the object is written by hand, in a rollout": World(
        (replace(_rolled_out(_STEP).objects[2], labels={}), rollout(_AT_STEP))
    ),
    "the object is a FeatureFlag, in a rollout": World(
        (
            source(),
            flag_set(target=[{"kind": "FeatureFlag", "name": "checkout"}]),
            set_object(kind="FeatureFlag", digest=MIXED, localDigest=OWN_NEW, rollouts=[_STEP]),
            rollout(_AT_STEP),
        )
    ),
    "the object is a FeatureFlag": World(
        (
            source(),
            flag_set(target=[{"kind": "FeatureFlag", "name": "checkout"}]),
            set_object(kind="FeatureFlag"),
        )
    ),
    "the object is written by hand": World((replace(set_object(), labels={}),)),
    "the object is written by hand, with a bad flag": World(
        (
            replace(
                set_object(
                    problems=[{"severity": "error", "path": "spec.flagSpec.flags.banner", "message": "bad"}],
                    problemCount=1,
                    conditions=conditions("InvalidFlags", "spec.flagSpec.flags.banner: bad."),
                ),
                labels={},
            ),
        )
    ),
    "the repository cannot be read": World(
        (
            make(
                "FlagSource",
                "flags",
                spec={"git": {"url": "https://git.example.com/f"}},
                status={"conditions": conditions("GitOperationFailed", "connection refused")},
            ),
            flag_set(OLD, OLD, OWN_OLD),
            set_object(OLD, OWN_OLD),
        ),
        OLD,
    ),
    "the controller has not seen the object yet": World(
        (source(), flag_set(), set_object(observedGeneration=0))
    ),
    "a step waits for an approval in local mode": World(
        _rolled_out(
            _STEP,
            candidates=(candidate("Progressing", FIRST, "banner", **AT_STEP, reason="WaitingForApproval"),),
            served="1/1",
        ).objects,
        where=Where.LOCAL,
    ),
    "a flag is held in local mode": World(
        (source(), _HELD, set_object(served="1/1", on=())), where=Where.LOCAL
    ),
}
"""By what is the matter."""
