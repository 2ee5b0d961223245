"""An artifact in a container registry as a source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.provenance import AUTHOR
from controller.api.parsing.oci_address import DEFAULT_TAG
from controller.api.parsing.patterns import compile_pattern
from controller.artifacts.archive import DEFAULT_LIMITS, ArchiveRefused
from controller.runtime.reconciling.setbacks import Failed, Waiting
from controller.runtime.tenancy.places import Places
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    Accepted,
    Fetched,
    LocalBackend,
    Revision,
    TreeLimits,
    with_signer,
)
from controller.sources.deadline import Deadline
from controller.sources.files.quarantine import quarantine
from controller.sources.oci.layer import copy, extract
from controller.sources.oci.manifest import TITLE, Layer, chosen_manifest, read_manifest
from controller.sources.oci.registry_client import NotFound
from controller.sources.versions import highest, near, shorten_list

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from controller.api.sources.oci_source import LayerSelector, OciReference
    from controller.sources.oci.registry import Registry
    from controller.sources.oci.signatures import CosignTrust


TIMEOUT: Final = 60.0
"""Seconds for one step, unless there is a deadline."""


@dataclass(frozen=True, slots=True)
class OciBackend(LocalBackend):
    """One repository of a registry at one reference."""

    registry: Registry
    reference: OciReference
    selector: LayerSelector
    deadline: Deadline | None = None
    """For all steps together, where the backend is opened for one request; None: each has `TIMEOUT`."""
    places: Places = field(default_factory=partial(Places, 1), compare=False)
    """Limits the fetches."""
    namespace: str = ""
    interval: float = 10.0
    limits: TreeLimits = field(default_factory=TreeLimits)
    authors: bool = True
    """Whether what is fetched names its author."""
    trust: CosignTrust | None = None
    """Decides whose signatures count; None: no signature is required."""

    @property
    def shows_every_push(self) -> bool:
        """A tag that was pushed may be no version of the range."""
        return self.reference.digest is not None or self.reference.semver is None

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys; empty: nothing need be signed."""
        return "" if self.trust is None else self.trust.epoch

    @property
    def lineage(self) -> str:
        """Empty: artifacts have no history, so any revision may follow."""
        return ""

    async def resolve(self) -> Revision:
        """Ask for the digest of a tag; a pinned digest needs no request. Raises Setback."""
        ref = self.reference
        if ref.digest is not None:
            return Revision("", ref.digest)
        async with self._time_limit():
            tag = await self._highest(ref.semver) if ref.semver is not None else ref.tag or DEFAULT_TAG
            try:
                return Revision(tag, await self.registry.digest_of(tag))
            except NotFound as gone:
                raise await self._no_tag(tag, gone) from gone

    async def fetch(self, revision: Revision, into: Path, accepted: Accepted = NOTHING_ACCEPTED) -> Fetched:
        """Write the files of `revision` below the empty folder `into`. Raises Setback."""
        del accepted
        async with self.places.place(self.namespace):
            content = await self._manifest(revision, revision.digest)
            signer = None
            if self.trust is not None:
                async with self._time_limit():
                    signer = await self.trust.signer(self.registry, revision.digest)
            # A signature of the index covers the digest in it.
            if (chosen := chosen_manifest(content)) is not None:
                content = await self._manifest(revision, chosen)
            manifest = read_manifest(content, self.selector.media_type)
            skipped = await self._write(manifest.layer, into)
        metadata, summary = manifest.metadata, manifest.summary
        if not self.authors:
            metadata.pop(AUTHOR, None)
        return with_signer(Fetched(revision, metadata, summary, skipped), signer, named=self.authors)

    @property
    def address(self) -> str:
        """The name that distinguishes it from other sources."""
        return self.display_name

    @property
    def display_name(self) -> str:
        """The repository, and what of it is followed."""
        ref = self.reference
        if ref.digest is not None:
            return f"{self.registry.address}@{ref.digest}"
        return f"{self.registry.address}:{ref.semver or ref.tag or DEFAULT_TAG}"

    @property
    def spec(self) -> dict[str, Any]:
        """Return the part of an equivalent FlagSource."""
        address = self.registry.address
        reference = self.reference.model_dump(by_alias=True, exclude_none=True)
        return {"oci": {"url": str(address), "ref": reference, "insecure": address.insecure}}

    async def _highest(self, semver: str) -> str:
        tags = await self._tags()
        # There may be a hundred thousand.
        tag, others = await asyncio.to_thread(_highest, tags, semver, self.reference.semver_filter)
        if not tag:
            message = f"no tag matches the version range {semver!r}; {others}"
            raise Failed("ReferenceNotFound", f"{self.registry.address}: {message}")
        return tag

    def _time_limit(self) -> contextlib.AbstractAsyncContextManager[None]:
        return (self.deadline or Deadline(TIMEOUT, self.display_name)).limit()

    async def _tags(self) -> list[str]:
        try:
            tags = await self.registry.tags()
        except NotFound as gone:
            raise Failed("RepositoryNotFound", gone.message) from gone
        if not tags:
            raise Waiting("EmptyRepository", f"{self.registry.address}: the repository has no tag yet")
        return tags

    async def _no_tag(self, tag: str, gone: NotFound) -> Failed:
        """Name the existing tags, for the message about a missing one."""
        tags = await self._tags()
        message = f"{self.registry.address}: no tag {tag!r}; {near(tag, tags, 'tags')}"
        return Failed("ReferenceNotFound", message) if tag not in tags else gone

    async def _manifest(self, revision: Revision, digest: str) -> bytes:
        try:
            async with self._time_limit():
                return await self.registry.manifest(digest)
        except NotFound as gone:
            message = f"{revision} is not, or no longer, in the registry: {gone.message}"
            raise Failed("RevisionGone", message) from gone

    async def _write(self, layer: Layer, into: Path) -> tuple[str, ...]:
        if layer.size > DEFAULT_LIMITS.compressed_bytes:
            most = DEFAULT_LIMITS.compressed_bytes
            raise ArchiveRefused(f"the layer has {layer.size} bytes of {most} that it may have")
        async with quarantine(f"the files of {self.registry.address}") as folder:
            with (folder / "layer").open("w+b") as file:
                async with self._time_limit():
                    await self.registry.save_blob(layer.digest, layer.size, file)
                file.seek(0)
                if self.selector.operation == "copy":
                    title = layer.annotations.get(TITLE, "")
                    return await asyncio.to_thread(copy, file, title, layer.size, into, self.limits)
                return await asyncio.to_thread(extract, file, into, self.limits)


def _highest(tags: list[str], semver: str, semver_filter: str | None) -> tuple[str, str]:
    """Return the tag of the highest version, and the tags that were considered, in words. Blocks for seconds
    where there are very many.
    """
    if semver_filter is not None:
        wanted = compile_pattern(semver_filter)
        tags = [tag for tag in tags if wanted.search(tag)]
    return highest(tags, semver) or "", shorten_list(sorted(tags), "tags")
