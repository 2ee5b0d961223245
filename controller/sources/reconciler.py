"""FlagSource: resolve the reference, fetch what is new into quarantine, verify it, store it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from controller.api.flagreceipt import OBSERVED_AT
from controller.api.flagsource import OBSERVED, FlagSourceSpec, FlagSourceStatus
from controller.api.objects.artifact import ArtifactStatus
from controller.api.objects.conditions import FALSE, TRUE, Condition
from controller.api.objects.meta import ACCEPT_REVISION, lets_through, precise_timestamp, timestamp
from controller.api.objects.provenance import SIGNED_AT, VERIFIED_BY
from controller.artifacts.archive import pack, write_skipped
from controller.runtime.events import Occurrence
from controller.runtime.objects.cache import Cache
from controller.runtime.reconciling.result import Done, Result, spec_of
from controller.runtime.reconciling.setbacks import FULL, Failed, Setback, Stalled, Waiting
from controller.runtime.tenancy.quotas import UNLIMITED, Quota
from controller.runtime.user_text.plain_text import one_line
from controller.sources.backend import Accepted, FetchRequest, Unverified
from controller.sources.files.ignore import IgnoredFiles, ignored_files, not_ignored, remove_ignored
from controller.sources.files.include import copy_included, find_included, include_health
from controller.sources.files.quarantine import quarantine
from controller.sources.freshness import Freshness, PollSchedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.api.objects.meta import ObjectKey, Resource
    from controller.artifacts.artifact import Artifact
    from controller.artifacts.storage import Storage
    from controller.artifacts.storages import Storages
    from controller.sources.backend import BackendFactory, Fetched, Revision, SourceBackend
    from controller.sources.export import Exporter
    from controller.sources.files.include import Included
    from controller.sources.freshness import PendingPushes

IN_STORAGE: Final = "ArtifactInStorage"
VERIFIED: Final = "SourceVerified"
_SIGNER: Final = 200
JITTER: Final = 0.05
"""Greatest random share of the interval, up or down: it spreads sources that were created together."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an artifact is made for and of."""

    resource: Resource
    spec: FlagSourceSpec
    provider: SourceBackend
    includes: tuple[Included, ...]

    def is_in(self, artifact: Artifact, revision: Revision) -> bool:
        """Return whether the status has an artifact of `revision` that fits the spec."""
        status, observed = FlagSourceStatus.of(self.resource), self.spec.observed
        return (
            artifact.revision == str(revision)
            and all(getattr(status, name) == getattr(observed, name) for name in OBSERVED)
            and (status.observed_verification or "") == self.provider.epoch
            and self.is_of_same_includes
        )

    @property
    def is_of_same_includes(self) -> bool:
        """Whether all included sources still have the artifacts that the status lists."""
        before = FlagSourceStatus.of(self.resource).included_artifacts or ()
        return [each.digest for each in before] == [each.artifact.digest for each in self.includes]


