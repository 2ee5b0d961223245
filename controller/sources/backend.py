"""The port of stage 1: what a backend (Git, a bucket, a registry) offers, and who signed a revision."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from dataclasses import astuple, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from controller.api.meta import VERIFIED_BY, ObjectKey
from controller.runtime.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from controller.api.source_spec import VerifySpec
    from controller.sources.freshness import Freshness


class NotBelievedError(Exception):
    """A signature that is missing, damaged or not trusted; the text says why, and names no secret."""


class NotJudgedError(NotBelievedError):
    """A signature that could not be judged within its limits; the text says why. It may be good."""


@dataclass(frozen=True, slots=True)
class Signer:
    """The owner of the key of a verified signature."""

    key: str
    """Kind and fingerprint: `SSH SHA256:…`, `PGP 0123…`."""
    name: str = ""
    """The key's owner, as the trusted keys call it; empty if they do not."""

    def __str__(self) -> str:
        return f"{self.name} ({self.key})" if self.name else self.key


def fingerprint(blob: bytes) -> str:
    """`SHA256:…` of a public key's bytes, as ssh-keygen prints it."""
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip('=')}"


Spec_contra = TypeVar("Spec_contra", contravariant=True)
"""The part of a FlagSource's spec that configures one backend."""
_random = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What one reconcile of a FlagSource asks of its backend."""

    key: ObjectKey
    timeout: float
    """Seconds for all steps together."""
    freshness: Freshness
    account: str | None = None
    """The service account that Secrets are read as; None: that of the installation."""
    verify: VerifySpec | None = None
    """What must be signed, and whose signatures count."""


@dataclass(frozen=True, slots=True)
class AcceptedRevision:
    """The accepted revision, with which a new one is compared."""

    revision: str = ""
    """The last one of the same lineage that was stored; empty: there is none."""
    let_through: str = ""
    """The revision, or the commit in it, that a person allows though it is no descendant."""
    signed_at: str = ""
    """Time at which `revision` was signed, by its metadata; empty: unknown."""


NOTHING_ACCEPTED: Final = AcceptedRevision()


class Unverified(Stalled):
    """The revision is not signed as the spec requires; the one that was accepted before stays."""


@dataclass(frozen=True, slots=True)
class LineAuthor:
    """The revision that wrote a line as it is."""

    commit: str
    """40 hexadecimal digits."""
    author: str
    """`Name <mail>`."""
    subject: str


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision, printed as Flux prints it: `main@sha1:…`, or `sha1:…` without a name."""

    name: str
    """The reference's short name, such as a branch or a tag; may be empty."""
    digest: str
    """`<algorithm>:<hexadecimal digits>`; `sha1:<40 hex>` for a Git commit."""

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.name else self.digest


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a backend fetched, beside the files themselves."""

    revision: Revision
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Entries for `status.artifact.metadata`; `controller.api.meta` has common keys."""
    summary: str = ""
    """The revision in words, for Events: `commit 'Turn it on' of Ada <ada@example.com>`. Empty: no words."""
    skipped: tuple[str, ...] = ()
    """Entries that were not fetched, with the reason: `flags/evil.json: symlink, not followed`."""
    submodules: tuple[tuple[str, str], ...] = ()
    """Path and commit of each submodule of a Git commit; they are not fetched."""


def with_signer(fetched: Fetched, signer: Signer | None, *, named: bool) -> Fetched:
    """`fetched` with its signer; `named`: with the signer's name, too, and not the key alone."""
    if signer is None:
        return fetched
    shown = str(signer) if named else signer.key
    summary = ", ".join(part for part in (fetched.summary, f"signed by {shown}") if part)
    return replace(fetched, metadata={**fetched.metadata, VERIFIED_BY: shown}, summary=summary)


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """Limits on the size of a tree."""

    entries: int = 10_000
    """Files, folders and whatever else a tree lists."""
    file_bytes: int = 16 * 1024**2
    """A larger file is skipped; all other limits refuse the whole tree."""
    total_bytes: int = 128 * 1024**2
    """Bytes of all files, also of those skipped for their size: a copy of a remote contains them."""
    depth: int = 64
    listing_bytes: int = 16 * 1024**2
    """Bytes of the commit, and of the listing of any one folder."""

    def within(self, other: TreeLimits) -> bool:
        """Return whether these limits refuse whatever `other` refuses."""
        return all(mine <= theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True))


class SourceBackend(Protocol):
    """A place of definitions, opened for one request. A method that fails raises a `Setback`."""

    @property
    def shows_every_push(self) -> bool:
        """Whether each push becomes the source's revision; False for a range of versions."""

    @property
    def epoch(self) -> str:
        """Return the `sha256:…` of policy and keys: if it changes, verify again. Empty: never verify."""

    @property
    def lineage(self) -> str:
        """Return the name of the series of revisions for which one was accepted, such as a reference of a
        remote. Empty: any revision may follow any other.
        """

    async def resolve(self) -> Revision:
        """Return the current revision of the reference, without fetching content."""

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Verify `revision`, and write its files below `into`, bounded. Raises Unverified."""


class LocalBackend(SourceBackend, Protocol):
    """The source of a command line, which is followed without a cluster. A backend that inherits from this
    one is polled every interval, is fetched whole, keeps nothing between two polls, and names no authors.
    """

    __slots__ = ()

    @property
    def interval(self) -> float:
        """Seconds between two polls in local mode."""

    @property
    def address(self) -> str:
        """The name that the source's state is kept under; no secret is in it."""

    @property
    def display_name(self) -> str:
        """The source as people may see it: without a name, password or token."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The backend's part of a FlagSource: `{"git": {…}}`. No secret is in it."""

    def with_folder(self, folder: Path) -> Self:
        """Return a copy that stores what it needs between two polls in `folder`."""
        del folder
        return self

    def whole(self) -> Self:
        """Return a copy with all of its files, also those that the command line's paths leave out."""
        return self

    def changes(self) -> AsyncIterator[None]:
        """Yield at once, then whenever the source should be polled."""
        return poll_ticks(self.interval)

    async def uncommitted_files(self, revision: Revision) -> Sequence[str]:
        """Return the files on disk that differ from `revision`, where it is the one that is checked out."""
        del revision
        return ()

    async def last_change(self, revision: Revision, file: str, line: int) -> LineAuthor | None:
        """Return who changed `line` (from 1) of `file` last, or None if the source cannot say."""
        del revision, file, line
        return None


class BackendFactory(Protocol[Spec_contra]):
    """Opens the sources of one backend. A factory that inherits from this one keeps nothing of a source."""

    async def open(self, spec: Spec_contra, request: FetchRequest) -> SourceBackend:
        """Return the source that its part of a spec and its Secrets describe. Raises Setback."""

    def forget(self, key: ObjectKey) -> None:
        """Drop what is kept of a source that is gone or has another backend. Must not fail."""
        del key

    async def sweep(self, now: datetime) -> None:
        """Remove what was kept for sources that are not used any more."""
        del now

    async def make_room(self) -> bool:
        """Remove what is on the volume and not needed, since the volume is full; return whether there was
        anything. Must not fail.
        """
        return False

    async def close(self) -> None:
        """End all processes, and release all resources."""


async def poll_ticks(interval: float) -> AsyncIterator[None]:
    """Yield at once, then every `interval` seconds, a tenth more or less, to spread the sources."""
    while True:
        yield
        await asyncio.sleep(interval * _random.uniform(0.9, 1.1))
