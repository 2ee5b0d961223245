"""The status of a FlagSet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, OnErrorOmit
from pydantic.alias_generators import to_camel

from controller.api.fields import Model
from controller.api.kube_config import RemoteClusterStatus
from controller.api.status import Status


class ProblemStatus(Model):
    """One problem with its place."""

    severity: Literal["error", "warning"]
    """An error is what flagd could not load or serve; a warning is loaded, and likely a mistake."""
    file: str | None = None
    """The file, from the root of the source."""
    line: int | None = None
    """From 1; absent where the whole file is meant."""
    column: int | None = None
    """In characters, from 1."""
    path: str | None = None
    """The JSON path in the file."""
    flag: str | None = None
    """The key of the flag concerned, where the path is not that of its definition."""
    message: str
    """What is wrong, and what to do."""


class HeldFlag(Model):
    """A flag that is served as an older revision had it."""

    name: str
    """The flag's key."""
    revision: str | None = None
    """The revision whose definition is served."""


class TargetStatus(Model):
    """One object that was written."""

    kind: str | None = None
    """The object's kind."""
    name: str | None = None
    """The object's name."""
    shards: int | None = None
    """How many FlagShards hold its flags; absent where it holds them itself."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One revision that was applied. A `Model` takes ten times the memory, and each FlagSet has up to ten."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    revision: str
    """The revision that was applied."""
    digest: str | None = None
    """Digest of all fields that affect an evaluation."""
    held: int | None = None
    """Flags that are not served as this revision has them, being held at an older definition or left out."""
    author: str | None = None
    """Who wrote the commit, as far as the source tells."""
    subject: str | None = None
    """The first line of the commit's message, as far as the source tells."""
    committed_at: str | None = None
    """When it was committed, as far as the source tells."""
    verified_by: str | None = None
    """Whose signature of it was verified, where the source verifies any."""
    origin: str | None = None
    """The commit and repository that an image says it was made of."""
    applied_at: str | None = None
    """When it was applied."""
    changes: str | None = None
    """How many flags were added, changed and removed, with the first keys."""


class FlagSetStatus(Status):
    """What became of it."""

    last_applied_revision: str | None = None
    """The newest revision whose flags are served, held ones aside."""
    last_attempted_revision: str | None = None
    """The newest revision that was built, applied or not."""
    last_good_revision: str | None = None
    """The newest revision in which no flag was held."""
    digest: str | None = None
    """Digest of all fields that affect an evaluation; provenance is not covered."""
    flag_set_id: str | None = None
    """Under which the set is served."""
    bucketing: str | None = None
    """The generation of fractional that is in use."""
    flags: int | None = None
    """How many flags the set has."""
    served: str | None = None
    """How many evaluators serve this digest, of how many there are."""
    held_flags: int | None = None
    """How many flags are still served by their previous definition."""
    held: Annotated[tuple[HeldFlag, ...], Field(max_length=100)] = ()
    """Flags whose previous definition is still served."""
    problem_count: int | None = None
    """How many problems there are, also where fewer are listed."""
    problems: Annotated[tuple[ProblemStatus, ...], Field(max_length=50)] = ()
    """What is wrong with the definitions, errors first; 50 at most."""
    pending_removals: Annotated[tuple[str, ...] | None, Field(max_length=100)] = None
    """Flags that the revision held by the prune guard would remove; 100 at most."""
    target: tuple[OnErrorOmit[TargetStatus], ...] = ()
    """What was written."""
    remote_clusters: Annotated[tuple[OnErrorOmit[RemoteClusterStatus], ...] | None, Field(max_length=4)] = (
        None
    )
    """Other clusters that have objects of the FlagSet: that of `spec.kubeConfig`, and those before it until
    these objects are removed.
    """
    history: Annotated[tuple[OnErrorOmit[HistoryEntry], ...], Field(max_length=10)] = ()
    """The last revisions, the newest first."""

    @property
    def content(self) -> tuple[str, str]:
        """Return the revision of the last attempt, and the digest if it was applied."""
        revision = self.last_attempted_revision or ""
        # What was attempted and not applied has no digest yet: the status keeps that of what is served.
        applied = self.last_applied_revision in (None, revision)
        return revision, (self.digest or "") if applied else ""
