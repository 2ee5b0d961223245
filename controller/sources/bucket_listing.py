"""What a bucket holds: its location, its listing with revision and files, and its signed manifest."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from controller.api.meta import lets_through
from controller.artifacts.archive import too_large
from controller.runtime.plain_text import json_object
from controller.runtime.setbacks import Stalled
from controller.sources.backend import (
    AcceptedRevision,
    Fetched,
    NotBelievedError,
    Revision,
    Signer,
    TreeLimits,
    Unverified,
)
from controller.sources.cosign import verify_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set
    from pathlib import Path

    from controller.sources.cosign_keys import CosignKey
    from controller.sources.secrets import TrustAdvice


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


REFUSED: Final = "InvalidBucketSignature"
REWRITTEN: Final = "HistoryRewritten"
_LISTED: Final = 3
_AGAIN: Final = f"write and sign {MANIFEST} anew, and put all of the folder there, the manifest last"


@dataclass(frozen=True, slots=True)
class ManifestQuestion:
    """Verifies the signed manifest of a bucket."""

    shown: str
    folder: Path
    """The folder that its objects are written into."""
    names: Set[str]
    """The names of the objects in it, without manifest and signature."""
    fetched: Fetched
    """What is known so far: the revision, and what is not fetched."""
    accepted: AcceptedRevision


@dataclass(frozen=True, slots=True)
class ManifestTrust:
    """The trusted keys and policy of one request."""

    keys: tuple[CosignKey, ...]
    epoch: str
    advice: TrustAdvice

    def judge(self, question: ManifestQuestion) -> tuple[BucketManifest, Signer]:
        """The manifest and its signer. Blocks. Raises Unverified, Stalled (HistoryRewritten), OSError."""
        try:
            manifest, signer = self._read(question.folder)
        except NotBelievedError as error:
            message = f"{question.shown}: {error}; {_AGAIN}, or {self.advice.add_key}"
            raise Unverified(REFUSED, message) from None
        self._require_newer(question, manifest)
        if missing := manifest.files.keys() - question.names:
            raise _difference(question, missing, "in its manifest, and not there")
        if extra := (question.names - manifest.files.keys()) | set(question.fetched.skipped):
            raise _difference(question, extra, "there, and not in its manifest")
        return manifest, signer

    def compare(self, question: ManifestQuestion, manifest: BucketManifest) -> None:
        """Raise Unverified where a file of the folder is not what the manifest has, and OSError. Blocks."""
        changed = []
        for name, digest in manifest.files.items():
            with question.folder.joinpath(*name.split("/")).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    changed.append(name)
        if changed:
            raise _difference(question, changed, "other than what was signed")

    def _read(self, folder: Path) -> tuple[BucketManifest, Signer]:
        for name in sorted(PROOF):
            if not (folder / name).is_file():
                raise NotBelievedError(f"it is not signed: it has no {name}")
        with (folder / SIGNATURE).open("rb") as file:
            signature = file.read(SIGNATURE_BYTES).decode("latin-1")
        content = (folder / MANIFEST).read_bytes()
        signer = verify_content(content, signature, self.keys)
        return read_manifest(content), signer

    def _require_newer(self, question: ManifestQuestion, manifest: BucketManifest) -> None:
        before, revision = question.accepted, question.fetched.revision
        if manifest.signed_at >= before.signed_at or lets_through(before.let_through, str(revision)):
            return
        raise Stalled(
            REWRITTEN,
            f"{question.shown}: {revision} was signed at {manifest.signed_at}, and {before.revision}, which "
            f"was accepted last, at {before.signed_at}; sign it anew, or accept it: "
            f"{self.advice.accept}{revision.digest}",
        )


def _difference(question: ManifestQuestion, names: Iterable[str], difference: str) -> Unverified:
    differing = sorted(names)
    more = f" and {len(differing) - _LISTED} more" if len(differing) > _LISTED else ""
    listed = ", ".join(differing[:_LISTED]) + more
    return Unverified(
        REFUSED, f"{question.shown}: {difference}: {listed}; unless files are still being put there, {_AGAIN}"
    )
