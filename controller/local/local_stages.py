"""A cluster's reconcilers, loops and watches over objects in memory, for one source, one flag set, and the
FlagRollouts of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from controller.api import featureflagconfiguration, flagrollout, flagset, flagshard, flagsource
from controller.api.flagsource import FlagSourceStatus
from controller.api.status import FALSE, READY, Status
from controller.artifacts.archive import take_skipped, unpack
from controller.artifacts.storage import Storages
from controller.configurations.reconciler import ConfigurationReconciler
from controller.configurations.stage import CONFIGURATIONS
from controller.delivery.actions import in_file
from controller.delivery.claims import ClaimIndex
from controller.flagsets.applied import LastDelivered, last_applied
from controller.flagsets.build import Built, build
from controller.flagsets.compose import bulk_removal
from controller.flagsets.inputs import AGE, InputReader
from controller.flagsets.pgp import one_process
from controller.flagsets.reconciler import FlagSetReconciler
from controller.flagsets.stage import FLAG_SETS
from controller.local.commits import open_backend
from controller.local.local_events import (
    OverridesChanged,
    RevisionBuilt,
    RolloutFilesRead,
    RolloutHappened,
    RolloutNews,
    SourceChecked,
    explain_build,
)
from controller.local.local_fleet import FleetTokens, LocalFleet
from controller.local.local_objects import FLAG_SET, SOURCE, flag_set, flag_source
from controller.local.local_progress import apply_progress
from controller.local.state import AppliedFile
from controller.local.worktree import WorkingTree, needed_sets
from controller.runtime.cache import Cache, MemoryCluster, manifest_of
from controller.runtime.clock import now
from controller.runtime.loop import Loop, Outputs, Reconciler
from controller.runtime.queue import KeyedQueue
from controller.runtime.setbacks import Failed, Setback, Waiting
from controller.runtime.temporary import sweep_temporary
from controller.runtime.watches import Dispatcher, indexes_of
from controller.sources.backend import BackendFactory, FetchRequest, LocalBackend, SourceBackend
from controller.sources.freshness import PendingPushes
from controller.sources.reconciler import SourceReconciler
from controller.sources.stage import FLAG_SOURCES
from evaluator.flags.model import DIGEST_KEY, FlagSet
from evaluator.flags.problems import Problem, Severity
from evaluator.flags.saved import Saved

if TYPE_CHECKING:
    from pathlib import Path

    from controller.api.artifact_status import ArtifactStatus
    from controller.api.flagset import FlagSetSpec
    from controller.api.meta import ObjectKey, Resource
    from controller.authoring.policies import Circumstances
    from controller.flagsets.preparation import Steps
    from controller.local.local_options import LocalOptions
    from controller.local.local_rollouts import LocalRollouts


@dataclass(frozen=True, slots=True)
class OneSource(BackendFactory[object]):
    """Opens the source of the command line; it reads no spec."""

    provider: SourceBackend

    async def open(self, spec: object, request: FetchRequest) -> SourceBackend:
        """The source."""
        del spec, request
        return self.provider

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class StoredArtifacts:
    """Reads artifacts from the store beside us. Implements `Artifacts`."""

    storages: Storages

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """The archive. Raises Waiting where it is gone: the source's next reconcile makes a new one."""
        archive = await asyncio.to_thread(self.storages.read, artifact.path)
        if archive is None:
            raise Waiting("ArtifactFailed", f"the artifact of {artifact.revision} in {namespace} is gone")
        return archive


log = logging.getLogger(__name__)

STAGES: Final = (FLAG_SOURCES, FLAG_SETS, CONFIGURATIONS)

Serve = Callable[["FlagSet", str], Awaitable[None]]
"""Called with each flag set that is applied, and its digest."""
Growing = Callable[[], contextlib.AbstractContextManager[None]]


