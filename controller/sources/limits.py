"""Limits on what is read of a source. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """How much of a tree is read."""

    entries: int = 10_000
    """Files, folders and whatever else a tree lists."""
    file_bytes: int = 16 * 1024**2
    """A larger file is skipped; all other limits refuse the whole tree."""
    total_bytes: int = 128 * 1024**2
    """Of all files, those that are skipped for their size too: they are in the copy of a remote."""
    depth: int = 64
    """Folders within folders."""
    listing_bytes: int = 16 * 1024**2
    """Of the commit, and of any one folder's own listing."""

    def within(self, other: TreeLimits) -> bool:
        """Whether whatever `other` refuses is refused by these, too."""
        return all(mine <= theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True))
