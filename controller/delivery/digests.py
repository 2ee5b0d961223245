"""Compares revisions, commits and digests, each by its name: for people, nothing else does. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.meta import ACCEPT_REVISION

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORTEST: Final = 7
"""Fewest characters that abbreviate a commit's name."""
DIGITS: Final = 12
"""How many hexadecimal digits of a digest people read and write."""
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
_DIGEST: Final = re.compile(rf"({re.escape(ACCEPT_REVISION)}=\S+)|([0-9a-f]{{{DIGITS}}})[0-9a-f]{{28,}}")
"""A guard is passed by a whole digest only, so that of a command to type stays whole."""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of one set; one that is not known is empty."""

    built: str = ""
    """What the FlagSet built and applied last."""
    own: str = ""
    """The object's own flags."""
    composed: str = ""
    """These, and those of a remote provider."""
    effective: str = ""
    """What evaluators are to serve: the composed flags with rollouts and overrides."""

    @property
    def agree(self) -> bool:
        """Whether the object has the content that the FlagSet built. Where the two differ, one of them is
        older, and whether all flags are as a revision has them is not known.
        """
        return not self.built or self.built == self.own

    def is_effective(self, digest: str) -> bool:
        """Whether evaluators are to serve this."""
        return digest == self.effective

    def has(self, own: str | None) -> bool:
        """Whether the object has this content of its own; False where that is not known."""
        return bool(own) and own == self.own


def is_revision(text: str) -> bool:
    """Whether `text` is something that may be waited for."""
    return "@" in text or _COMMIT.fullmatch(text) is not None


def names_revision(wanted: str, revision: str) -> bool:
    """Whether `wanted` is this revision, its commit, or the beginning of its commit."""
    if wanted == revision:
        return True
    commit = revision.rpartition(":")[2]
    return _COMMIT.fullmatch(wanted) is not None and commit.startswith(wanted)


def short(text: str) -> str:
    """Shorten each digest and commit in `text` to 12 digits, but for those that commands accept."""
    return _DIGEST.sub(lambda match: match[1] or match[2], text)


def short_apart(text: str, others: Sequence[str]) -> tuple[str, list[str]]:
    """Shorten a text and others that it is none of, unless one of these would look equal to it."""
    shortened = [short(other) for other in others]
    return (text, [*others]) if short(text) in shortened else (short(text), shortened)