class LocalStages:
    """One FlagSource and one FlagSet, made from a command line, and their status."""

    def __init__(
        self, options: LocalOptions, source: LocalBackend, folder: Path, pause_gc: Growing, serve: Serve
    ) -> None:
        """`pause_gc` is entered while a set is built. Raises Stalled for options that no object may have."""
        self.source = source
        self._options = options
        self._serve = serve
        self.storages = Storages(folder / "artifacts", "http://localhost")
        self._flag_source = flag_source(source)
        self._flag_set = flag_set(options)
        self._pause_gc = pause_gc
        self._age_keys = options.age_keys.encode()
        self._rollout_files = options.rollout_files
        self._file = AppliedFile(folder) if options.state_dir is not None else None
        self._unsaved = False
        self._built: RevisionBuilt | None = None
        self._desired: tuple[FlagSet, str] | None = None
        """What is applied, and its digest."""
        self._unreported: RevisionBuilt | None = None
        self._happened: asyncio.Queue[RevisionBuilt | RolloutNews | ObjectKey] = asyncio.Queue()
        self._serving = asyncio.Lock()
        rollouts = _rollouts_of(options)
        stages = STAGES if rollouts is None else (*STAGES, *rollouts.stages)
        self.objects = Cache(indexes_of(stages))
        self._cluster = MemoryCluster(self.objects, self._serve_applied)
        tokens = None if options.tokens is None else FleetTokens(options.tokens)
        self.fleet = LocalFleet(self.objects, self._cluster, tokens)
        self.rollouts = (
            None
            if rollouts is None
            else rollouts(options.rollouts, self.objects, self._cluster, self.fleet.target)
        )
        reconcilers = self._reconcilers(options)
        sinks, also = ((), ()) if self.rollouts is None else ((self.rollouts,), (self.rollouts.on_change,))
        clock, outputs = asyncio.get_running_loop().time, Outputs(self._cluster, self, sinks)
        self._loops = {
            kind: Loop(reconciler, self.objects, outputs, now=now, queue=KeyedQueue(clock, random.random))
            for kind, reconciler in reconcilers.items()
        }
        # It follows the objects, and wakes the loops.
        Dispatcher(self.objects, stages, self._loops, also)

    def _reconcilers(self, options: LocalOptions) -> dict[str, Reconciler]:
        """By kind."""
        source = self.source
        reconcilers: dict[str, Reconciler] = {
            flagsource.KIND: SourceReconciler(
                dict.fromkeys(source.spec, OneSource(source)), self.storages, PendingPushes(), random.random
            ),
            flagset.KIND: FlagSetReconciler(
                self.objects,
                StoredArtifacts(self.storages),
                lambda _namespace, _account: self._cluster,
                random.random,
                options.provenance,
                InputReader(self._keys),
                build=self._build_aside,
                advise=in_file,
            ),
            featureflagconfiguration.KIND: ConfigurationReconciler(
                self.objects, ClaimIndex(), self.fleet.proxies
            ),
        }
        if self.rollouts is not None:
            reconcilers |= self.rollouts.reconcilers()
        return reconcilers

    async def restore(self) -> Saved | None:
        """Read back the objects that an earlier process applied, if it kept any."""
        kept = None if self._file is None else await asyncio.to_thread(self._file.load)
        if kept is None:
            return None
        for manifest in kept.objects:
            resource = self._cluster.put(manifest)
            await self._cluster.write_status(resource, manifest.get("status") or {})
        if self.rollouts is not None:
            self.rollouts.put()
        written = self.objects.of_kind(featureflagconfiguration.KIND)
        last = await asyncio.to_thread(last_applied, written, self.objects)
        if last is not None and not last.edited:
            self._desired = last.flag_set, str(last.flag_set.metadata.get(DIGEST_KEY) or "")
            served, digest = await self._apply_progress(*self._desired)
            self.fleet.serve(digest, served.revision or "")
            await self.fleet.await_members()
            return Saved(served, kept.saved_at)
        log.error("what was kept of %s is not what was applied; it is not served", self.source.display_name)
        for applied in (*written, *self.objects.of_kind(flagshard.KIND)):
            self.objects.forget(applied.key)
        return None

    async def run(self) -> None:
        """Reconcile until cancelled, whenever something changes."""
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(loop.run())
            group.create_task(self.fleet.run())
            if self.rollouts is not None:
                self.rollouts.put()
                self.rollouts.report_files()
                group.create_task(self.rollouts.follow(self._serve_step, self._happened.put_nowait))
                if self._rollout_files is not None:
                    group.create_task(self._rollout_files.follow(self.rollouts))
            self._cluster.put(self._flag_set)
            async for _ in self.source.changes():
                if self.objects.get(SOURCE) is None:
                    self._cluster.put(self._flag_source)
                else:
                    self._loops[flagsource.KIND].wake(SOURCE)

    async def events(self) -> AsyncIterator[RevisionBuilt | RolloutNews | SourceChecked]:
        """The events in their order; a revision, a step or a change of the files of --rollout that is
        reported is served already.
        """
        while True:
            happened = await self._happened.get()
            if isinstance(happened, RevisionBuilt):
                status = FlagSourceStatus.of(self.objects.get(SOURCE))
                yield await explain_build(happened, self.source, status.artifact, self._options.paths)
            elif isinstance(happened, RolloutHappened | RolloutFilesRead | OverridesChanged):
                yield happened
            else:
                yield self._last_check(happened)
                await self._save()

    def count_reconcile(self, key: ObjectKey, result: str, seconds: float) -> None:
        """Implements the loop's `Observer`."""
        del seconds
        if key == FLAG_SET and self._unreported is not None:
            self._report_revision()
        elif key == SOURCE or (key == FLAG_SET and result == "failed"):
            self._happened.put_nowait(key)

    async def _keys(self, namespace: str, name: str, account: str | None) -> Mapping[str, bytes]:
        """Return the content of a Secret of the FlagSet."""
        del account
        return {f"{namespace}.{name}{AGE}": self._age_keys}

    def _last_check(self, key: ObjectKey) -> SourceChecked:
        """What the object's status says; it was written before anybody could ask."""
        ready = Status.of(self.objects.get(key)).condition(READY)
        return SourceChecked(ready.reason, ready.message) if ready.status == FALSE else SourceChecked()

    async def _build_aside(self, *arguments: Any) -> Built:
        return await asyncio.to_thread(self._build, *arguments)

    def _needed(self, archive: bytes) -> tuple[FlagSet, ...]:
        if not self._options.depends_on:
            return ()
        files = unpack(archive)
        return needed_sets(WorkingTree(files, take_skipped(files)), self._options)

    def _build(  # noqa: PLR0913, PLR0917 - as the reconciler calls it
        self,
        archive: bytes,
        spec: FlagSetSpec,
        artifact: ArtifactStatus,
        resource: Resource,
        last: LastDelivered | None,
        steps: Steps,
        _others: Sequence[FlagSet],
        around: Circumstances,
    ) -> Built:
        with self._pause_gc(), one_process():
            needed = self._needed(archive)
            # The only set of a process needs no name that distinguishes it from others.
            built = build(archive, spec, artifact, resource, last, steps, needed, around, named=False)
        made = built.composition
        if built.too_large:
            problem = Problem("", 0, 0, Severity.ERROR, "too-large", built.too_large)
            made = replace(made, problems=(*made.problems, problem))
        removal = built.removal
        if removal is None and last is not None and made.accepted:
            removal = bulk_removal(last.flag_set, made.flag_set)
        revision = RevisionBuilt(artifact.revision, made, bool(built.manifests), removal)
        if self._built is None or self._built.revision != revision.revision:
            self._unreported = revision
        self._built = revision
        return built

    async def _serve_applied(self, resource: Resource) -> None:
        """Keep and serve what a FeatureFlagConfiguration delivers: it is written last, after its shards."""
        built = self._built
        if resource.key.kind != featureflagconfiguration.KIND or built is None:
            return
        # One after the other: a revision is reported before the first step of its rollout.
        async with self._serving:
            self._unsaved = True
            await self._save()
            # The object holds the set that was built just now: it need not be parsed again.
            self._desired = built.composition.flag_set, built.composition.digest
            await self._serve_desired()
            self._report_revision()

    async def _serve_step(self) -> None:
        async with self._serving:
            self._unsaved = True
            await self._save()
            await self._serve_desired()

    async def _serve_desired(self) -> None:
        """Serve what is applied, as far as it is rolled out."""
        if self._desired is None:
            return
        served, digest = await self._apply_progress(*self._desired)
        await self._serve(served, digest)
        self.fleet.serve(digest, served.revision or "")

    def _report_revision(self) -> None:
        if self._unreported is not None:
            self._happened.put_nowait(self._unreported)
            self._unreported = None

    async def _apply_progress(self, flag_set: FlagSet, digest: str) -> tuple[FlagSet, str]:
        if self.rollouts is None:
            return flag_set, digest
        progress = self.rollouts.progress(now())
        served, known = await asyncio.to_thread(apply_progress, flag_set, digest, progress)
        return served, known or ""

    async def _save(self) -> None:
        """Keep what is applied; a disk that refuses is asked again at the next look."""
        if self._file is None or not self._unsaved:
            return
        kinds = (flagshard.KIND, featureflagconfiguration.KIND)
        objects = [manifest_of(resource) for kind in kinds for resource in self.objects.of_kind(kind)]
        rollouts = self.objects.of_kind(flagrollout.KIND)
        # How far they are is nowhere else.
        objects += [{**manifest_of(rollout), "status": dict(rollout.status)} for rollout in rollouts]
        try:
            await asyncio.to_thread(self._file.save, objects, now())
        except Setback as setback:
            log.warning("the last good flag set was not saved: %s", setback.message)
        else:
            self._unsaved = False


