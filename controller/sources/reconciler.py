"""FlagSource: resolve the reference, fetch what is new into quarantine, verify it, archive and export it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.artifact_status import ArtifactStatus, SourceStatus
from controller.api.flagsource import KIND, FlagSourceSpec, FlagSourceStatus
from controller.api.meta import API_VERSION, ObjectKey, Resource
from controller.api.records import FLUX
from controller.api.status import READY, TRUE, Condition, condition_json
from controller.artifacts.archive import DEFAULT_LIMITS, ArchiveLimits, pack, write_skipped
from controller.runtime.cache import Applier, Cache, at_version
from controller.runtime.quotas import UNLIMITED, Quota
from controller.runtime.result import Done, Result, spec_of
from controller.runtime.setbacks import FULL, Failed, Setback, Stalled
from controller.runtime.shards import WHOLE, Shard
from controller.sources.backend import BackendFactory, FetchRequest
from controller.sources.freshness import Freshness, PendingPushes, PollSchedule
from controller.sources.include import Included, ReadArtifact, copy_included, find_included, read_artifact
from controller.sources.source_files import (
    IgnoredFiles,
    ignored_files,
    not_ignored,
    quarantine,
    remove_ignored,
)
from controller.sources.source_run import SourceRun
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.artifacts.storage import Storages


EXPORTED: Final = "ExternalArtifact"
LABEL: Final = "flagstaff.dev/flagsource"
_MANAGER: Final = "flagstaff-export"


class ExportWriter(Applier, Protocol):
    """Writes objects, and the status of one."""

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        """Make `status` the object's, and return it as it is now; None if it is gone. Raises Setback."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """Keeps an ExternalArtifact of the FlagSource's name beside it, written only where it differs."""

    objects: Cache
    writer: Callable[[str, str | None], ExportWriter]
    """Returns the writer with the rights of a namespace's service account."""
    shard: Shard = WHOLE
    """What is written gets its labels of the FlagSource."""

    async def publish(
        self, source: Resource, artifact: ArtifactStatus, account: str | None, now: datetime
    ) -> None:
        """Write `artifact` to its status. Raises Setback."""
        if source.deleting:
            return
        exported = self._find_exported(source)
        if exported is not None and not exported.is_owned_by(source):
            raise Stalled(
                "OwnershipConflict",
                f"{EXPORTED} {source.name} belongs to another; remove it, or rename the FlagSource",
            )
        labels = self.shard.labels_of(source.labels)
        manifest = _manifest(source, labels)
        writer = self.writer(source.namespace, account)
        if (
            exported is None
            or exported.spec != manifest["spec"]
            or self.shard.labels_of(exported.labels) != labels
        ):
            try:
                decided = at_version(manifest, "" if exported is None else exported.resource_version)
                body, _ = await writer.apply(decided, manager=_MANAGER)
            except Failed as failed:
                if failed.reason != "ApiServerFailed" or exported is not None:
                    raise
                message = f"{failed.message} (spec.export needs the kind {EXPORTED}, of Flux 2.7 or later)"
                raise Failed(failed.reason, message) from failed
            exported = Resource.of(body)
            self.objects.learn(exported)
        status = SourceStatus.of(exported)
        if status.artifact == artifact and status.conditions:
            return
        after = await writer.write_status(exported, _status(exported, artifact, now))
        if after is None:
            raise Failed("ApiServerFailed", f"{EXPORTED} {source.name} was removed meanwhile")
        self.objects.learn(after)

    async def remove(self, source: Resource, account: str | None) -> None:
        """Remove the ExternalArtifact if this source wrote it. Raises Setback."""
        exported = self._find_exported(source)
        if exported is None or exported.deleting or not exported.is_owned_by(source):
            return
        writer = self.writer(source.namespace, account)
        await writer.delete(
            FLUX, EXPORTED, source.namespace, source.name, uid=exported.uid, version=exported.resource_version
        )

    def _find_exported(self, source: Resource) -> Resource | None:
        return self.objects.get(ObjectKey(EXPORTED, source.namespace, source.name))


def _manifest(source: Resource, labels: Mapping[str, str]) -> dict[str, Any]:
    named = {"apiVersion": API_VERSION, "kind": KIND, "name": source.name}
    return {
        "apiVersion": FLUX,
        "kind": EXPORTED,
        "metadata": {
            "name": source.name,
            "namespace": source.namespace,
            "labels": {LABEL: source.name, **labels},
            "ownerReferences": [source.owner_reference | {"controller": True}],
        },
        "spec": {"sourceRef": {**named, "namespace": source.namespace}},
    }


