"""FlagSource: a source is looked at, and what it holds becomes an artifact."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.artifact import AUTHOR, COMMITTED_AT, SUBJECT
from controller.api.conditions import FALSE, TRUE, Condition
from controller.api.fields import InvalidSpecError, read
from controller.api.flagsource import FlagSourceSpec
from controller.api.receipt import OBSERVED_AT
from controller.artifacts.archive import pack
from controller.artifacts.durable import as_failed
from controller.runtime.news import News
from controller.runtime.setbacks import Setback, Stalled, Waiting
from controller.runtime.settle import Outcome
from controller.sources.ignore import remove_ignored
from controller.sources.listings import Look
from controller.sources.scratch import Scratch
from controller.sources.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from controller.api.meta import ObjectKey, Resource
    from controller.artifacts.artifact import Artifact
    from controller.artifacts.storage import Storage
    from controller.sources.expected import Expected
    from controller.sources.source import Commit, Revision, Source

IN_STORAGE: Final = "ArtifactInStorage"
JITTER: Final = 0.05
"""Of the interval, to both sides: sources that were made together are looked at apart."""


_ADVICE: Final = {
    "AuthenticationFailed": "see to the Secret that spec.git.secretRef names",
    "HostKeyRefused": "the known_hosts of the Secret does not tell this key; if the host is the right one, put its key there",
    "CertificateRefused": "if the server is the right one, put its CA's certificate into the Secret, as ca.crt",
    "RepositoryNotFound": "see to spec.git.url, and that whom the Secret names may read it",
}
"""What to do about what Git complains of."""


class Storages(Protocol):
    """The artifacts of each source."""

    def of(self, key: ObjectKey) -> Storage:
        """The store of one source. Raises Failed."""

    def url(self, key: ObjectKey, artifact: Artifact) -> tuple[str, str]:
        """(path below the artifact server, whole URL)."""

    def forget(self, key: ObjectKey) -> None:
        """Remove everything of a source that is gone. Must not fail."""


class Sources(Protocol):
    """Whoever opens sources."""

    async def open(self, spec: FlagSourceSpec, key: ObjectKey, look: Look) -> Source:
        """The source that a spec and its Secrets describe. Raises Setback."""

    def forget(self, key: ObjectKey) -> None:
        """The source is gone. Must not fail."""


@dataclass(frozen=True, slots=True)
class SourceReconciler:
    """Brings a FlagSource's artifact to what its source holds."""

    sources: Sources
    storages: Storages
    expected: Expected
    random: Callable[[], float]
    """From 0 to 1."""
    turns: Turns = field(default_factory=Turns)

    async def reconcile(self, resource: Resource, now: datetime) -> Outcome:
        """Resolve, fetch what is new, store it. Raises Setback, with what is in storage told all the same."""
        stored: Artifact | None = None
        try:
            storage, stored = await asyncio.to_thread(self._stored, resource)
            spec = _read(resource)
            look = self.turns.look(resource, now)
            if self.expected.waits(resource.key, now):
                look = Look(now, now)
            source = await self.sources.open(spec, resource.key, look)
            found = await self._found(resource, spec, source, storage, stored, now)
        except Setback as setback:
            raise _told(resource, setback, stored) from setback
        return found

    def forget(self, key: ObjectKey) -> None:
        """Its artifacts go with it."""
        self.turns.forget(key)
        self.expected.forget(key)
        self.sources.forget(key)
        self.storages.forget(key)

    def _stored(self, resource: Resource) -> tuple[Storage, Artifact | None]:
        """The source's store, and what its status promises, if that is in there and whole."""
        storage = self.storages.of(resource.key)
        promised = storage.find(str(_promised(resource).get("digest")))
        if promised is not None:
            try:
                storage.open(promised)
            except Setback:
                # Gone or damaged: it is fetched again.
                return storage, None
        return storage, promised

    async def _found(
        self,
        resource: Resource,
        spec: FlagSourceSpec,
        source: Source,
        storage: Storage,
        stored: Artifact | None,
        now: datetime,
    ) -> Outcome:
        revision: Revision | None = None
        after = spec.interval * (1.0 + JITTER * (2.0 * self.random() - 1.0))
        commit, artifact = None, stored
        try:
            revision = await source.resolve()
            same_files = resource.status.get("observedIgnore") == spec.ignore
            if artifact is None or artifact.revision != str(revision) or not same_files:
                artifact, commit = await self._fetch(spec, source, revision, storage)
        except (Stalled, Waiting) as setback:
            # What is wrong is in the repository: once it is put right there, nobody tells us.
            setback.requeue_after = after
            raise
        finally:
            ref = spec.git.ref
            # A tag that was pushed may be no version of the range.
            sure = ref.semver is None or bool(ref.commit or ref.name or ref.tag)
            soon = self.expected.next_look(resource.key, revision, now, sure=sure)
        after = after if soon is None else min(soon, after)
        self.turns.next(resource.key, now + timedelta(seconds=after))
        return self._outcome(resource, spec, artifact, commit, now, after)

    async def _fetch(
        self, spec: FlagSourceSpec, source: Source, revision: Revision, storage: Storage
    ) -> tuple[Artifact, Commit]:
        try:
            scratch = await asyncio.to_thread(Scratch.make)
        except OSError as error:
            raise as_failed(error, f"a folder for the files of {revision}") from error
        try:
            commit = await source.fetch(revision, scratch.path)
            await asyncio.to_thread(remove_ignored, scratch.path, spec.ignore)
            archive = await asyncio.to_thread(pack, scratch.path)
        except OSError as error:
            raise as_failed(error, f"the files of {revision}") from error
        finally:
            await asyncio.to_thread(scratch.remove)
        artifact = await asyncio.to_thread(
            storage.put,
            archive,
            revision=str(commit.revision),
            author=commit.author,
            committed_at=commit.committed_at.isoformat(),
            subject=commit.subject,
        )
        return artifact, commit

    def _outcome(
        self,
        resource: Resource,
        spec: FlagSourceSpec,
        artifact: Artifact,
        commit: Commit | None,
        now: datetime,
        requeue_after: float,
    ) -> Outcome:
        before = _promised(resource)
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
            "lastUpdateTime": before.get("lastUpdateTime", moment) if same else moment,
            "metadata": {
                AUTHOR: artifact.author,
                COMMITTED_AT: artifact.committed_at,
                SUBJECT: artifact.subject,
                OBSERVED_AT: _observed(before, artifact, now),
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


def _observed(before: Mapping[str, Any], artifact: Artifact, now: datetime) -> str:
    """When the revision was first seen at the source: as this look began that found it."""
    known = (before.get("metadata") or {}).get(OBSERVED_AT)
    if known and before.get("revision") == artifact.revision:
        return str(known)
    return now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _read(resource: Resource) -> FlagSourceSpec:
    try:
        return read(FlagSourceSpec, resource.spec)
    except InvalidSpecError as error:
        raise Stalled("InvalidSpec", str(error)) from error


def _promised(resource: Resource) -> Mapping[str, Any]:
    return resource.status.get("artifact") or {}


def _told(resource: Resource, setback: Setback, stored: Artifact | None) -> Setback:
    """The setback with what is true of the storage: an artifact that is not there is not promised."""
    setback.details = ()
    # What names a Secret says all there is to do.
    if (advice := _ADVICE.get(setback.reason)) and "Secret" not in setback.message:
        setback.message = f"{setback.message}; {advice}"
    if stored is not None:
        message = f"stored artifact for revision {stored.revision}"
        setback.details = (Condition(IN_STORAGE, TRUE, "Succeeded", message),)
    elif _promised(resource):
        message = "the artifact is not in storage any more; it is fetched again once the source can be read"
        setback.details = (Condition(IN_STORAGE, FALSE, "ArtifactGone", message),)
    return setback


def _new_artifact(artifact: Artifact, commit: Commit | None) -> News:
    skipped = f"; left out: {', '.join(commit.skipped[:5])}" if commit and commit.skipped else ""
    subject = artifact.subject[:50]
    return News(
        "NewArtifact",
        f"stored artifact for commit '{subject}' of {artifact.author}, {artifact.revision}{skipped}",
    )
