"""Verifies a commit of a repository on this machine, and writes its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.sources.backend import NOTHING_ACCEPTED, Accepted, with_signer
from controller.sources.git.commit_tree import Checkout, read_tree, without_author
from controller.sources.git_cli.git_references import Reference

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.backend import Fetched
    from controller.sources.deadline import LimitedTasks, ThreadTasks
    from controller.sources.git.signature_policy import SignaturePolicy


@dataclass(frozen=True, slots=True)
class CommitReader:
    """What a commit must satisfy before its files are written, and where that work runs."""

    tasks: LimitedTasks | ThreadTasks
    """Helpers for what strangers wrote; threads for what the user of a command line named."""
    policy: SignaturePolicy | None = None
    """None: nothing need be signed."""
    reference: Reference = field(default_factory=Reference)
    """What is followed; some policies depend on it."""
    accepted: Accepted = NOTHING_ACCEPTED
    authors: bool = True
    """Whether the result names the commit's author and signer."""

    async def read(self, repository: Path, checkout: Checkout) -> Fetched:
        """Verify the commit, then write its files. Raises Setback, and as `read_tree` does."""
        signer = None
        if self.policy is not None:
            signer = await self.policy.verify(
                self.tasks, repository, self.reference, checkout.revision, self.accepted
            )
        fetched = await self.tasks.run(f"reading {checkout.revision}", read_tree, repository, checkout)
        if not self.authors:
            fetched = without_author(fetched)
        return with_signer(fetched, signer, named=self.authors)
