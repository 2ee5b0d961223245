"""Temporary folders and files for content that is not verified yet."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from controller.runtime.process.temporary import TemporaryFolder
from controller.runtime.reconciling.setbacks import as_failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import BinaryIO


@contextlib.asynccontextmanager
async def quarantine(purpose: str) -> AsyncIterator[Path]:
    """An empty folder for `purpose`, removed in the end. Raises Failed, also for an OSError of its user."""
    folder = None
    try:
        folder = await asyncio.to_thread(TemporaryFolder.make)
        yield folder.path
    except OSError as error:
        raise as_failed(error, purpose) from error
    finally:
        if folder is not None:
            await asyncio.to_thread(folder.remove)


def create_file(path: Path) -> BinaryIO:
    """Open a new file to write. Follows no link and replaces no file. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o644), "wb")
