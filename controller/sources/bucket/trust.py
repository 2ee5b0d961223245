"""Requires of a bucket a signed manifest, no older than the accepted one, of just the objects there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.objects.meta import lets_through
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.backend import Accepted, Fetched, Unverified
from controller.sources.bucket.listing import MANIFEST, PROOF, SIGNATURE, SIGNATURE_BYTES, read_manifest
from controller.sources.verification import NotBelievedError, Signer
from controller.sources.verification.cosign import CosignKey, verify_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Set
    from pathlib import Path

    from controller.sources.bucket.listing import BucketManifest
    from controller.sources.trust_advice import TrustAdvice

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
    accepted: Accepted


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
