"""Where references of each kind are, in their full names. Pure.

On its own, since helper processes need no more than this of what chooses a reference.
"""

from __future__ import annotations

from typing import Final

HEADS: Final = "refs/heads/"
TAGS: Final = "refs/tags/"
