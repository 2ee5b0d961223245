"""What a bucket holds: its listing, with its revision and files, and its signed manifest. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from controller.artifacts.archive import too_large
from controller.runtime.reconciling.setbacks import Stalled
from controller.runtime.user_text.plain_text import json_object
from controller.sources.backend import Revision, TreeLimits
from controller.sources.verification import NotBelievedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LONGEST_NAME = 255
"""Most bytes of the object of an empty folder."""
MANIFEST: Final = "flagstaff.manifest"
"""The object beside the others; no file of definitions has such a name."""
SIGNATURE: Final = "flagstaff.manifest.sig"
"""The object with the manifest's signature, in Base64 or as a bundle of cosign's."""
PROOF: Final = frozenset({MANIFEST, SIGNATURE})
SIGNATURE_BYTES: Final = 64 * 1024
"""Most bytes of a signature."""
_TYPE: Final = "flagstaff.dev/manifest/v1"
"""The type in each signed manifest, so that no other signed document is taken for one."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_SUM: Final = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.+)")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Listed:
    """An object as the store lists it."""

    key: str
    etag: str
    """The ETag without quotes."""
    size: int
    """Bytes."""


def revision_of(listing: Iterable[Listed]) -> Revision:
    """The digest of all keys and ETags, as Flux computes it; their order does not matter."""
    index = "".join(f"{entry.key} {entry.etag}\n" for entry in sorted(listing))
    return Revision("", f"sha256:{hashlib.sha256(index.encode()).hexdigest()}")


def select(listing: Sequence[Listed], limits: TreeLimits) -> tuple[list[Listed], list[str]]:
    """The objects to fetch, and the others as `Fetched.skipped`. Raises Stalled (LimitExceeded)."""
    folders = _folders(listing, limits)
    chosen, skipped, total = [], [], 0
    for entry in sorted(listing):
        if entry.key in folders and not entry.size:
            # The object that consoles create for a folder.
            continue
        if why := _refusal(entry, folders, limits):
            skipped.append(why)
            continue
        total += entry.size
        if total > limits.total_bytes:
            message = f"{entry.key}: with it the bucket has more than {limits.total_bytes} bytes"
            raise Stalled("LimitExceeded", message)
        chosen.append(entry)
    return chosen, skipped


def _folders(listing: Sequence[Listed], limits: TreeLimits) -> set[str]:
    """The folders of all keys that are not too deep. Raises Stalled (LimitExceeded)."""
    folders: set[str] = set()
    for entry in listing:
        # A key that is too deep is skipped: its hundreds of folders would take more memory than all others.
        folder = entry.key if entry.key.count("/") <= limits.depth else ""
        while (folder := folder.rpartition("/")[0]) and folder not in folders:
            folders.add(folder)
        if len(listing) + len(folders) > limits.entries:
            raise Stalled("LimitExceeded", f"the bucket has more than {limits.entries} files and folders")
    return folders


def _refusal(entry: Listed, folders: set[str], limits: TreeLimits) -> str:
    """Return the entry of `Fetched.skipped` for an object that is not fetched, or an empty text."""
    parts = entry.key.split("/")
    if {"", ".", ".."} & set(parts) or not entry.key.isprintable():
        shown = "".join(sign if sign.isprintable() else "?" for sign in entry.key)
        return f"{shown}: a file cannot have this name"
    if entry.key in folders:
        return f"{entry.key}: the name of a folder, too"
    if len(parts) > limits.depth + 1:
        return f"{entry.key}: more than {limits.depth} folders deep"
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        return f"{entry.key}: its name is longer than {_LONGEST_NAME} bytes"
    if entry.size > limits.file_bytes:
        return too_large(entry.key, entry.size, limits.file_bytes)
    return ""


@dataclass(frozen=True, slots=True)
class BucketManifest:
    """The manifest of a folder, which lists all of its objects."""

    signed_at: str
    """Time of the signature, `2026-01-02T03:04:05.678Z`: a later time is a greater text."""
    files: Mapping[str, str]
    """The hexadecimal SHA-256 hash by name below the folder, with `/` between folders."""


def read_manifest(content: bytes) -> BucketManifest:
    """Read a manifest: `# flagstaff.dev/manifest/v1 TIME` and the lines of `sha256sum`, or JSON with `type`,
    `signedAt` and `files`. Raises NotBelievedError.
    """
    if content.lstrip().startswith(b"{"):
        document = json_object(content)
        if document is None or document.get("type") != _TYPE:
            raise NotBelievedError(f"{MANIFEST} is no manifest of files")
        signed_at, files = str(document.get("signedAt")), document.get("files")
        if not _TIME.fullmatch(signed_at) or not _are_digests(files):
            raise NotBelievedError(f"{MANIFEST} lacks signedAt, or the files' hashes")
        return BucketManifest(signed_at, {name: digest[len("sha256:") :] for name, digest in files.items()})
    first, *lines = content.decode(errors="replace").rstrip("\n").split("\n")
    kind, _, signed_at = first.removeprefix("# ").partition(" ")
    if kind != _TYPE or not _TIME.fullmatch(signed_at):
        raise NotBelievedError(f"{MANIFEST} is no manifest of files: it does not begin with # {_TYPE} TIME")
    return BucketManifest(signed_at, dict(_checksum(line) for line in lines))


def _checksum(line: str) -> tuple[str, str]:
    """Return the name and hash of a line as `sha256sum` writes it."""
    match = _SUM.fullmatch(line)
    if match is None:
        raise NotBelievedError(f"{MANIFEST} has a line that sha256sum does not write")
    return match[2], match[1]


def _are_digests(files: object) -> TypeGuard[dict[str, str]]:
    return isinstance(files, dict) and all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in files.values()
    )
