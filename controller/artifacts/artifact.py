"""The artifact of stage 1: one archive of definitions with its revision, digest and metadata."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

MAX_JSON_BYTES: Final = 512 * 1024
"""Most bytes of one artifact's JSON; its texts come from commits, which strangers write."""
MAX_TEXT: Final = 1024
"""Most characters of one text field, or of one value of the metadata."""
MAX_KEYS: Final = 16
"""Most keys of the metadata."""
_PART: Final = "[0-9A-Za-z_-][0-9A-Za-z._-]*"

_Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Artifact(BaseModel):
    """An archive of one revision. Raises ValueError for a field that could not be read again."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    revision: Annotated[_Text, Field(min_length=1)]
    """The revision as the source writes it: `main@sha1:…`."""
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """`sha256:…` of the archive's bytes."""
    size: Annotated[int, Field(ge=0)]
    """Size of the archive in bytes."""
    path: Annotated[_Text, Field(pattern=rf"^{_PART}(/{_PART})*$")]
    """Relative to the store's root."""
    metadata: Annotated[dict[_Text, _Text], Field(max_length=MAX_KEYS)]
    """What the provider says of the revision, for `status.artifact.metadata`; the keys are the provider's."""