def _status(exported: Resource, artifact: ArtifactStatus, now: datetime) -> dict[str, Any]:
    """Return a status that is ready: the FlagSource reports a later artifact that cannot be fetched."""
    ready = Condition(READY, TRUE, "Succeeded", f"stored artifact for revision {artifact.revision}")
    before, moment = SourceStatus.of(exported).condition(READY), timestamp(now)
    conditions = [condition_json(ready, before, generation=exported.generation, now=moment)]
    return {**exported.status, **SourceStatus(artifact=artifact).fields(), "conditions": conditions}


JITTER: Final = 0.05
"""Greatest random share of the interval, up or down: it spreads sources that were created together."""


@dataclass(frozen=True, slots=True)
class SourceReconciler:
    """Brings a FlagSource's artifact to what its source holds."""

    factories: Mapping[str, BackendFactory[Any]]
    """The factories by the field of the spec that configures their backends, such as `git`."""
    storages: Storages
    pending: PendingPushes
    random: Callable[[], float]
    """Returns a random number from 0 to 1."""
    schedule: PollSchedule = field(default_factory=PollSchedule)
    stored: Quota = UNLIMITED
    """Limits the bytes of artifacts."""
    exporter: Exporter | None = None
    """Writes artifacts for other readers; None: there are none."""
    objects: Cache = field(default_factory=Cache)
    """The sources that others include."""
    included: ArchiveLimits = DEFAULT_LIMITS
    """Limits of the files that one source includes, in all."""
    shard: Shard = WHOLE
    read: ReadArtifact | None = None
    """Reads the artifacts of included sources of other shards; None: there are none."""

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Resolve the reference, fetch and verify what is new, and archive, store and export it."""
        result = await self._reconcile(SourceRun(resource, now))
        if isinstance(result.outcome, Failed) and result.outcome.reason == FULL and await self._make_room():
            result = await self._reconcile(SourceRun(resource, now))
        try:
            await self._export(resource, result, now)
        except Setback as setback:
            if isinstance(result.outcome, Done):
                return replace(result, outcome=setback)
        return result

    def forget(self, key: ObjectKey) -> None:
        """A source's artifacts go with it."""
        self.schedule.forget(key)
        self.stored.forget(key)
        self.pending.forget(key)
        for factory in self.factories.values():
            factory.forget(key)
        self.storages.forget(key)

    async def _reconcile(self, run: SourceRun) -> Result:
        """The steps, in the order in which they fill `run`."""
        try:
            await asyncio.to_thread(self._find_stored, run)
            await self._open(run)
            run.includes = find_included(run.resource, run.spec, self.objects)
            retry = await self._resolve(run)
            if run.is_current and run.stored is not None:
                self.stored.require(run.resource, run.stored.size)
                run.artifact = run.stored
            else:
                await self._fetch_and_store(run)
        except Setback as setback:
            return run.failure(setback)
        run.path, run.url = self.storages.url(run.resource.key, run.artifact)
        next_poll = min(seconds for seconds in (retry, run.next_poll) if seconds is not None)
        self.schedule.set_due(run.resource.key, run.now + timedelta(seconds=next_poll))
        return run.success(next_poll)

    def _find_stored(self, run: SourceRun) -> None:
        """Find the artifact of the status in storage, unless it is damaged there. Blocks. Raises Setback."""
        run.storage = self.storages.of(run.resource.key)
        artifact = run.before.artifact
        stored = None if artifact is None else run.storage.find(artifact.digest)
        # What is gone or damaged is fetched again.
        with contextlib.suppress(Setback):
            if stored is not None:
                run.storage.require(stored)
                run.stored = stored

    async def _open(self, run: SourceRun) -> None:
        """Read the spec and its Secrets. Raises Setback."""
        resource = run.resource
        spec = run.spec = spec_of(FlagSourceSpec, resource)
        for name, factory in self.factories.items():
            if name != spec.provider:
                factory.forget(resource.key)
        freshness = self.schedule.freshness(resource, run.now)
        if self.pending.is_waiting(resource.key, run.now):
            freshness = Freshness(run.now, run.now)
        request = FetchRequest(resource.key, spec.timeout, freshness, spec.service_account_name, spec.verify)
        run.backend = await self.factories[spec.provider].open(getattr(spec, spec.provider), request)
        if spec.verify is not None and not run.backend.epoch:
            # A backend that verifies nothing must not pass for one that does.
            raise Stalled("InvalidSpec", f"spec.{spec.provider} is never verified; remove spec.verify")
        # What is wrong in a source may be corrected there without notice to us.
        run.next_poll = spec.interval * (1.0 + JITTER * (2.0 * self.random() - 1.0))

    async def _resolve(self, run: SourceRun) -> float | None:
        """Resolve the reference; return the seconds until a push is to be polled for. Raises Setback."""
        key, sure = run.resource.key, run.backend.shows_every_push
        try:
            run.revision = await run.backend.resolve()
        except Setback:
            self.pending.seconds_to_retry(key, "", run.now, sure=sure)
            raise
        digits = run.revision.digest.partition(":")[2]
        return self.pending.seconds_to_retry(key, digits, run.now, sure=sure)

    async def _fetch_and_store(self, run: SourceRun) -> None:
        """Fetch the revision into quarantine, verify, archive and store it. Raises Setback."""
        protected = run.protected_paths
        async with quarantine(f"the files of {run.revision}") as folder:
            run.fetched = await run.backend.fetch(run.revision, folder, run.last_accepted)
            ignored = await asyncio.to_thread(ignored_files, folder, run.spec.ignore, protected)
            left_out = await copy_included(
                folder, run.includes, self.storages, protected, self.included, self._read_elsewhere
            )
            skipped = (*run.fetched.skipped, *left_out)
            archive = await asyncio.to_thread(archive_of, folder, skipped, ignored)
        self.stored.require(run.resource, len(archive))
        with self.stored.release_on_error(run.resource.key):
            run.artifact = await asyncio.to_thread(
                run.storage.put, archive, revision=str(run.fetched.revision), metadata=run.fetched.metadata
            )

    async def _read_elsewhere(self, included: Included) -> bytes | None:
        if self.read is None or self.shard.owns(included.source):
            return None
        return await read_artifact(included, self.read)

    async def _make_room(self) -> bool:
        """Remove what is nice to have from a full volume; return whether there was anything."""
        removed = await asyncio.to_thread(self.storages.drop_history)
        return any([removed, *[await factory.make_room() for factory in self.factories.values()]])

    async def _export(self, resource: Resource, result: Result, now: datetime) -> None:
        if self.exporter is None:
            return
        spec = spec_of(FlagSourceSpec, resource)
        if not spec.export:
            await self.exporter.remove(resource, spec.service_account_name)
        elif isinstance(status := result.status, FlagSourceStatus) and status.artifact is not None:
            await self.exporter.publish(resource, status.artifact, spec.service_account_name, now)