@dataclass(frozen=True, slots=True)
class SourceReconciler:
    """Brings a FlagSource's artifact to what its source holds."""

    providers: Mapping[str, BackendFactory[Any]]
    """The providers by the field of the spec that configures them, such as `git`."""
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

    async def reconcile(self, resource: Resource, now: datetime) -> Result:
        """Resolve, fetch what is new, verify, store and export it."""
        result = await self._look(resource, now)
        if isinstance(result.outcome, Failed) and result.outcome.reason == FULL and await self._make_room():
            result = await self._look(resource, now)
        try:
            await self._export(resource, result, now)
        except Setback as setback:
            if isinstance(result.outcome, Done):
                return replace(result, outcome=setback)
        return result

    async def _make_room(self) -> bool:
        """Remove what is nice to have from a full volume; return whether there was anything."""
        removed = await asyncio.to_thread(self.storages.drop_history)
        return any([removed, *[await factory.make_room() for factory in self.providers.values()]])

    async def _export(self, resource: Resource, result: Result, now: datetime) -> None:
        if self.exporter is None:
            return
        spec = spec_of(FlagSourceSpec, resource)
        if not spec.export:
            await self.exporter.remove(resource, spec.service_account_name)
        elif isinstance(found := result.status, FlagSourceStatus) and found.artifact is not None:
            await self.exporter.publish(resource, found.artifact, spec.service_account_name, now)

    async def _look(self, resource: Resource, now: datetime) -> Result:
        kept: Artifact | None = None
        again: float | None = None
        try:
            storage, kept = await asyncio.to_thread(self._kept, resource)
            # Its patterns may take half a second to read.
            spec = await asyncio.to_thread(spec_of, FlagSourceSpec, resource)
            provider = await self._open(resource, spec, now)
            # What is wrong in a source may be corrected there without notice to us.
            again = spec.interval * (1.0 + JITTER * (2.0 * self.random() - 1.0))
            wanted = _Wanted(resource, spec, provider, find_included(resource, spec, self.objects))
            revision = await self._resolve(resource, provider, now)
            soon = self.pending.next_look(resource.key, revision, now, sure=provider.shows_every_push)
            stored = await self._store(wanted, revision, (storage, kept))
        except Setback as setback:
            details = _details_after(setback, resource, kept)
            if isinstance(setback, Waiting) and setback.delay is not None:
                again = setback.delay
            return Result.of(setback, details=details, next_look=again)
        after = again if soon is None else min(soon, again)
        self.schedule.next(resource.key, now + timedelta(seconds=after))
        return self._done(wanted, stored, (now, after))

    def forget(self, key: ObjectKey) -> None:
        """A source's artifacts go with it."""
        self.schedule.forget(key)
        self.stored.forget(key)
        self.pending.forget(key)
        for factory in self.providers.values():
            factory.forget(key)
        self.storages.forget(key)

    def _kept(self, resource: Resource) -> tuple[Storage, Artifact | None]:
        """The source's store, and the artifact of its status if that is in there undamaged."""
        storage = self.storages.of(resource.key)
        artifact = FlagSourceStatus.of(resource).artifact
        promised = None if artifact is None else storage.find(artifact.digest)
        if promised is not None:
            try:
                storage.require(promised)
            except Setback:
                # Gone or damaged: it is fetched again.
                return storage, None
        return storage, promised

    async def _open(self, resource: Resource, spec: FlagSourceSpec, now: datetime) -> SourceBackend:
        for name, factory in self.providers.items():
            if name != spec.provider:
                factory.forget(resource.key)
        freshness = self.schedule.look(resource, now)
        if self.pending.waits(resource.key, now):
            freshness = Freshness(now, now)
        look = FetchRequest(resource.key, spec.timeout, freshness, spec.service_account_name, spec.verify)
        provider = await self.providers[spec.provider].open(getattr(spec, spec.provider), look)
        if spec.verify is not None and not provider.epoch:
            # A provider that verifies nothing must not pass for one that does.
            raise Stalled("InvalidSpec", f"spec.{spec.provider} is never verified; remove spec.verify")
        return provider

    async def _resolve(self, resource: Resource, provider: SourceBackend, now: datetime) -> Revision:
        try:
            return await provider.resolve()
        except Setback:
            self.pending.next_look(resource.key, None, now, sure=provider.shows_every_push)
            raise

    async def _store(
        self, wanted: _Wanted, revision: Revision, store: tuple[Storage, Artifact | None]
    ) -> tuple[Artifact, Fetched | None]:
        """Return the stored artifact of `revision`, or store what was fetched for it."""
        storage, kept = store
        resource, provider = wanted.resource, wanted.provider
        if kept is not None and wanted.is_in(kept, revision):
            self.stored.require(resource, kept.size)
            return kept, None
        async with quarantine(f"the files of {revision}") as folder:
            fetched = await provider.fetch(revision, folder, _accepted(resource, provider))
            protected = _protected_paths(wanted.spec)
            ignored = await asyncio.to_thread(ignored_files, folder, wanted.spec.ignore, protected)
            left_out = await copy_included(folder, wanted.includes, self.storages, protected)
            archive = await asyncio.to_thread(_packed, folder, (*fetched.skipped, *left_out), ignored)
        self.stored.require(resource, len(archive))
        with self.stored.given(resource.key):
            artifact = await asyncio.to_thread(
                storage.put, archive, revision=str(fetched.revision), metadata=fetched.metadata
            )
        return artifact, fetched

    def _done(
        self, wanted: _Wanted, stored: tuple[Artifact, Fetched | None], times: tuple[datetime, float]
    ) -> Result:
        now, next_look = times
        artifact, fetched = stored
        resource, provider = wanted.resource, wanted.provider
        before = FlagSourceStatus.of(resource)
        path, url = self.storages.url(resource.key, artifact)
        known = before.artifact if wanted.is_of_same_includes else None
        updated = ""
        if before.artifact is not None and before.content == (artifact.revision, artifact.digest):
            updated = before.artifact.last_update_time
        named = resource.annotations.get(ACCEPT_REVISION, "")
        handled = named == before.last_handled_accept_revision or lets_through(named, artifact.revision)
        status = wanted.spec.observed | FlagSourceStatus(
            artifact=ArtifactStatus(
                path=path,
                url=url,
                revision=artifact.revision,
                digest=artifact.digest,
                size=artifact.size,
                last_update_time=updated or timestamp(now),
                metadata={**artifact.metadata, OBSERVED_AT: _observed_at(known, artifact, now)},
            ),
            included_artifacts=tuple(each.artifact for each in wanted.includes) or None,
            observed_lineage=provider.lineage or None,
            observed_verification=provider.epoch or None,
            # What came later may not be replaced by it again.
            last_handled_accept_revision=named if handled and named else None,
        )
        details: tuple[Condition, ...] = (Condition(IN_STORAGE, TRUE, "Succeeded", _in_storage(artifact)),)
        if provider.epoch:
            details += (Condition(VERIFIED, TRUE, "Succeeded", _signed(artifact)),)
        details += include_health(wanted.includes)
        events = () if before.content[1] == artifact.digest else (_new_artifact(artifact, fetched),)
        return Result(
            Done(_in_storage(artifact)), status=status, details=details, events=events, next_look=next_look
        )