def _rollouts_of(options: LocalOptions) -> type[LocalRollouts] | None:
    if not options.rollouts:
        return None
    # Imported here: without rollouts, local mode needs no client of HTTP.
    from controller.local.local_rollouts import LocalRollouts  # noqa: PLC0415 - see above

    return LocalRollouts


async def _serve_nothing(_flag_set: FlagSet, _digest: str) -> None:
    """Serves nothing."""


@contextlib.asynccontextmanager
async def stages_of(
    options: LocalOptions, source: LocalBackend, folder: Path, pause_gc: Growing, serve: Serve
) -> AsyncIterator[LocalStages]:
    """The stages over a state folder. Raises Stalled."""
    # A process that was killed may have left files of a commit behind.
    await asyncio.to_thread(sweep_temporary)
    stages = LocalStages(options, source, folder, pause_gc, serve)
    # Results of reconciles are reported as events.
    results = logging.getLogger(Loop.__module__)
    level = results.level
    results.setLevel(logging.ERROR)
    try:
        yield stages
    finally:
        results.setLevel(level)
        if stages.rollouts is not None:
            await stages.rollouts.close()
        await asyncio.to_thread(stages.storages.close)


@contextlib.asynccontextmanager
async def open_stages(options: LocalOptions) -> AsyncIterator[LocalStages]:
    """The same for the source that the options name; nothing is served. Raises Setback."""
    async with (
        open_backend(options) as (source, folder),
        stages_of(options, source, folder, contextlib.nullcontext, _serve_nothing) as stages,
    ):
        yield stages


async def build_once(options: LocalOptions) -> RevisionBuilt:
    """What the source is at, without serving it. Raises Setback where the source cannot be read."""
    async with open_stages(replace(options, rollouts=())) as stages:
        await stages.restore()
        running = asyncio.create_task(stages.run())
        try:
            async for event in stages.events():
                if isinstance(event, RevisionBuilt):
                    return event
                if isinstance(event, SourceChecked) and event.reason:
                    raise Failed(event.reason, event.message)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    raise RuntimeError("events do not end")
