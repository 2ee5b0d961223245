"""Stand-ins for what is outside, held to the same contract tests as the real thing."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.api.meta import AUTHOR, SUBJECT
from controller.api.references import HEADS, TAGS
from controller.runtime.setbacks import Failed
from controller.sources.backend import NOTHING_ACCEPTED, Fetched, Revision
from controller.sources.git_references import Reference, choose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.sources.backend import AcceptedRevision


@dataclass
class FakeRepository:
    """A repository in memory: one work tree's worth of files per commit."""

    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    present: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def commit(self, subject: str, branch: str = "main", **files: str) -> str:
        """The files of the branch so far, with `files` over them; the commit's id."""
        earlier = self.commits.get(self.refs.get(HEADS + branch, ""), ("", {}))[1]
        now = earlier | {name.replace("__", "."): text for name, text in files.items()}
        number = f"{len(self.commits)} {subject} {sorted(now.items())}"
        oid = hashlib.sha1(number.encode(), usedforsecurity=False).hexdigest()
        self.commits[oid] = (subject, now)
        self.point(HEADS + branch, oid)
        return oid

    def tag(self, name: str) -> None:
        """Mark the tip of main."""
        self.point(TAGS + name, self.refs[HEADS + "main"])

    def point(self, name: str, oid: str | None) -> None:
        """Move a reference, or delete it."""
        if oid is None:
            del self.refs[name]
        else:
            self.refs[name] = oid
        self.changed.set()


@dataclass(frozen=True)
class FakeSource:
    """Implements `SourceBackend` over a `FakeRepository`."""

    repository: FakeRepository
    reference: Reference = field(default_factory=Reference)
    interval: float = 0.05
    shows_every_push: bool = True
    epoch: str = ""
    lineage: str = ""

    async def resolve(self) -> Revision:
        """As a real one: by listing references."""
        if self.reference.commit is None:
            self._reach()
        return choose(self.repository.refs, HEADS + "main", self.reference)

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Write the commit's files."""
        self._reach()
        found = self.repository.commits.get(revision.digest.removeprefix("sha1:"))
        if found is None:
            raise Failed("RevisionGone", f"{revision} is not in the repository")
        subject, files = found
        for name, text in files.items():
            (into / name).write_text(text, encoding="utf-8")
        return Fetched(revision, {AUTHOR: "Ada <ada@example.com>", SUBJECT: subject})

    async def changes(self) -> AsyncIterator[None]:
        """At once, when the repository changes, and every interval."""
        while True:
            yield
            try:
                async with asyncio.timeout(self.interval):
                    await self.repository.changed.wait()
            except TimeoutError:
                continue
            self.repository.changed.clear()

    def _reach(self) -> None:
        if not self.repository.present:
            raise Failed("RepositoryNotFound", "the repository does not exist")
