"""FlagRollouts in a cluster in memory, with an oracle of what evaluators may serve after each write."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagshard
from controller.api.rollout_status import CandidateStatus, FlagRolloutStatus, MetricStatus
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.remote_providers import RemoteProviders, RemoteShards
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import delivery_of
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.rollouts.rollout_ports import HookAnswer
from controller.rollouts.rollout_reconciler import FlagRolloutReconciler
from controller.rollouts.stage import ROLLOUTS
from controller.runtime.cache import manifest_of
from controller.runtime.loop import is_worked_on
from controller.runtime.shards import WHOLE, Shard
from evaluator.resolving.resolve import compile_flag_set, resolve
from tests.worlds.flags import flag
from tests.worlds.objects import NAMESPACE, manifest
from tests.worlds.stages import RecordingCluster, take_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.flagrollout import Metric, Webhook
    from controller.api.meta import ObjectKey, Resource
    from controller.rollouts.rollout_ports import HookCall, MeasuredStep
    from controller.runtime.cache import Applier
    from controller.runtime.loop import Reconciler
    from evaluator.flags.model import FlagSet

NOW: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SPEC: Final[dict[str, Any]] = {
    "flagSetRef": {"name": "checkout"},
    "flags": ["pay*"],
    "steps": [{"share": 10, "minDuration": "10m"}, {"share": 50, "minDuration": "10m"}],
}
_TURNS: Final = 200


class KilledError(Exception):
    """The controller was killed."""


class DyingCluster(RecordingCluster):
    """Kills whoever writes once too often."""

    writes_left: int | None = None

    def _write(self, what: str) -> None:
        if self.writes_left == 0:
            raise KilledError(what)
        if self.writes_left is not None:
            self.writes_left -= 1
        super()._write(what)


@dataclass
class Answers:
    """Metrics and webhooks: each says what it is told to."""

    verdict: str = "Pass"
    hooks: dict[str, str] = field(default_factory=dict)
    steps: list[MeasuredStep] = field(default_factory=list)
    calls: list[HookCall] = field(default_factory=list)

    async def measure(
        self,
        step: MeasuredStep,
        metrics: Sequence[Metric],
        before: Sequence[MetricStatus],
        now: datetime,
        seconds: float,
    ) -> tuple[MetricStatus, ...]:
        del before, now, seconds
        self.steps.append(step)
        fields = {"verdict": self.verdict, "value": 0.5}
        return tuple(MetricStatus.model_validate({"name": metric.name, **fields}) for metric in metrics)

    async def ask(self, hook: Webhook, call: HookCall) -> HookAnswer:
        self.calls.append(call)
        verdict = self.hooks.get(hook.name, "Pass")
        return HookAnswer(verdict, f"it answers {verdict}")  # type: ignore[arg-type] # one of the three


def definition(variant: str = "off", **more: Any) -> dict[str, Any]:
    """A flag whose default variant says which commit it is of."""
    return flag(variant, **{"variants": {"off": "off", "on": "on", "new": "new"}, **more})


@dataclass
class ClusterWorld:
    """The FeatureFlagConfiguration `checkout` and FlagRollouts for it."""

    cluster: DyingCluster = field(default_factory=lambda: DyingCluster([ROLLOUTS, CONFIGURATIONS]))
    answers: Answers = field(default_factory=Answers)
    now: datetime = NOW
    said: list[str] = field(default_factory=list)
    """The Events, in order."""
    shard: Shard = WHOLE
    """What the controller selects."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new controller: it knows what is in the cluster."""
        objects = self.cluster.objects
        self.reconcilers: dict[str, Reconciler] = {
            "FlagRollout": FlagRolloutReconciler(
                objects, self._writer, self.answers, self.answers, shard=self.shard
            ),
            "FeatureFlagConfiguration": ConfigurationReconciler(
                objects,
                ClaimIndex(),
                remote=RemoteProviders(objects, {}, RemoteShards(objects, self._writer)),
            ),
        }
        self.due: dict[ObjectKey, datetime] = {}

    def _writer(self, namespace: str, account: str | None = None) -> Applier:
        assert (namespace, account) == (NAMESPACE, None)
        return self.cluster

    # -- what people do

    def commit(self, flags: Any, revision: str = "main@sha1:1") -> None:
        self.commit_document({"flags": flags, "metadata": {"flagstaff.dev/revision": revision}})

    def commit_document(self, document: dict[str, Any]) -> None:
        self.cluster.put(manifest("FeatureFlagConfiguration", "checkout", {"flagSpec": document}))

    def rollout(
        self, name: str = "pay", created: str = "2026-01-01T00:00:00Z", labels: Any = None, **spec: Any
    ) -> None:
        meta = {"creationTimestamp": created, "labels": labels or {}}
        self.cluster.put(manifest("FlagRollout", name, {**SPEC, **spec}, **meta))

    def annotate(self, **annotations: str) -> None:
        body = manifest_of(self.cluster.the("FlagRollout", "pay"))
        named = {f"flagstaff.dev/rollout-{name}": value for name, value in annotations.items()}
        body["metadata"]["annotations"] |= named
        self.cluster.put(body)

    # -- what the controller does

    async def turn(self) -> bool:
        """Reconcile each object once, as at the start; whether anything was written."""
        before = len(self.cluster.writes)
        self.due.clear()
        for kind, reconciler in self.reconcilers.items():
            for resource in sorted(self.cluster.objects.of_kind(kind), key=lambda one: one.name):
                await self._reconcile(reconciler, resource)
        return len(self.cluster.writes) > before

    async def _reconcile(self, reconciler: Reconciler, resource: Resource) -> None:
        if resource.deleting or not is_worked_on(reconciler, resource):
            return
        turn = await take_turn(reconciler, resource, self.now)
        if turn.status_written:
            self.said += turn.said
            await self.cluster.write_status(resource, turn.settled.status)
        if turn.settled.requeue_after is not None:
            self.due[resource.key] = self.now + timedelta(seconds=turn.settled.requeue_after)

    async def settle(self) -> None:
        """Until nothing is written any more."""
        for _ in range(_TURNS):
            if not await self.turn():
                return
        raise AssertionError("it writes without end")

    async def wait(self, seconds: float) -> None:
        """Let time pass, and reconcile when it is due."""
        await self.settle()
        end = self.now + timedelta(seconds=seconds)
        while self.due and (moment := min(self.due.values())) <= end:
            self.now = max(self.now, moment)
            await self.settle()
        self.now = end
        await self.settle()

    # -- what is so

    def status(self, name: str = "pay") -> FlagRolloutStatus:
        return FlagRolloutStatus.of(self.cluster.the("FlagRollout", name))

    def candidate(self, key: str = "pay", name: str = "pay") -> CandidateStatus:
        """The candidate with a flag."""
        (candidate,) = [one for one in self.status(name).candidates if key in one.flags]
        return candidate

    def override(self, variant: str, name: str = "stop", minutes: int = 60, **spec: Any) -> None:
        """A FlagOverride, of the flag pay unless the spec names another."""
        expires = (self.now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        given = {
            "flagSetRef": {"name": "checkout"}, "flag": "pay", "variant": variant, "reason": "INC-4711",
            "expiresAt": expires, **spec,
        }  # fmt: skip
        self.cluster.put(manifest("FlagOverride", name, given))

    @property
    def target(self) -> Resource:
        return self.cluster.the("FeatureFlagConfiguration", "checkout")

    @property
    def shards(self) -> list[str]:
        return self.cluster.names("FlagShard")

    def delivered_flags(self) -> FlagSet:
        """What evaluators are sent."""
        objects = self.cluster.objects
        progress = progress_of(objects, self.target, self.now.timestamp(), PromotedSets(objects.get))
        assert not progress.missing
        part = flagshard.finder(objects.get, NAMESPACE)
        return delivery_of(self.target, part, progress).flag_set

    def users(self, key: str = "pay", count: int = 200) -> dict[str, int]:
        """How many users get each variant of a flag."""
        compiled, now = compile_flag_set(self.delivered_flags()), int(self.now.timestamp())
        counts: dict[str, int] = {}
        for number in range(count):
            context = {"targetingKey": f"user-{number}"}
            variant = resolve(compiled, key, None, context, now).variant or "-"
            counts[variant] = counts.get(variant, 0) + 1
        return counts
