"""`flagstaff up --follow`: serves what another `flagstaff up` serves, and shows who follows this one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from controller.api import featureflagconfiguration, flagset, flagshard, flagsource
from controller.api.meta import API_VERSION
from controller.api.status import FALSE, READY, TRUE
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.claims import ClaimIndex
from controller.delivery.delivered import TooLargeError
from controller.flagsets.build import RenderTarget, configuration_manifests
from controller.local.local_events import LeaderServes, LocalEvent, SourceChecked
from controller.local.local_fleet import FleetTokens, LocalFleet
from controller.local.local_mode import page_additions
from controller.local.local_objects import FLAG_SET, NAME, NAMESPACE
from controller.local.local_options import LocalOptions
from controller.local.local_page import LocalPage
from controller.proxy.receipt_service import fleet
from controller.runtime.cache import Cache, MemoryCluster
from controller.runtime.clock import now, unix_time
from controller.runtime.loop import Loop, Outputs
from controller.runtime.queue import KeyedQueue
from controller.runtime.watches import Dispatcher, indexes_of
from evaluator.flags.model import DIGEST_KEY, FlagSet
from evaluator.host.signals import run_together
from evaluator.host.times import timestamp
from evaluator.settings import InvalidSettingError, Settings, parse_servers
from evaluator.sync.follower import NOT_READ
from evaluator.wiring import FollowedSources, Ports, follow_sources, lock_state, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from controller.api.meta import ObjectKey
    from evaluator.sync.config import SourceConfig

log = logging.getLogger(__name__)

_ONE_ADDRESS: Final = (
    "--follow: write grpc://HOST:PORT or grpcs://HOST:PORT with the sync port of a `flagstaff up`, or one "
    "source of provider grpc as --sources of an evaluator has it"
)
_LOOK: Final = 1.0
"""Seconds between two looks at why the leader is away: nobody is notified of another reason."""
_CUT_OFF: Final = "LeaderUnreachable"


def leader_of(text: str) -> SourceConfig:
    """The source that `--follow` names. Raises InvalidSettingError."""
    unknown: list[str] = []
    sources = parse_servers(text, "--follow", unknown)
    if unknown:
        raise InvalidSettingError(unknown[0])
    if len(sources) != 1 or sources[0].provider != "grpc" or sources[0].selector:
        raise InvalidSettingError(_ONE_ADDRESS)
    return sources[0]


@dataclass
class LocalFollower:
    """Serves what the leader serves, and keeps objects of it, as the stages of a leader do."""

    leader: SourceConfig
    followed: FollowedSources
    page: LocalPage
    fleet: LocalFleet
    cluster: MemoryCluster
    loop: Loop
    report: Callable[[LocalEvent], None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _shown: FlagSet | None = field(default=None, init=False)
    _cut_off: str | None = field(default=None, init=False)
    """Why and since when the leader is away; empty: it is there; None: that was not reported yet."""

    @property
    def display_name(self) -> str:
        """Whom this process follows, for people."""
        return f"following {self.leader.name}"

    async def run(self) -> None:
        """Follow until cancelled. Raises what `report` raises."""
        await run_together(
            self.followed.run(), self.loop.run(), self.fleet.run(), self.page.run(), self._show()
        )

    def change(self, _: object) -> None:
        """Another set is served, or the leader went away or came back."""
        self._changed.set()

    async def _show(self) -> None:
        store = self.followed.store
        while True:
            await self._show_leader()
            flag_set = store.catalog.of_source(self.leader.name)
            if flag_set is not None and flag_set is not self._shown:
                digest = store.catalog.digest_of(self.leader.name) or ""
                await self._show_set(flag_set, str(flag_set.metadata.get(DIGEST_KEY) or digest))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._changed.wait()
            self._changed.clear()

    async def _show_set(self, flag_set: FlagSet, digest: str) -> None:
        revision = flag_set.revision or ""
        await self._put_flag_set(revision, digest, len(flag_set.flags))
        owner = {"apiVersion": API_VERSION, "kind": FLAG_SET.kind, "name": NAME, "uid": FLAG_SET.kind}
        target = RenderTarget(NAMESPACE, NAME, NAME, owner)
        try:
            manifests = await asyncio.to_thread(configuration_manifests, flag_set, target, sys.maxsize)
        except TooLargeError as error:
            log.warning("who serves the flags cannot be counted: %s", error)
            manifests = []
        written = {self.cluster.put(manifest).key for manifest in manifests}
        for shard in self.cluster.objects.of_kind(flagshard.KIND):
            if shard.key not in written:
                self.cluster.objects.forget(shard.key)
        self.page.define(flag_set, ())
        self.page.change()
        self.fleet.serve(digest, revision)
        self._shown = flag_set
        self.report(LeaderServes(revision, digest, len(flag_set.flags)))

    async def _show_leader(self) -> None:
        """Say on the page and in an event whether the leader is away, and since when."""
        health, cut_off = self.followed.store.health(self.leader.name), ""
        if health.stale is not None:
            if health.stale.cause == NOT_READ:
                return
            cut_off = f"cut off from {self.leader.name} since {health.stale_since}: {health.stale.reason}"
        if cut_off == self._cut_off:
            return
        before, self._cut_off = self._cut_off, cut_off
        self.page.change()
        self.page.follows = cut_off or self.display_name
        await self._put_source(cut_off)
        if cut_off and not before:
            self.report(SourceChecked(_CUT_OFF, cut_off))
        elif before and not cut_off:
            self.report(SourceChecked(message=f"{self.display_name} again"))

    async def _put_source(self, cut_off: str) -> None:
        manifest = _object(flagsource.KIND, self.leader.name, {"url": f"grpc://{self.leader.name}"})
        reason = _CUT_OFF if cut_off else "Succeeded"
        status = _status(reason, cut_off or self.display_name, ready=not cut_off)
        await self.cluster.write_status(self.cluster.put(manifest), status)

    async def _put_flag_set(self, revision: str, digest: str, flags: int) -> None:
        source = {"kind": flagsource.KIND, "name": self.leader.name}
        resource = self.cluster.put(_object(flagset.KIND, NAME, {"sourceRef": source}))
        entry = {"revision": revision, "digest": digest, "appliedAt": timestamp(now())}
        status = {
            **_status("Succeeded", f"served as {self.leader.name} serves it", ready=True),
            "lastAppliedRevision": revision,
            "lastAttemptedRevision": revision,
            "lastGoodRevision": revision,
            "digest": digest,
            "flags": flags,
            "history": [entry],
        }
        await self.cluster.write_status(resource, status)


def _object(kind: str, name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"namespace": NAMESPACE, "name": name, "uid": kind}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _status(reason: str, message: str, *, ready: bool) -> dict[str, object]:
    condition = {
        "type": READY,
        "status": TRUE if ready else FALSE,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now()),
    }
    return {"observedGeneration": 1, "conditions": [condition]}


class _Uncounted:
    """Implements the loop's `Observer`: what it does is shown by its objects."""

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None:
        """Count nothing."""


