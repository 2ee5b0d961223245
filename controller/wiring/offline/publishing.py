"""A folder pushed to a registry as an artifact, and one pulled from there."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.api.flagsource import LayerSelector, OciReference
from controller.api.parsing.oci_address import DEFAULT_TAG, parse_target
from controller.api.provenance import SUBJECT
from controller.runtime.reconciling.setbacks import Stalled, stalling
from controller.sources.git.reading.repository import describe
from controller.sources.looking.deadline import Deadline
from controller.sources.oci.manifest import AUTHORS, CREATED, REVISION, SOURCE
from controller.sources.oci.package import package, sign
from controller.sources.oci.provider import OciProvider
from controller.sources.verification.cosign import read_private_key
from controller.wiring.offline.registries import TIMEOUT, registry_of

if TYPE_CHECKING:
    from controller.sources.oci.credentials import Login
    from controller.sources.oci.package import Package
    from controller.sources.provider import Fetched
    from controller.sources.verification.cosign import PrivateKey

PUSH_TIMEOUT: Final = 600.0
"""Seconds for an upload."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What is pushed, where, and the metadata about it."""

    target: str
    """`oci://HOST/REPOSITORY[:TAG]`."""
    folder: Path
    insecure: bool = False
    login: Login | None = None
    """None: taken from Docker's own configuration; without an entry there is none."""
    source: str | None = None
    revision: str | None = None
    author: str | None = None
    """None, of all three: what the folder's Git repository says."""
    key: Path | None = None
    """A private key in PEM that the artifact is signed with; None: it is not signed."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What became of it."""

    reference: str
    """`oci://HOST/REPOSITORY:TAG@sha256:…`."""
    changed: bool
    """Whether the folder had uncommitted changes, though its revision names a commit."""


class FolderRefusedError(ValueError):
    """The folder, or the key, cannot be used as it is."""


async def push(options: PushOptions) -> Pushed:
    """Push a folder. Raises Setback, FolderRefusedError."""
    with stalling():
        address, target = parse_target(options.target, insecure=options.insecure)
    if target.digest:
        raise Stalled(
            "InvalidReference", "an artifact is pushed to a tag; its digest follows from its content"
        )
    tag = target.tag or DEFAULT_TAG
    key = None if options.key is None else await asyncio.to_thread(key_at, options.key)
    made, changed = await asyncio.to_thread(_packaged, options)
    async with (
        registry_of(address, actions="pull,push", login=options.login) as registry,
        Deadline(PUSH_TIMEOUT, str(address)).running(),
    ):
        for blob in (made.config, made.layer):
            await registry.push_blob(blob)
        if key is not None:
            # Before the tag moves, so that its followers never find an unsigned manifest.
            await sign(registry, made.digest, key)
        await registry.push_manifest(tag, made.manifest)
    return Pushed(f"{address}:{tag}@{made.digest}", changed)


def key_at(path: Path) -> PrivateKey:
    """The private key in a file. Raises FolderRefusedError."""
    try:
        return read_private_key(path.read_bytes())
    except OSError as error:
        raise FolderRefusedError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FolderRefusedError(f"{path}: {error}") from error


def _packaged(options: PushOptions) -> tuple[Package, bool]:
    folder = options.folder
    if not folder.is_dir():
        raise FolderRefusedError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    found = describe(folder)
    annotations = {} if found is None else {
        SOURCE: found.source, REVISION: found.revision + ("-dirty" if found.changed else ""),
        AUTHORS: found.author, CREATED: found.created, SUBJECT: found.subject,
    }  # fmt: skip
    given = {SOURCE: options.source, REVISION: options.revision, AUTHORS: options.author}
    annotations |= {key: text for key, text in given.items() if text is not None}
    try:
        made = package(folder, annotations)
    except Stalled as refused:
        raise FolderRefusedError(f"{folder}: {refused.message}") from refused
    except OSError as error:
        raise FolderRefusedError(f"{error.filename or folder}: {error.strerror or error}") from error
    return made, found is not None and found.changed and options.revision is None


async def pull(target: str, output: Path, *, insecure: bool, login: Login | None) -> Fetched:
    """Write the files of an artifact into a folder that is empty, or made.

    Raises Setback, FolderRefusedError.
    """
    with stalling():
        address, named = parse_target(target, insecure=insecure)
    reference = OciReference(tag=named.tag or None, digest=named.digest or None)
    async with registry_of(address, login=login) as registry:
        source = OciProvider(registry, reference, LayerSelector(), TIMEOUT)
        try:
            with await asyncio.to_thread(_beside, output) as folder:
                unfinished = Path(folder) / "files"
                await asyncio.to_thread(unfinished.mkdir)
                fetched = await source.fetch(await source.resolve(), unfinished)
                await asyncio.to_thread(unfinished.replace, output)
        except OSError as error:
            raise FolderRefusedError(f"{error.filename or output}: {error.strerror or error}") from error
    return fetched


def _beside(output: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder on the same disk, whose content may take the place of `output`."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FolderRefusedError(f"{output} is not an empty folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".flagstaff-", dir=output.parent)
