"""The status of sources in Flux's shape (github.com/fluxcd/pkg, apis/meta), as our own and Flux's have it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from controller.api.fields import INT64, TIME, Model, read
from controller.api.meta import AUTHOR, COMMITTED_AT, SUBJECT, VERIFIED_BY, Resource
from controller.api.status import Status

_IMAGE = "org.opencontainers.image"
"""Annotations of an image, which Flux copies into the artifact of an OCIRepository."""


class ArtifactStatus(Model):
    """One immutable archive of a source at a revision."""

    path: str = ""
    """Where it is, below the artifact server."""
    url: Annotated[str, Field(min_length=1)]
    """Where it can be downloaded."""
    revision: Annotated[str, Field(min_length=1)]
    """What it was made of, such as main@sha1:<commit>."""
    digest: Annotated[str, Field(pattern=r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$")]
    """Of the archive's bytes."""
    last_update_time: Annotated[str, TIME] = ""
    """When it was stored."""
    size: Annotated[int, INT64] | None = None
    """Of the archive, in bytes."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """Author, time and subject of the commit, and when it was first observed."""

    def without_author(self) -> Self:
        """Return a copy without the names of people."""
        names = {AUTHOR, VERIFIED_BY, f"{_IMAGE}.authors"}
        metadata = {key: text for key, text in self.metadata.items() if key not in names}
        return self.model_copy(update={"metadata": metadata})

    def without_signer(self) -> Self:
        """Return a copy without a signer: an image's author may write any annotations."""
        metadata = {key: text for key, text in self.metadata.items() if key != VERIFIED_BY}
        return self.model_copy(update={"metadata": metadata})

    @property
    def author(self) -> str:
        """`Name <mail>`, as far as the source says."""
        return self.metadata.get(AUTHOR) or self.metadata.get(f"{_IMAGE}.authors", "")

    @property
    def committed_at(self) -> str:
        """RFC 3339, as far as the source says."""
        return self.metadata.get(COMMITTED_AT) or self.metadata.get(f"{_IMAGE}.created", "")

    @property
    def subject(self) -> str:
        """The first line of the commit's message, as far as the source says."""
        return self.metadata.get(SUBJECT, "")

    @property
    def verified_by(self) -> str:
        """Return who signed the revision; empty if the source verifies nothing."""
        return self.metadata.get(VERIFIED_BY, "")

    @property
    def origin(self) -> str:
        """Return an image's commit and repository, `main@sha1:… of https://…`, by its annotations."""
        origin = (self.metadata.get(f"{_IMAGE}.revision", ""), self.metadata.get(f"{_IMAGE}.source", ""))
        return " of ".join(part for part in origin if part)


class SourceStatus(Status):
    """What readers of a source have to know."""

    artifact: ArtifactStatus | None = None
    """The last one that was stored."""

    @property
    def content(self) -> tuple[str, str]:
        """The revision and the digest of the artifact."""
        return ("", "") if self.artifact is None else (self.artifact.revision, self.artifact.digest)


def artifact_of(source: Resource) -> ArtifactStatus | None:
    """The artifact of a source, or None. Raises InvalidSpecError for one that cannot be used."""
    artifact, given = SourceStatus.of(source).artifact, source.status.get("artifact")
    if artifact is None and given is not None:
        return read(ArtifactStatus, given if isinstance(given, dict) else {}, where="status.artifact")
    return artifact
