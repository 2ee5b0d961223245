"""Turns errors of a disk into setbacks of a stage."""

from __future__ import annotations

import errno

from controller.runtime.reconciling.setbacks import Failed


def as_failed(error: OSError, what: str) -> Failed:
    """The setback for a disk that refused: StorageFull where space or quota ran out, else StorageFailed."""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    cause = error.strerror or type(error).__name__
    return Failed("StorageFull" if full else "StorageFailed", f"{what}: {cause}")
