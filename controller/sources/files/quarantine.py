"""A folder for files that are not verified yet."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from controller.artifacts.storage import as_failed
from controller.runtime.process.temporary import TemporaryFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from controller.sources.provider import Revision


@contextlib.asynccontextmanager
async def quarantine(revision: Revision) -> AsyncIterator[Path]:
    """A folder for the files of `revision`, removed with everything in it. Raises Failed, also for an OSError
    of its user.
    """
    try:
        folder = await asyncio.to_thread(TemporaryFolder.make)
    except OSError as error:
        raise as_failed(error, f"a folder for the files of {revision}") from error
    try:
        yield folder.path
    except OSError as error:
        raise as_failed(error, f"the files of {revision}") from error
    finally:
        await asyncio.to_thread(folder.remove)
