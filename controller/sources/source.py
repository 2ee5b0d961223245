"""The port of stage 1: where definitions live, whatever the provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Revision:
    """What a reference was found to be; printed as Flux prints it: `main@sha1:…`, or `sha1:…` for a bare commit."""

    name: str
    """The reference's short name: a branch, a tag, or empty."""
    digest: str
    """`sha1:<40 hex>` for a Git commit."""

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.name else self.digest


@dataclass(frozen=True, slots=True)
class Commit:
    """A revision with its story, as fetched."""

    revision: Revision
    author: str
    """`Name <mail>`."""
    committed_at: datetime
    subject: str
    skipped: tuple[str, ...] = ()
    """What the tree lists and nobody wrote, with the reason: `flags/evil.json: symlink, not followed`."""


class Source(Protocol):
    """One place that definitions come from. Every method raises a `Setback` when it cannot."""

    async def resolve(self) -> Revision:
        """What the reference points at now, found by listing references only."""

    async def fetch(self, revision: Revision, into: Path) -> Commit:
        """Write the files of `revision` below the empty folder `into`; bounded; never outside of it."""

    def changes(self) -> AsyncIterator[None]:
        """Yields at once, then whenever the source may have changed: as it does where it can be watched, and every interval."""
