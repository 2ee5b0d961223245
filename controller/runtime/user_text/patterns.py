"""Regular expressions that users write, in RE2's syntax: a search takes time in proportion to the text, and
compiling one takes no more than is allowed. Pure.
"""

from __future__ import annotations

from typing import Final

import re2

SMALL: Final = 1 << 18
"""Bytes of a compiled expression: some 10,000 instructions. RE2's own bound is 32 times as much, and takes a
second to reach.
"""


def compiled(pattern: str, memory: int = SMALL) -> re2._Regexp:
    """Raises re2.error for what is no expression of RE2, and for one that takes more than `memory` bytes."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    # re2.compile() keeps 128 of them, for every tenant's expressions.
    return re2._Regexp(pattern, options)
