"""A folder pushed to a registry as an artifact."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.api.objects.provenance import SUBJECT
from controller.api.parsing.oci_address import DEFAULT_TAG
from controller.local.registries import parse_target, registry_of
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.deadline import Deadline
from controller.sources.git.repository import describe
from controller.sources.oci.manifest import AUTHORS, CREATED, REVISION, SOURCE
from controller.sources.oci.oci_credentials import RegistryLogin
from controller.sources.oci.package import Package, package, sign
from controller.sources.verification.cosign import PrivateKey, read_private_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PUSH_TIMEOUT: Final = 600.0
"""Seconds for an upload."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """A folder to push, its target, and the artifact's metadata."""

    target: str
    """`oci://HOST/REPOSITORY[:TAG]`."""
    folder: Path
    insecure: bool = False
    login: tuple[str, str] | None = field(default=None, repr=False)
    """Username and password. None: taken from Docker's own configuration; without an entry there is none."""
    source: str | None = None
    revision: str | None = None
    author: str | None = None
    """None, of all three: what the folder's Git repository says."""
    key: Path | None = None
    """A private key in PEM that the artifact is signed with; None: it is not signed."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    reference: str
    """`oci://HOST/REPOSITORY:TAG@sha256:…`."""
    changed: bool
    """Whether the folder had uncommitted changes, though its revision names a commit."""


class FolderRefusedError(ValueError):
    """The folder, or the key, cannot be used as it is."""


@contextlib.contextmanager
def _refuse_folder(place: Path) -> Iterator[None]:
    """FolderRefusedError for an OSError or Stalled of the block, which has to do with `place`."""
    try:
        yield
    except Stalled as stalled:
        raise FolderRefusedError(f"{place}: {stalled.message}") from stalled
    except OSError as error:
        raise FolderRefusedError(f"{error.filename or place}: {error.strerror or error}") from error


async def push(options: PushOptions) -> Pushed:
    """Push a folder. Raises Setback, FolderRefusedError."""
    address, target = parse_target(options.target, insecure=options.insecure)
    if target.digest:
        raise Stalled(
            "InvalidReference", "an artifact is pushed to a tag; its digest follows from its content"
        )
    tag = target.tag or DEFAULT_TAG
    key = None if options.key is None else await asyncio.to_thread(key_at, options.key)
    made, changed = await asyncio.to_thread(_package_files, options)
    async with (
        registry_of(address, actions="pull,push", login=_login(options.login)) as registry,
        Deadline(PUSH_TIMEOUT, str(address)).limit(),
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
    with _refuse_folder(path):
        content = path.read_bytes()
    try:
        return read_private_key(content)
    except ValueError as error:
        raise FolderRefusedError(f"{path}: {error}") from error


def _package_files(options: PushOptions) -> tuple[Package, bool]:
    folder = options.folder
    if not folder.is_dir():
        raise FolderRefusedError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    description = describe(folder)
    annotations = {} if description is None else {
        SOURCE: description.source,
        REVISION: description.revision + ("-dirty" if description.changed else ""),
        AUTHORS: description.author, CREATED: description.created, SUBJECT: description.subject,
    }  # fmt: skip
    given = {SOURCE: options.source, REVISION: options.revision, AUTHORS: options.author}
    annotations |= {key: text for key, text in given.items() if text is not None}
    with _refuse_folder(folder):
        made = package(folder, annotations)
    return made, description is not None and description.changed and options.revision is None


def _login(given: tuple[str, str] | None) -> RegistryLogin | None:
    return None if given is None else RegistryLogin(*given)
