"""The reconcilers of FlagRollout and FlagOverride over objects in memory."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagoverride, flagrollout
from controller.api.meta import ObjectKey, Resource
from controller.delivery.actions import in_file
from controller.delivery.progress_words import ENDED, STARTED
from controller.delivery.rollouts import PromotedSets, progress_of
from controller.local.local_events import OverridesChanged, RolloutFilesRead, RolloutHappened, RolloutNews
from controller.local.local_objects import KINDS, rollout_objects, secrets_of
from controller.rollouts.metric_checks import MetricChecks
from controller.rollouts.metric_servers import AllowedServers, WebhookCalls
from controller.rollouts.override_reconciler import FlagOverrideReconciler
from controller.rollouts.rollout_reconciler import FlagRolloutReconciler
from controller.rollouts.stage import FLAG_OVERRIDES, ROLLOUTS
from controller.runtime.event import Event, EventType
from controller.runtime.http_client import HttpClient
from evaluator.flags.accept import NO_PROGRESS, Progress
from evaluator.flags.rollouts import ROLLOUT_CANDIDATE_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from controller.runtime.cache import Cache, Change, MemoryCluster
    from controller.runtime.loop import Reconciler

log = logging.getLogger(__name__)


class LocalRollouts:
    """The FlagRollouts and FlagOverrides of files, and all that they need of a cluster."""

    stages: Final = (ROLLOUTS, FLAG_OVERRIDES)

    def __init__(
        self,
        manifests: Iterable[Mapping[str, Any]],
        objects: Cache,
        cluster: MemoryCluster,
        target: Callable[[], Resource | None],
    ) -> None:
        """`target` returns the object that delivers the flag set. Raises Stalled for manifests that cannot be
        used.
        """
        self._objects = objects
        self._cluster = cluster
        self._target = target
        manifests = [*manifests]
        self._manifests, self._secrets = rollout_objects(manifests), secrets_of(manifests)
        self._refused = ""
        """Why the files are not applied as they are now."""
        # The file's author names servers of this machine; nobody else can.
        self._client = HttpClient(None)
        self._promoted = PromotedSets(objects.get)
        self._progressed = asyncio.Event()
        self._unserved: list[RolloutNews] = []
        """What is reported once it is served."""

    def reconcilers(self) -> dict[str, Reconciler]:
        """The reconcilers of `stages`, by kind."""
        objects, servers = self._objects, AllowedServers(self._client, self._read_secret, allow_local=True)
        checks, hooks = MetricChecks(objects, servers), WebhookCalls(servers)
        return {
            flagrollout.KIND: FlagRolloutReconciler(objects, lambda _: self._cluster, checks, hooks, in_file),
            flagoverride.KIND: FlagOverrideReconciler(objects),
        }

    def put(self) -> None:
        """Write the objects of the files; remove those that the files do not have."""
        keys = {ObjectKey.of(manifest) for manifest in self._manifests}
        for kind in KINDS:
            for resource in self._objects.of_kind(kind.kind):
                if resource.key not in keys:
                    self._objects.forget(resource.key)
        for manifest in self._manifests:
            self._cluster.put(manifest)

    def replace(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Apply what the files say now. Raises Stalled for manifests that cannot be used; then the earlier
        ones stay.
        """
        objects, secrets = rollout_objects(manifests), secrets_of(manifests)
        if self._refused or (objects, secrets) != (self._manifests, self._secrets):
            self._manifests, self._secrets, self._refused = objects, secrets, ""
            self.put()
            self.report_files()

    def refuse(self, message: str) -> None:
        """Report why what the files say now is not applied."""
        if message != self._refused:
            self._refused = message
            self._report(RolloutFilesRead(message))

    def report_files(self) -> None:
        """Report what the files have, once it is served."""
        rollouts, overrides = (
            tuple(one["metadata"]["name"] for one in self._manifests if one["kind"] == kind)
            for kind in (flagrollout.KIND, flagoverride.KIND)
        )
        self._report(RolloutFilesRead("", rollouts, overrides))

    def _report(self, happened: RolloutNews) -> None:
        self._unserved.append(happened)
        self._progressed.set()

    def on_change(self, change: Change) -> Iterable[ObjectKey]:
        """Follow the FlagRollouts, and the FlagOverrides, whose end is in their status. Wakes nothing."""
        if change.latest.key.kind in (flagrollout.KIND, flagoverride.KIND):
            self._progressed.set()
        return ()

    def accept(self, event: Event) -> None:
        """Implements `EventSink`: reports what happens to FlagRollouts, and which overrides take effect or
        end; logs what is wrong with a FlagOverride.
        """
        warning = event.severity is EventType.WARNING
        if event.object.kind == flagrollout.KIND:
            candidate = event.metadata.get(ROLLOUT_CANDIDATE_KEY, "")
            self._unserved.append(
                RolloutHappened(event.object.name, event.reason, event.message, warning, candidate)
            )
        elif event.object.kind == featureflagconfiguration.KIND and event.reason in {STARTED, ENDED}:
            self._report(OverridesChanged(event.message, active=event.reason == STARTED))
        elif event.object.kind == flagoverride.KIND and warning and self._target() is not None:
            log.warning("FlagOverride %s: %s: %s", event.object.name, event.reason, event.message)

    async def follow(
        self, serve: Callable[[], Awaitable[None]], report: Callable[[RolloutNews], None]
    ) -> None:
        """Have each step and each override served, then report what happened. Never ends."""
        while True:
            await self._progressed.wait()
            self._progressed.clear()
            # Without what happens while this is served.
            happened, self._unserved = self._unserved, []
            await serve()
            for occurrence in happened:
                report(occurrence)

    async def _read_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        del namespace
        return self._secrets.get(name)

    def progress(self, at: datetime) -> Progress:
        """How far changes are rolled out, and what overrides are in force."""
        target = self._target()
        if target is None:
            return NO_PROGRESS
        return progress_of(self._objects, target, at.timestamp(), self._promoted)

    async def close(self) -> None:
        """Close connections to metric servers."""
        await self._client.close()
