"""The listing of a bucket: its revision, and the objects that can be files. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.artifacts.archive import too_large
from controller.runtime.reconciling.setbacks import Stalled
from controller.sources.provider import Revision

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from controller.sources.provider import TreeLimits

_LONGEST_NAME = 255
"""Bytes that a folder's entry may have."""


@dataclass(frozen=True, slots=True, order=True)
class Listed:
    """One object, as the store lists it."""

    key: str
    etag: str
    """Without quotes."""
    size: int
    """Bytes."""


def index_of(listing: Iterable[Listed]) -> bytes:
    """All keys and ETags, in the form whose digest Flux makes its revision; their order does not matter."""
    return "".join(f"{each.key} {each.etag}\n" for each in sorted(listing)).encode()


def revision_of(index: bytes) -> Revision:
    """The revision of an index."""
    return Revision("", f"sha256:{hashlib.sha256(index).hexdigest()}")


def wanted(listing: Sequence[Listed], limits: TreeLimits) -> tuple[list[Listed], list[str]]:
    """The objects to fetch, and the others as `Fetched.skipped`. Raises Stalled (LimitExceeded)."""
    folders = {each.key[:at] for each in listing for at, sign in enumerate(each.key) if sign == "/"}
    if len(listing) + len(folders) > limits.entries:
        raise Stalled("LimitExceeded", f"the bucket has more than {limits.entries} files and folders")
    chosen, skipped, total = [], [], 0
    for each in sorted(listing):
        if each.key in folders and not each.size:
            # What consoles make for a folder.
            continue
        if why := _refusal(each, folders, limits):
            skipped.append(why)
            continue
        total += each.size
        if total > limits.total_bytes:
            message = f"{each.key}: with it the bucket has more than {limits.total_bytes} bytes"
            raise Stalled("LimitExceeded", message)
        chosen.append(each)
    return chosen, skipped


def _refusal(each: Listed, folders: set[str], limits: TreeLimits) -> str:
    """The entry of `Fetched.skipped` for what is not fetched; empty: it is."""
    parts = each.key.split("/")
    if {"", ".", ".."} & set(parts) or not each.key.isprintable():
        shown = "".join(sign if sign.isprintable() else "?" for sign in each.key)
        return f"{shown}: a file cannot have this name"
    if each.key in folders:
        return f"{each.key}: the name of a folder, too"
    if len(parts) > limits.depth + 1:
        return f"{each.key}: more than {limits.depth} folders deep"
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        return f"{each.key}: its name is longer than {_LONGEST_NAME} bytes"
    if each.size > limits.file_bytes:
        return too_large(each.key, each.size, limits.file_bytes)
    return ""
