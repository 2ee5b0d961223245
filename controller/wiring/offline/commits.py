"""The source of a verb that needs no cluster, its folder, and the files of one of its commits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from controller.api.parsing.oci_address import SCHEME
from controller.artifacts.archive import pack, unpack
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.bucket.place import is_bucket
from controller.sources.files import ignore
from controller.sources.files.quarantine import quarantine
from controller.sources.git.provider import open_source
from controller.wiring.local_mode.state import StateIdentity, state_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.sources.provider import Fetched, LocalProvider, Revision
    from controller.wiring.offline.options import LocalOptions


@contextlib.asynccontextmanager
async def opened(options: LocalOptions) -> AsyncIterator[tuple[LocalProvider, Path]]:
    """The source, and the folder for what is kept of it, temporary if none is named. Raises Setback."""
    async with _source(options) as source:
        identity = StateIdentity(source.address, options.reference, options.paths, source.epoch)
        held = contextlib.ExitStack()
        folder = await asyncio.to_thread(held.enter_context, state_folder(options.state_dir, identity))
        try:
            yield source.kept_in(folder), folder
        finally:
            await asyncio.to_thread(held.close)


@contextlib.asynccontextmanager
async def _source(options: LocalOptions) -> AsyncIterator[LocalProvider]:
    if is_bucket(options.source):
        if options.reference is not None:
            raise Stalled("InvalidReference", "--ref: a bucket has no branches and tags; leave it out")
        # Imported here: users of a repository need not wait for the libraries of buckets.
        module = await asyncio.to_thread(import_module, "controller.sources.bucket.command_line")
        yield module.open_bucket(
            options.source,
            os.environ,
            endpoint=options.endpoint,
            region=options.region,
            interval=options.interval,
            keys=options.verify_keys,
        )
        return
    if not is_artifact(options.source):
        source = open_source(
            options.source,
            reference=options.reference,
            mirror_root=Path(),
            interval=options.interval,
            # What the source itself says is to be ignored is needed whatever the paths are.
            paths=(*options.paths, ignore.FILE) if options.paths else (),
        )
        if options.verify_keys:
            # Most repositories are read without it, and it takes long to load.
            module = await asyncio.to_thread(import_module, "controller.sources.git.signatures.trust")
            source = replace(source, trust=module.trust_of(options.verify_keys))
        yield source
        return
    # The HTTP client takes long to load, and a Git repository never needs it.
    module = await asyncio.to_thread(import_module, "controller.wiring.offline.registries")
    async with module.artifact_source(
        options.source,
        reference=options.reference,
        interval=options.interval,
        insecure=options.insecure,
        keys=options.verify_keys,
    ) as artifact:
        yield artifact


def is_artifact(source: str) -> bool:
    """Whether it names an artifact in a registry."""
    return source.startswith(SCHEME)


async def read_commit(options: LocalOptions) -> tuple[Fetched, Mapping[str, bytes]]:
    """The source's revision and its files, as far as `options.paths` could match. Raises Setback."""
    async with opened(options) as (source, _):
        return await files_of(source, await source.resolve())


async def files_of(source: LocalProvider, revision: Revision) -> tuple[Fetched, Mapping[str, bytes]]:
    """A revision's files, as an artifact of it would hold them. Raises Setback."""
    async with quarantine(f"the files of {revision}") as folder:
        fetched = await source.fetch(revision, folder)
        archive = await asyncio.to_thread(pack, folder)
        return fetched, await asyncio.to_thread(unpack, archive)