def archive_of(folder: Path, skipped: tuple[str, ...], ignored: IgnoredFiles) -> bytes:
    """An archive of what is not ignored, with a note of the `skipped`. Blocks. Raises OSError."""
    remove_ignored(folder, ignored)
    write_skipped(folder, not_ignored(skipped, ignored))
    return pack(folder)


log = logging.getLogger(__name__)

SWEEP: Final = 3600.0
"""Seconds between two sweeps of what backends keep."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removes the files that deleted sources left on the disk."""

    cache: Cache
    keep: Callable[[Iterable[ObjectKey]], None]
    """Removes the artifacts of all but these sources. Blocks. Raises Setback."""
    sweeps: Collection[Callable[[datetime], Awaitable[None]]]
    """Each removes one backend's unused files, such as mirrors of repositories."""
    now: Callable[[], datetime]
    sweep_after: float = SWEEP
    shard: Shard = WHOLE

    async def remove_artifacts(self) -> None:
        """Remove artifacts of sources that were deleted, or given to another shard, while none ran."""
        sources = [source.key for source in self.cache.of_kind(KIND) if self.shard.owns(source)]
        try:
            await asyncio.to_thread(self.keep, sources)
        except Setback as setback:
            log.warning("old artifacts were not removed: %s", setback.message)

    async def sweep(self) -> None:
        """Wait, then sweep: by then every source that can be opened was, and it is known what each uses."""
        await asyncio.sleep(self.sweep_after)
        for sweep in self.sweeps:
            await sweep(self.now())
