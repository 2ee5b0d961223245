"""One reconcile of a FlagSource: what its steps found, and the status, conditions and events of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.artifact_status import ArtifactStatus
from controller.api.flagreceipt import OBSERVED_AT
from controller.api.flagsource import OBSERVED, FlagSourceSpec, FlagSourceStatus
from controller.api.meta import ACCEPT_REVISION, SIGNED_AT, VERIFIED_BY, Resource, lets_through
from controller.api.status import FALSE, TRUE, Condition
from controller.runtime.event import Occurrence
from controller.runtime.plain_text import one_line
from controller.runtime.result import Done, Result
from controller.runtime.setbacks import Setback, Waiting
from controller.sources.backend import AcceptedRevision, Fetched, Revision, SourceBackend, Unverified
from controller.sources.include import Included, include_health
from evaluator.host.times import precise_timestamp, timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from controller.artifacts.storage import Artifact, Storage

IN_STORAGE: Final = "ArtifactInStorage"
VERIFIED: Final = "SourceVerified"
_SIGNER: Final = 200
_LEFT_OUT: Final = 5
"""Entries of `Fetched.skipped` that an Event names."""


@dataclass(slots=True)
class SourceRun:
    """What the steps of one reconcile found, in their order. A field is there once its step was taken."""

    resource: Resource
    now: datetime
    storage: Storage = field(init=False)
    stored: Artifact | None = None
    """The artifact of the status, if it is in storage undamaged."""
    spec: FlagSourceSpec = field(init=False)
    next_poll: float | None = None
    """Seconds until the source is polled again, whatever becomes of this reconcile."""
    backend: SourceBackend = field(init=False)
    includes: tuple[Included, ...] = ()
    revision: Revision = field(init=False)
    fetched: Fetched | None = None
    """None: the artifact of `revision` was stored already."""
    artifact: Artifact = field(init=False)
    path: str = field(init=False)
    """The artifact's, below the artifact server."""
    url: str = field(init=False)

    @property
    def before(self) -> FlagSourceStatus:
        """The status so far."""
        return FlagSourceStatus.of(self.resource)

    @property
    def is_current(self) -> bool:
        """Whether the stored artifact is of `revision`, and fits spec, policy and included sources."""
        before, observed = self.before, self.spec.selection_fields
        return (
            self.stored is not None
            and self.stored.revision == str(self.revision)
            and all(getattr(before, name) == getattr(observed, name) for name in OBSERVED)
            and (before.observed_verification or "") == self.backend.epoch
            and self._has_same_includes
        )

    @property
    def last_accepted(self) -> AcceptedRevision:
        """What a new revision is compared with."""
        before, named = self.before, self.resource.annotations.get(ACCEPT_REVISION, "")
        artifact = before.artifact if before.observed_lineage == self.backend.lineage else None
        return AcceptedRevision(
            "" if artifact is None else artifact.revision,
            "" if named == before.last_handled_accept_revision else named,
            "" if artifact is None else artifact.metadata.get(SIGNED_AT, ""),
        )

    @property
    def protected_paths(self) -> tuple[tuple[str, ...], ...]:
        """The paths of each rule that says who may sign them."""
        return () if self.spec.verify is None else tuple(rule.paths for rule in self.spec.verify.rules)

    def success(self, next_poll: float) -> Result:
        """The result once `artifact` is stored."""
        artifact, message = self.artifact, _in_storage(self.artifact)
        details: tuple[Condition, ...] = (Condition(IN_STORAGE, TRUE, "Succeeded", message),)
        if self.backend.epoch:
            signer = artifact.metadata.get(VERIFIED_BY, "a trusted key")
            signed = f"{artifact.revision} is signed by {signer}"
            details += (Condition(VERIFIED, TRUE, "Succeeded", signed),)
        details += include_health(self.includes)
        is_new = self.before.content[1] != artifact.digest
        events = (_new_artifact(artifact, self.fetched),) if is_new else ()
        return Result(
            Done(message), status=self._status(), details=details, events=events, requeue_after=next_poll
        )

    def failure(self, setback: Setback) -> Result:
        """The result of a step that failed; what is stored stays."""
        details: tuple[Condition, ...] = ()
        if self.stored is not None:
            details = (Condition(IN_STORAGE, TRUE, "Succeeded", _in_storage(self.stored)),)
        elif self.before.artifact is not None:
            message = (
                "the artifact is not in storage any more; it is fetched again once the source can be read"
            )
            details = (Condition(IN_STORAGE, FALSE, "ArtifactGone", message),)
        if isinstance(setback, Unverified):
            details += (Condition(VERIFIED, FALSE, setback.reason, setback.message),)
        next_poll = self.next_poll
        if isinstance(setback, Waiting) and setback.delay is not None:
            next_poll = setback.delay
        return Result.of(setback, details=details, requeue_after=next_poll)

    @property
    def _has_same_includes(self) -> bool:
        before = self.before.included_artifacts or ()
        included = [entry.artifact.digest for entry in self.includes]
        return [artifact.digest for artifact in before] == included

    def _status(self) -> FlagSourceStatus:
        before, artifact = self.before, self.artifact
        unchanged = before.artifact is not None and before.content == (artifact.revision, artifact.digest)
        updated = before.artifact.last_update_time if before.artifact is not None and unchanged else ""
        named = self.resource.annotations.get(ACCEPT_REVISION, "")
        handled = named == before.last_handled_accept_revision or lets_through(named, artifact.revision)
        return self.spec.selection_fields | FlagSourceStatus(
            artifact=ArtifactStatus(
                path=self.path,
                url=self.url,
                revision=artifact.revision,
                digest=artifact.digest,
                size=artifact.size,
                last_update_time=updated or timestamp(self.now),
                metadata={**artifact.metadata, OBSERVED_AT: self._observed_at()},
            ),
            included_artifacts=tuple(entry.artifact for entry in self.includes) or None,
            observed_lineage=self.backend.lineage or None,
            observed_verification=self.backend.epoch or None,
            # What came later may not be replaced by it again.
            last_handled_accept_revision=named if handled and named else None,
        )

    def _observed_at(self) -> str:
        """When the revision was first seen at the source: the start of the reconcile that found it."""
        artifact = self.before.artifact if self._has_same_includes else None
        known = artifact.metadata.get(OBSERVED_AT) if artifact is not None else None
        if artifact is not None and known and artifact.revision == self.artifact.revision:
            return known
        return precise_timestamp(self.now)


def _in_storage(artifact: Artifact) -> str:
    return f"stored artifact for revision {artifact.revision}"


def _new_artifact(artifact: Artifact, fetched: Fetched | None) -> Occurrence:
    summary = f"{fetched.summary}, " if fetched is not None and fetched.summary else ""
    skipped = fetched.skipped[:_LEFT_OUT] if fetched is not None else ()
    left_out = f"; left out: {', '.join(skipped)}" if skipped else ""
    signer = one_line(artifact.metadata.get(VERIFIED_BY, ""), _SIGNER)
    signed = f", signed by {signer}" if signer else ""
    message = f"stored artifact for {summary}{artifact.revision}{signed}{left_out}"
    return Occurrence("NewArtifact", message, metadata={VERIFIED_BY: signer} if signer else {})
