"""Prefixes of the full names of Git's references. Pure, and quick to import for helper processes."""

from __future__ import annotations

from typing import Final

HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
