"""The signed manifest of a bucket: the names of its objects with their hashes, and its time. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final, TypeGuard

from controller.runtime.user_text.plain_text import json_object
from controller.sources.verification.signer import NotBelievedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

MANIFEST: Final = "flagstaff.manifest"
"""The object beside the others; no file of definitions has such a name."""
SIGNATURE: Final = "flagstaff.manifest.sig"
"""The signature of it, in Base64."""
PROOF: Final = frozenset({MANIFEST, SIGNATURE})
SIGNATURE_BYTES: Final = 16 * 1024
"""A signature may have."""
_TYPE: Final = "flagstaff.dev/manifest/v1"
"""Nothing else that the same key signs says this of itself."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """All objects of a folder."""

    signed_at: str
    """As `time_of` writes it: the later of two is the greater text."""
    files: Mapping[str, str]
    """`sha256:<hex>` by name below the folder, with `/` between folders."""

    def content(self) -> bytes:
        """As it is signed; the same manifest is the same bytes."""
        found = {"type": _TYPE, "signedAt": self.signed_at, "files": dict(sorted(self.files.items()))}
        return json.dumps(found, indent=1).encode() + b"\n"


def time_of(moment: datetime) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_manifest(content: bytes) -> Manifest:
    """What `Manifest.content` made. Raises NotBelievedError."""
    found = json_object(content)
    if found is None or found.get("type") != _TYPE:
        raise NotBelievedError(f"{MANIFEST} is no manifest of files")
    signed_at, files = str(found.get("signedAt")), found.get("files")
    if not _TIME.fullmatch(signed_at) or not _are_digests(files):
        raise NotBelievedError(f"{MANIFEST} does not say when it was signed, or what the files' hashes are")
    return Manifest(signed_at, files)


def _are_digests(files: object) -> TypeGuard[dict[str, str]]:
    return isinstance(files, dict) and all(
        isinstance(each, str) and _DIGEST.fullmatch(each) for each in files.values()
    )
