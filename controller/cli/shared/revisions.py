"""Revisions as people read them."""

from __future__ import annotations

import re
import sys
from typing import Final

_DIGITS: Final = 12
_DIGEST: Final = re.compile(rf"([0-9a-f]{{{_DIGITS}}})[0-9a-f]{{28,}}")


def short(revision: str) -> str:
    """`main@sha1:46ead10f53b7` of a revision with all its digits; other text as it is."""
    return _DIGEST.sub(r"\1", revision)


def announce(verb: str, revision: str, subject: str) -> None:
    """Say on standard error that a commit was read, not the working tree."""
    quoted = f" {subject!r}" if subject else ""
    print(f"flagstaff {verb}: reading {short(revision)}{quoted}", file=sys.stderr)
