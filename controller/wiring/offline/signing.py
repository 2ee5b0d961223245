"""A folder signed for a bucket."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from controller.api.meta import precise_timestamp
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.bucket.listing import MANIFEST, PROOF, SIGNATURE, Listed, Manifest, wanted
from controller.sources.provider import TreeLimits
from controller.sources.verification.cosign import signature_of
from controller.wiring.offline.publishing import FolderRefusedError, key_at
from evaluator.durable import write_file

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


def sign_folder(folder: Path, key: Path, now: datetime) -> int:
    """Write manifest and signature of all files below `folder`, but of `.git`; how many there are.

    Raises FolderRefusedError for a key that cannot be used, and files that a bucket would not be read with.
    """
    private = key_at(key)
    try:
        if key.resolve().is_relative_to(folder.resolve()):
            raise FolderRefusedError(
                f"{key}: is in the folder that is put into the bucket; keep it elsewhere"
            )
        names = _names(folder)
        chosen, refused = wanted(
            [Listed(name, "", (folder / name).stat().st_size) for name in names], TreeLimits()
        )
        if refused or len(chosen) != len(names):
            why = refused[0] if refused else "a file has the name of a folder"
            raise FolderRefusedError(f"{folder}: {why}")
        if not names:
            raise FolderRefusedError(f"{folder}: there is no file in it")
        manifest = Manifest(precise_timestamp(now), {name: _digest(folder / name) for name in names})
        content = manifest.content()
        write_file(folder / SIGNATURE, f"{signature_of(content, private)}\n".encode())
        write_file(folder / MANIFEST, content)
    except Stalled as stalled:
        raise FolderRefusedError(f"{folder}: {stalled.message}") from stalled
    except OSError as error:
        raise FolderRefusedError(f"{error.filename or folder}: {error.strerror or error}") from error
    return len(names)


def _names(folder: Path) -> list[str]:
    """Raises OSError, FolderRefusedError."""
    found = []
    for parent, folders, files in os.walk(folder, onerror=_raise):
        if ".git" in folders:
            folders.remove(".git")
        for entry in (*folders, *files):
            path = os.path.join(parent, entry)
            name = os.path.relpath(path, folder)
            if os.path.islink(path) or (entry in files and not os.path.isfile(path)):
                raise FolderRefusedError(f"{path}: is a link, or no file; put a file in its place")
            if entry in files and name not in PROOF:
                found.append(name)
    return sorted(found)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _raise(error: OSError) -> None:
    raise error
