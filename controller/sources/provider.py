"""The port of stage 1: what a provider (Git, a bucket, a registry) offers."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import astuple, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from controller.api.provenance import VERIFIED_BY
from controller.runtime.reconciling.setbacks import Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.api.meta import ObjectKey
    from controller.api.verification import VerifySpec
    from controller.sources.looking.freshness import Freshness
    from controller.sources.verification import Signer

Spec_contra = TypeVar("Spec_contra", contravariant=True)
"""The part of a FlagSource's spec that configures one provider."""
_random = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a source."""

    key: ObjectKey
    timeout: float
    """Seconds for all steps together."""
    freshness: Freshness
    account: str | None = None
    """The service account that Secrets are read as; None: that of the installation."""
    verify: VerifySpec | None = None
    """What must be signed, and whose signatures count."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a new revision is compared with."""

    revision: str = ""
    """The last one that was stored of the same lineage; empty: there is none."""
    let_through: str = ""
    """The revision, or the commit in it, that a person lets through though it is no descendant."""
    signed_at: str = ""
    """When `revision` was signed, by its metadata; empty: not known."""


NOTHING_ACCEPTED: Final = Accepted()


class Unverified(Stalled):
    """What was found is not signed as the spec asks; what was accepted before stays."""


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
    """What a provider fetched, beside the files themselves."""

    revision: Revision
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """For `status.artifact.metadata`; keys that other stages read are in `controller.api.provenance`."""
    summary: str = ""
    """The revision in words, for Events: `commit 'Turn it on' of Ada <ada@example.com>`. Empty: no words."""
    skipped: tuple[str, ...] = ()
    """Entries that were not fetched, with the reason: `flags/evil.json: symlink, not followed`."""
    submodules: tuple[tuple[str, str], ...] = ()
    """Of a Git commit: path and commit of each that was not fetched with it."""


def with_signer(fetched: Fetched, signer: Signer | None, *, named: bool) -> Fetched:
    """`fetched` with its signer; `named`: with the signer's name, too, and not the key alone."""
    if signer is None:
        return fetched
    shown = str(signer) if named else signer.key
    summary = ", ".join(each for each in (fetched.summary, f"signed by {shown}") if each)
    return replace(fetched, metadata={**fetched.metadata, VERIFIED_BY: shown}, summary=summary)


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """How much of a tree is read."""

    entries: int = 10_000
    """Files, folders and whatever else a tree lists."""
    file_bytes: int = 16 * 1024**2
    """A larger file is skipped; all other limits refuse the whole tree."""
    total_bytes: int = 128 * 1024**2
    """Of all files, those that are skipped for their size too: they are in the copy of a remote."""
    depth: int = 64
    listing_bytes: int = 16 * 1024**2
    """Of the commit, and of any one folder's own listing."""

    def within(self, other: TreeLimits) -> bool:
        """Whether whatever `other` refuses is refused by these, too."""
        return all(mine <= theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True))


class Provider(Protocol):
    """A place of definitions, opened for one look. A method that fails raises a `Setback`."""

    @property
    def shows_every_push(self) -> bool:
        """Whether each push becomes the source's revision; False for a range of versions."""

    @property
    def epoch(self) -> str:
        """`sha256:…` of policy and keys: another one means to verify again. Empty: nothing is verified."""

    @property
    def lineage(self) -> str:
        """Where the accepted revision counts, such as a reference of a remote. Empty: revisions are free."""

    async def resolve(self) -> Revision:
        """What the reference points at now, without fetching content."""

    async def fetch(self, revision: Revision, into: Path, accepted: Accepted = NOTHING_ACCEPTED) -> Fetched:
        """Verify `revision`, and write its files below `into`, bounded. Raises Unverified."""


class LocalProvider(Provider, Protocol):
    """The source of a command line, which is followed without a cluster. A provider that inherits from this
    one is looked at every interval, is fetched whole, keeps nothing between two looks, and names no authors.
    """

    __slots__ = ()

    @property
    def interval(self) -> float:
        """Seconds between two looks in local mode."""

    @property
    def address(self) -> str:
        """The name that the source's state is kept under; no secret is in it."""

    @property
    def shown(self) -> str:
        """The source as people may see it: without a name, password or token."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The provider's part of a FlagSource: `{"git": {…}}`. No secret is in it."""

    def kept_in(self, folder: Path) -> Self:
        """The same, keeping what it needs between two looks in `folder`."""
        del folder
        return self

    def whole(self) -> Self:
        """The same with all of its files, also those that the command line's paths leave out."""
        return self

    def changes(self) -> AsyncIterator[None]:
        """At once, then whenever the source should be looked at."""
        return polled(self.interval)

    async def last_change(self, revision: Revision, file: str, line: int) -> LineAuthor | None:
        """Who changed `line` (from 1) of `file` last; None where the source cannot say."""
        del revision, file, line
        return None


class ProviderFactory(Protocol[Spec_contra]):
    """Opens the sources of one provider. A factory that inherits from this one keeps nothing of a source."""

    async def open(self, spec: Spec_contra, look: Look) -> Provider:
        """The source that its part of a spec and its Secrets describe. Raises Setback."""

    def forget(self, key: ObjectKey) -> None:
        """The source is gone or has another provider. Must not fail; `key` may be unknown."""
        del key

    async def sweep(self, now: datetime) -> None:
        """Remove what was kept for sources that are not used any more."""
        del now

    async def close(self) -> None:
        """End what runs, and release what is held."""


async def polled(interval: float) -> AsyncIterator[None]:
    """At once, then every `interval` seconds, a tenth more or less: many do not ask at once."""
    while True:
        yield
        await asyncio.sleep(interval * _random.uniform(0.9, 1.1))
