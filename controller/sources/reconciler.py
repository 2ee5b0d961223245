"""FlagSource: a source is looked at, and what it holds becomes an artifact."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.artifact import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.conditions import FALSE, TRUE, Condition
from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from controller.artifacts.archive import pack
from controller.artifacts.durable import as_failed
from controller.runtime.news import News
from controller.runtime.setbacks import Setback, Stalled
from controller.runtime.settle import Outcome
from controller.sources.ignore import remove_ignored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.artifacts.artifact import Artifact
    from controller.artifacts.storage import Storage
    from controller.sources.expected import Expected
    from controller.sources.source import Commit, Revision, Source

IN_STORAGE: Final = "ArtifactInStorage"
JITTER: Final = 0.05
"""Of the interval, to both sides: sources that were made together are looked at apart."""


class Storages(Protocol):
    """The artifacts of each source."""

    def of(self, key: ObjectKey) -> Storage:
        """The store of one source. Raises Failed."""

    def url(self, key: ObjectKey, artifact: Artifact) -> tuple[str, str]:
        """(path below the artifact server, whole URL)."""

    def forget(self, key: ObjectKey) -> None:
        """Remove everything of a source that is gone. Must not fail."""


@dataclass(frozen=True, slots=True)
class SourceReconciler:
    """Brings a FlagSource's artifact to what its source holds."""

    open: Callable[[FlagSourceSpec, Resource], Awaitable[Source]]
    """A source as its spec and its Secrets say. Raises Setback."""
    storages: Storages
    expected: Expected
    random: Callable[[], float]
    """From 0 to 1."""

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Resolve, fetch what is new, store it. Raises Setback, with what is in storage told all the same."""
        revision: Revision | None = None
        try:
            spec = read(FlagSourceSpec, resource.spec)
            storage = await asyncio.to_thread(self.storages.of, resource.key)
            source = await self.open(spec, resource)
            revision = await source.resolve()
            artifact = await self._current(resource, spec, storage, revision)
            commit = None
            if artifact is None:
                artifact, commit = await self._fetch(spec, source, revision, storage)
        except InvalidSpecError as error:
            raise self._told(resource, Stalled("InvalidSpec", str(error))) from error
        except Setback as setback:
            raise self._told(resource, setback) from setback
        finally:
            soon = self.expected.next_look(resource.key, revision, now)
        jitter = 1.0 + JITTER * (2.0 * self.random() - 1.0)
        return self._outcome(resource, spec, artifact, commit, now, soon or spec.interval * jitter)

    def forget(self, key: ObjectKey) -> None:
        """Its artifacts go with it."""
        self.expected.forget(key)
        self.storages.forget(key)

    async def _current(
        self, resource: Resource, spec: FlagSourceSpec, storage: Storage, revision: Revision
    ) -> Artifact | None:
        """The stored artifact, if it is of `revision` and whole."""
        stored = storage.latest()
        same = stored is not None and stored.revision == str(revision)
        if stored is None or not same or resource.status.get("observedIgnore") != spec.ignore:
            return None
        try:
            await asyncio.to_thread(storage.open, stored)
        except Setback:
            # Gone or damaged: it is fetched again.
            return None
        return stored

    async def _fetch(
        self, spec: FlagSourceSpec, source: Source, revision: Revision, storage: Storage
    ) -> tuple[Artifact, Commit]:
        try:
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="flagstaff-tree-"))
        except OSError as error:
            raise as_failed(error, f"a folder for the files of {revision}") from error
        try:
            commit = await source.fetch(revision, folder)
            await asyncio.to_thread(remove_ignored, folder, spec.ignore)
            archive = await asyncio.to_thread(pack, folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        artifact = await asyncio.to_thread(
            storage.put,
            archive,
            revision=str(commit.revision),
            author=commit.author,
            committed_at=commit.committed_at.isoformat(),
            subject=commit.subject,
        )
        return artifact, commit

    def _told(self, resource: Resource, setback: Setback) -> Setback:
        """The setback with what is true of the storage: an artifact that is not there is not promised."""
        promised = resource.status.get("artifact")
        if not promised or setback.details:
            return setback
        try:
            stored = self.storages.of(resource.key).latest()
        except Setback:
            stored = None
        if stored is not None and stored.digest == promised.get("digest"):
            return setback
        message = "the artifact is not in storage any more; it is fetched again once the source can be read"
        setback.details = (Condition(IN_STORAGE, FALSE, "ArtifactGone", message),)
        return setback

    def _outcome(
        self,
        resource: Resource,
        spec: FlagSourceSpec,
        artifact: Artifact,
        commit: Commit | None,
        now: datetime,
        requeue_after: float,
    ) -> Outcome:
        before: dict[str, Any] = resource.status.get("artifact") or {}
        path, url = self.storages.url(resource.key, artifact)
        same = (before.get("digest"), before.get("revision")) == (
            artifact.digest,
            artifact.revision,
        )
        moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        told = {
            "path": path,
            "url": url,
            "revision": artifact.revision,
            "digest": artifact.digest,
            "size": artifact.size,
            "lastUpdateTime": before["lastUpdateTime"] if same else moment,
            "metadata": {
                AUTHOR: artifact.author,
                COMMITTED_AT: artifact.committed_at,
                SUBJECT: artifact.subject,
            },
        }
        status: dict[str, Any] = {"artifact": told}
        if spec.ignore is not None:
            status["observedIgnore"] = spec.ignore
        message = f"stored artifact for revision {artifact.revision}"
        news = () if before.get("digest") == artifact.digest else (_new_artifact(artifact, commit),)
        return Outcome(
            message=message,
            status=status,
            details=(Condition(IN_STORAGE, TRUE, "Succeeded", message),),
            news=news,
            requeue_after=requeue_after,
        )


def _new_artifact(artifact: Artifact, commit: Commit | None) -> News:
    skipped = f"; left out: {', '.join(commit.skipped[:5])}" if commit and commit.skipped else ""
    subject = artifact.subject[:50]
    return News(
        "NewArtifact",
        f"stored artifact for commit '{subject}' of {artifact.author}, {artifact.revision}{skipped}",
    )
