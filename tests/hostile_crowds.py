"""Many objects of each kind, and of each two kinds that meet in a reconciler: the kinds are those of crds/,
and the pairs those of the stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api import flagset
from controller.app.reconcilers import STAGES
from tests.stub_api import KINDS, installed_kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

INSTALLED: Final = sorted(type_.kind for type_ in installed_kinds())
"""The kinds of crds/."""
FLAGS: Final = 100
"""Flags of each object that has some."""
_CREATED: Final = "2026-01-01T00:00:00Z"
_URL: Final = "https://127.0.0.1:1/x"
"""Nothing listens there."""


def pairs() -> list[tuple[str, str]]:
    """Return each two kinds of which one wakes the reconciler of the other, of those that the stub serves."""
    met = {
        (min(stage.type.kind, kind), max(stage.type.kind, kind))
        for stage in STAGES
        for watch in stage.wakes
        for kind in watch.kinds
        if kind in KINDS
    }
    return sorted(met)


def crowd(kind: str, namespace: str, count: int, generation: int = 1) -> Iterator[dict[str, Any]]:
    """Yield so many objects of a kind. They name the objects of the other crowds in their namespace: all of
    them where the kind allows, otherwise the first. Their content differs with the generation.
    """
    for number in range(count):
        meta = {
            "name": _name(number),
            "namespace": namespace,
            "generation": generation,
            "creationTimestamp": _CREATED,
            "labels": {flagset.LABEL: "flags", "generation": str(generation)},
            "ownerReferences": [_owner("FlagSet"), _owner("Flagd")],
        }
        member = _Member(number, count, generation)
        body = {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": meta}
        if kind == "FlagReceipt":
            body["status"] = member.receipt()
        yield {**body, "spec": _SPECS[kind](member)}


def _name(number: int) -> str:
    return f"flags-{number}" if number else "flags"


def _owner(kind: str) -> dict[str, Any]:
    uid = f"uid-of-{kind}"
    return {
        "apiVersion": KINDS[kind].api_version, "kind": kind, "name": "flags", "uid": uid, "controller": True,
    }  # fmt: skip


class _Member(NamedTuple):
    number: int
    size: int
    generation: int

    @property
    def flag(self) -> str:
        return f"flag-{self.number % FLAGS}"

    def names(self, most: int) -> list[dict[str, str]]:
        """The members of another crowd, as far as a list may name them."""
        return [{"name": _name(number)} for number in range(min(self.size, most))]

    def flags(self) -> dict[str, Any]:
        default = "on" if self.generation % 2 else "off"
        flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default}
        return {"flagSpec": {"flags": {f"flag-{number}": flag for number in range(FLAGS)}}}

    def configuration(self) -> dict[str, Any]:
        """One in ten is in shards."""
        shards = [shard | {"digest": "a"} for shard in self.names(256)]
        return {"shards": shards} if self.number % 10 == 9 else self.flags()

    def flag_set(self) -> dict[str, Any]:
        inputs = [{"kind": kind, **named} for kind in ("Secret", "ConfigMap") for named in self.names(16)]
        others = [named for named in self.names(32) if named["name"] != _name(self.number)]
        return {
            "sourceRef": {"kind": "FlagSource", "name": "flags"},
            "target": {"name": "flags"},
            "dependsOn": [{"kind": "FlagSet", **named} for named in others],
            "substituteFrom": inputs,
            "prune": self.generation % 2 == 0,
        }

    def rollout(self) -> dict[str, Any]:
        metric = {
            "name": "errors", "templateRef": _NAMED, "thresholdRange": {"max": 0.01}, "interval": "10s",
        }  # fmt: skip
        return {
            "flagSetRef": _NAMED,
            "flags": [self.flag],
            "steps": [{"share": self.generation}, {"share": 50}],
            "analysis": {"interval": "10s", "failureLimit": 1, "metrics": [metric]},
        }

    def receipt(self) -> dict[str, Any]:
        """The status, which a proxy writes."""
        hidden = [{"flag": self.flag, "by": f"FlagSet/shop/{_name(self.generation)}"}]
        return {"digest": "a", "groups": [{"digest": "a", "count": self.generation}], "hidden": hidden}


_NAMED: Final = {"name": "flags"}
_READER: Final = {"group": "flagstaff.dev", "kind": "FlagSet", "namespace": "shop"}
_SPECS: Final[Mapping[str, Callable[[_Member], dict[str, Any]]]] = {
    "ConfigMap": lambda _: {},
    "Deployment": lambda member: {"replicas": member.generation},
    "Ingress": lambda _: {},
    "Namespace": lambda _: {},
    "Secret": lambda _: {},
    "Service": lambda _: {},
    "EvaluatorUpgrade": lambda member: {"pause": f"{member.generation}m"},
    "FeatureFlag": _Member.flags,
    "FeatureFlagConfiguration": _Member.configuration,
    "FeatureFlagSource": lambda member: {
        "sources": [{"source": named["name"], "provider": "kubernetes"} for named in member.names(16)],
        "port": 8000 + member.generation,
    },
    "FlagAlert": lambda member: {
        "providerRef": _NAMED,
        "eventSources": [{"kind": kind, "name": "*"} for kind in ("FlagSource", "FlagSet")],
        "summary": f"summary {member.generation}",
    },
    "FlagGrant": lambda member: {
        "from": [_READER],
        "to": [{"group": "flagstaff.dev", "kind": "FlagSource", "name": _name(member.generation)}],
    },
    "FlagOverride": lambda member: {
        "flagSetRef": _NAMED,
        "flag": member.flag,
        "variant": "off",
        "reason": f"incident {member.generation}",
        "expiresAt": "2099-01-01T00:00:00Z",
    },
    "FlagProvider": lambda member: {
        "type": "generic", "secretRef": _NAMED, "timeout": f"{member.generation}s",
    },
    "FlagReceipt": lambda member: {"configuration": "flags", "proxy": f"proxy-{member.number}"},
    "FlagReceiver": lambda member: {
        "type": "github", "secretRef": _NAMED, "resources": member.names(64),
        "events": [f"push-{member.generation}"],
    },
    "FlagPolicy": lambda member: {
        "action": "Warn", "validations": [{"expression": f"plan.most < {member.generation}.0"}],
    },
    "FlagRollout": _Member.rollout,
    "FlagSet": _Member.flag_set,
    "FlagShard": lambda member: {"digest": "a", **member.flags()},
    "FlagSource": lambda member: {
        "interval": f"{member.generation}h", "git": {"url": _URL, "secretRef": _NAMED},
    },
    "Flagd": lambda member: {"featureFlagSource": "flags", "replicas": member.generation},
    "InProcessConfiguration": lambda member: {"selector": "flags", "port": 8000 + member.generation},
    "MetricTemplate": lambda member: {
        "provider": {"type": "prometheus", "address": "http://127.0.0.1:1"},
        "query": f"sum(rate(errors[{member.generation}m]))",
    },
}  # fmt: skip
