"""`status.artifact`, in Flux's shape (github.com/fluxcd/pkg, apis/meta), as our sources and Flux's own tell it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controller.api.fields import Model

AUTHOR = "flagstaff.dev/author"
COMMITTED_AT = "flagstaff.dev/committed-at"
SUBJECT = "flagstaff.dev/subject"


class ArtifactStatus(Model):
    """One immutable archive of a source at a revision."""

    path: str = ""
    url: Annotated[str, Field(min_length=1)]
    revision: Annotated[str, Field(min_length=1)]
    digest: Annotated[str, Field(pattern=r"^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$")]
    last_update_time: str = ""
    size: int | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    """Ours under flagstaff.dev/: author, committed-at, subject."""