def _protected_paths(spec: FlagSourceSpec) -> tuple[tuple[str, ...], ...]:
    """The paths of each rule that says who may sign them."""
    return () if spec.verify is None else tuple(rule.paths for rule in spec.verify.rules)


def _packed(folder: Path, skipped: tuple[str, ...], ignored: IgnoredFiles) -> bytes:
    """An archive of what is not ignored, with a note of the `skipped`. Blocks. Raises OSError."""
    remove_ignored(folder, ignored)
    write_skipped(folder, not_ignored(skipped, ignored))
    return pack(folder)


def _accepted(resource: Resource, provider: SourceBackend) -> Accepted:
    status, named = FlagSourceStatus.of(resource), resource.annotations.get(ACCEPT_REVISION, "")
    before = status.artifact if status.observed_lineage == provider.lineage else None
    return Accepted(
        "" if before is None else before.revision,
        "" if named == status.last_handled_accept_revision else named,
        "" if before is None else before.metadata.get(SIGNED_AT, ""),
    )


def _details_after(setback: Setback, resource: Resource, kept: Artifact | None) -> tuple[Condition, ...]:
    """Whether an artifact is in storage, and where verification failed, that it did."""
    details: tuple[Condition, ...] = ()
    if kept is not None:
        details = (Condition(IN_STORAGE, TRUE, "Succeeded", _in_storage(kept)),)
    elif FlagSourceStatus.of(resource).artifact is not None:
        message = "the artifact is not in storage any more; it is fetched again once the source can be read"
        details = (Condition(IN_STORAGE, FALSE, "ArtifactGone", message),)
    if isinstance(setback, Unverified):
        details += (Condition(VERIFIED, FALSE, setback.reason, setback.message),)
    return details


def _signed(artifact: Artifact) -> str:
    return f"{artifact.revision} is signed by {artifact.metadata.get(VERIFIED_BY, 'a trusted key')}"


def _in_storage(artifact: Artifact) -> str:
    return f"stored artifact for revision {artifact.revision}"


def _observed_at(before: ArtifactStatus | None, artifact: Artifact, now: datetime) -> str:
    """Return when the revision was first seen at the source: the start of the look that found it."""
    known = before.metadata.get(OBSERVED_AT) if before is not None else None
    if before is not None and known and before.revision == artifact.revision:
        return known
    return precise_timestamp(now)


def _new_artifact(artifact: Artifact, fetched: Fetched | None) -> Occurrence:
    summary = f"{fetched.summary}, " if fetched is not None and fetched.summary else ""
    skipped = fetched.skipped[:5] if fetched is not None else ()
    left_out = f"; left out: {', '.join(skipped)}" if skipped else ""
    signer = one_line(artifact.metadata.get(VERIFIED_BY, ""), _SIGNER)
    signed = f", signed by {signer}" if signer else ""
    message = f"stored artifact for {summary}{artifact.revision}{signed}{left_out}"
    return Occurrence("NewArtifact", message, metadata={VERIFIED_BY: signer} if signer else {})