@contextlib.asynccontextmanager
async def open_follower(
    leader: SourceConfig, tokens: Path | None, settings: Settings, report: Callable[[LocalEvent], None]
) -> AsyncIterator[tuple[LocalFollower, Ports]]:
    """Ports open, with the last good set of the settings' state folder served; run the LocalFollower to
    follow. Raises Stalled for tokens, OSError for a port or a folder in use, InvalidSettingError.
    """
    settings = replace(settings, sources=(leader,), receipts_to=())
    with lock_state(settings.state_dir):
        followed = await follow_sources(settings, unix_time)
        store, objects = followed.store, Cache(indexes_of((CONFIGURATIONS,)))
        cluster = MemoryCluster(objects)
        counted = LocalFleet(objects, cluster, None if tokens is None else FleetTokens(tokens))
        loop = Loop(
            ConfigurationReconciler(objects, ClaimIndex(), counted.proxies),
            objects,
            Outputs(cluster, _Uncounted()),
            now=now,
            queue=KeyedQueue(asyncio.get_running_loop().time, random.random),
        )
        page = LocalPage(LocalOptions(leader.name), None)
        page.stages, page.fleet = objects, partial(fleet, counted.receipts)
        follower = LocalFollower(leader, followed, page, counted, cluster, loop, report)
        page.follows = follower.display_name
        Dispatcher(objects, (CONFIGURATIONS,), {featureflagconfiguration.KIND: loop})
        objects.react(page.show_change)
        store.subscribe(lambda snapshot: page.serve(snapshot.compiled))
        store.subscribe(follower.change, follower.change)
        if store.snapshot is not None:
            page.serve(store.snapshot.compiled)
            await counted.await_members()
        additions = replace(page_additions(page, counted), saving=followed.followers.keepers)
        serving = await serve(
            store, settings, context=store.context, history=followed.history, additions=additions
        )
        try:
            yield follower, serving.ports
        finally:
            await serving.stop()
