"""What stage 1 hands to stage 2: one archive of definitions, named by what it holds and where it came from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Final

MAX_JSON_BYTES: Final = 64 * 1024
"""Of one artifact's JSON; its texts come from commits, which strangers write."""

MAX_TEXT: Final = 1024
"""Characters of one text field."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PATH: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*(/[0-9A-Za-z_-][0-9A-Za-z._-]*)*")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|\+00:00)")


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
    author: str
    """`Name <mail>`."""
    committed_at: str
    """RFC 3339, in UTC."""
    subject: str

    def __post_init__(self) -> None:
        """Every artifact is checked, read or made, so none that is written fails to be read."""
        for name in ("revision", "digest", "path", "author", "committed_at", "subject"):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > MAX_TEXT:
                raise ValueError(f"an artifact's {name} must be a text of at most {MAX_TEXT}")
        if type(self.size) is not int or self.size < 0:
            raise ValueError("an artifact's size must be a number of bytes")
        if not self.revision:
            raise ValueError("an artifact must name its revision")
        for name, pattern in (("digest", _DIGEST), ("path", _PATH), ("committed_at", _TIME)):
            if not pattern.fullmatch(getattr(self, name)):
                raise ValueError(f"an artifact's {name} has the wrong form")

    def to_json(self) -> str:
        """One line of JSON; its keys are the fields' names."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Artifact:
        """The artifact that `to_json` wrote. Raises ValueError for anything else."""
        if len(text) > MAX_JSON_BYTES:
            raise ValueError(f"an artifact's JSON must be at most {MAX_JSON_BYTES} bytes")
        try:
            content = json.loads(text)
        except RecursionError as error:
            raise ValueError("an artifact's JSON is nested too deep") from error
        if not isinstance(content, dict) or set(content) != {field.name for field in fields(cls)}:
            raise ValueError("an artifact's JSON must be an object with exactly its fields")
        return cls(**content)
