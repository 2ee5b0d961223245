"""The providers of verbs without a cluster: which one a location belongs to, and how it opens it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.api.addresses import SCHEME, parse_location
from controller.authoring.policies import POLICY_FOLDER
from controller.flagsets.layers import is_definition
from controller.runtime.setbacks import Stalled, stall_on_invalid_text
from controller.sources import source_files
from controller.sources.bucket_place import Scheme, parse_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from controller.local.local_options import LocalOptions
    from controller.sources.backend import LocalBackend


@dataclass(frozen=True, slots=True)
class OfflineProvider:
    """What a command line asks of a provider."""

    beginnings: tuple[str, ...]
    """How its locations begin."""
    opened: Callable[[LocalOptions], AbstractAsyncContextManager[LocalBackend]]
    """The source for as long as the block lasts. Raises Setback."""
    default_path: Callable[[str], str] = lambda _: "."
    """Where definitions are in what a location holds, unless paths are named."""
    folder: Callable[[str], Path | None] = lambda _: None
    """The folder of this machine that a location names, if it names one. Raises Setback."""


@contextlib.asynccontextmanager
async def _bucket(options: LocalOptions) -> AsyncIterator[LocalBackend]:
    if options.reference is not None:
        raise Stalled("InvalidReference", "--ref: a bucket has no branches and tags; leave it out")
    # Imported here: users of a repository need not wait for the libraries of buckets, nor have the client's.
    await asyncio.to_thread(import_module, "controller.sources.bucket_client")
    module = await asyncio.to_thread(import_module, "controller.sources.bucket_backend")
    yield module.open_bucket(
        options.source,
        os.environ,
        endpoint=options.endpoint,
        region=options.region,
        interval=options.interval,
        keys=options.verify_keys,
    )


def _prefix(source: str) -> str:
    """Keys stay whole in a bucket's artifact, so its prefix is where definitions are."""
    with contextlib.suppress(Stalled):
        return parse_url(source).prefix or "."
    return "."


@contextlib.asynccontextmanager
async def _artifact(options: LocalOptions) -> AsyncIterator[LocalBackend]:
    # The HTTP client takes long to load, and a Git repository never needs it.
    module = await asyncio.to_thread(import_module, "controller.local.registries")
    async with module.artifact_source(
        options.source,
        reference=options.reference,
        interval=options.interval,
        insecure=options.insecure,
        keys=options.verify_keys,
    ) as artifact:
        yield artifact


@contextlib.asynccontextmanager
async def _repository(options: LocalOptions) -> AsyncIterator[LocalBackend]:
    if options.worktree:
        module = await asyncio.to_thread(import_module, "controller.local.worktree_backend")
        yield module.open_working_tree(options)
        return
    # Its libraries take long to load, and a folder is read without them.
    module = await asyncio.to_thread(import_module, "controller.sources.git_backend")
    source = module.open_source(
        options.source,
        reference=options.reference,
        mirror_root=Path(),
        interval=options.interval,
        # What the source says is to be ignored, and its policies, are needed whatever the paths are.
        paths=(*map(_with_neighbours, options.read_paths), source_files.FILE, POLICY_FOLDER)
        if options.paths
        else (),
    )
    if options.verify_keys:
        if any(name.endswith(".asc") for name in options.verify_keys):
            # The library of PGP may be absent: say so now, and not when a signature is read.
            await asyncio.to_thread(import_module, "controller.sources.pgp_signature")
        # Most repositories are read without it, and it takes long to load.
        module = await asyncio.to_thread(import_module, "controller.sources.git_commits")
        source = replace(source, policy=module.policy_of_keys(options.verify_keys))
    yield source


def _path(source: str) -> Path | None:
    with stall_on_invalid_text():
        return parse_location(source).path


PROVIDERS: Final = (
    OfflineProvider(tuple(f"{store}://" for store in Scheme), _bucket, default_path=_prefix),
    OfflineProvider((SCHEME,), _artifact),
    OfflineProvider(("",), _repository, folder=_path),
)
"""Of those whose beginnings fit, the first one counts."""


def provider_of(source: str) -> OfflineProvider:
    """The provider that a location belongs to."""
    return next(provider for provider in PROVIDERS if source.startswith(provider.beginnings))


def _with_neighbours(path: str) -> str:
    """The path, or the folder of a file: what stands beside it may belong to it, such as tests and lists."""
    return f"{posixpath.dirname(path)}/*".lstrip("/") if is_definition(path) else path
