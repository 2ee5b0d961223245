"""A bucket as a source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.api.objects.provenance import SIGNED_AT
from controller.runtime.reconciling.setbacks import Failed, Waiting, as_failed, with_advice
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    Accepted,
    Fetched,
    LocalBackend,
    Revision,
    TreeLimits,
    with_signer,
)
from controller.sources.bucket.listing import PROOF, Listed, revision_of, select
from controller.sources.bucket.reading import Call, call_here, fetch_objects, list_objects
from controller.sources.bucket.trust import ManifestQuestion, ManifestTrust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controller.sources.bucket.place import Bucket


@dataclass(frozen=True, slots=True)
class BucketBackend(LocalBackend):
    """The objects of one bucket."""

    bucket: Bucket
    call: Call = call_here
    limits: TreeLimits = field(default_factory=TreeLimits)
    interval: float = 10.0
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The part of an equivalent FlagSource, in local mode."""
    authors: bool = True
    """Whether status and Events name the signer."""
    trust: ManifestTrust | None = None
    """Decides whose signatures count; None: no signature is required."""
    _last: list[list[Listed]] = field(default_factory=list, init=False, compare=False)
    """The newest listing, if there is one: `fetch` need not ask again for what `resolve` read."""

    @property
    def shows_every_push(self) -> bool:
        """True: each object that is put changes the revision."""
        return True

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys; empty: nothing need be signed."""
        return "" if self.trust is None else self.trust.epoch

    @property
    def lineage(self) -> str:
        """The bucket, of which an older signature is refused; empty: nothing need be signed."""
        return "" if self.trust is None else self.address

    async def resolve(self) -> Revision:
        """List the bucket: one request for each thousand objects. Raises Setback."""
        listing = await self._list_objects()
        if not listing:
            raise Waiting(
                "EmptyBucket", f"{self.bucket.display_name}: no object has this prefix, or may be read"
            )
        return revision_of(listing)

    async def fetch(self, revision: Revision, into: Path, accepted: Accepted = NOTHING_ACCEPTED) -> Fetched:
        """Write the objects below the empty folder `into`, each under its whole key. Raises Setback."""
        listing = self._last[0] if self._last else await self._list_objects()
        if revision_of(listing) != revision:
            raise Failed(
                "RevisionGone", f"{self.bucket.display_name}: {revision} is not what it holds any more"
            )
        chosen, skipped = select(listing, self.limits)
        fetched = Fetched(revision, skipped=tuple(skipped))
        with with_advice(self.advice):
            try:
                if self.trust is not None:
                    return await self._fetch_signed(self.trust, chosen, into, fetched, accepted)
                await fetch_objects(self.call, self.bucket, chosen, into)
            except OSError as error:
                raise as_failed(error, f"the objects of {self.bucket.display_name}") from error
        return fetched

    @property
    def address(self) -> str:
        """The bucket, its prefix, and whose it is."""
        return f"{self.bucket.display_name} {self.bucket.endpoint}".strip()

    @property
    def display_name(self) -> str:
        """The bucket and its prefix."""
        return self.bucket.display_name

    async def _fetch_signed(
        self, trust: ManifestTrust, chosen: Sequence[Listed], into: Path, fetched: Fetched, accepted: Accepted
    ) -> Fetched:
        """The manifest first: of a bucket that is not signed nothing else is fetched."""
        prefix = self.bucket.prefix
        folder = into.joinpath(*prefix.split("/"))
        names = {entry.key.removeprefix(prefix): entry for entry in chosen}
        proof = [names[name] for name in PROOF if name in names]
        await fetch_objects(self.call, self.bucket, proof, into)
        question = ManifestQuestion(self.bucket.display_name, folder, names.keys() - PROOF, fetched, accepted)
        manifest, signer = await asyncio.to_thread(trust.judge, question)
        files = [names[name] for name in names if name not in PROOF]
        await fetch_objects(self.call, self.bucket, files, into)
        await asyncio.to_thread(trust.compare, question, manifest)
        signed = replace(fetched, metadata={SIGNED_AT: manifest.signed_at})
        return with_signer(signed, signer, named=self.authors)

    async def _list_objects(self) -> list[Listed]:
        with with_advice(self.advice):
            self._last[:] = [await list_objects(self.call, self.bucket, self.limits)]
        return self._last[0]
