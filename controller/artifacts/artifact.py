"""The artifact of stage 1: one archive of definitions with its revision, digest and metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final

from controller.runtime.user_text.plain_text import json_object

MAX_JSON_BYTES: Final = 512 * 1024
"""Of one artifact's JSON; its texts come from commits, which strangers write."""

MAX_TEXT: Final = 1024
"""Characters of one text field, or of one value of the metadata."""

MAX_KEYS: Final = 16
"""Of the metadata."""

_FORMS: Final = {
    "revision": re.compile(r".+", re.DOTALL),
    "digest": re.compile(r"sha256:[0-9a-f]{64}"),
    "path": re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*(/[0-9A-Za-z_-][0-9A-Za-z._-]*)*"),
}


@dataclass(frozen=True, slots=True)
class Artifact:
    """An archive of one revision. Raises ValueError when a field has the wrong shape."""

    revision: str
    """As the source printed it: `main@sha1:…`."""
    digest: str
    """`sha256:<64 hex>` of the archive's bytes."""
    size: int
    """The archive's bytes."""
    path: str
    """Relative to the store's root."""
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the provider says of the revision, for `status.artifact.metadata`; the keys are the provider's."""

    def __post_init__(self) -> None:
        """Every artifact is checked, read or made, so none that is written fails to be read."""
        for name, pattern in _FORMS.items():
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > MAX_TEXT or not pattern.fullmatch(text):
                raise ValueError(f"an artifact's {name} has the wrong form")
        if type(self.size) is not int or self.size < 0:
            raise ValueError("an artifact's size must be a number of bytes")
        _check_metadata(self.metadata)

    def to_json(self) -> str:
        """One line of JSON; its keys are the fields' names."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        content["metadata"] = dict(self.metadata)
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Artifact:
        """The artifact that `to_json` wrote. Raises ValueError for anything else."""
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"an artifact's JSON must be at most {MAX_JSON_BYTES} bytes")
        content = json_object(text)
        if content is None or set(content) != {each.name for each in fields(cls)}:
            raise ValueError("an artifact's JSON must be an object with exactly its fields")
        return cls(**content)


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, Mapping) or len(metadata) > MAX_KEYS:
        raise ValueError(f"an artifact's metadata must be an object with at most {MAX_KEYS} keys")
    for text in (*metadata.keys(), *metadata.values()):
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise ValueError(f"an artifact's metadata must be texts of at most {MAX_TEXT} characters")
