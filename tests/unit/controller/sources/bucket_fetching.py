"""What a source comes to when it is looked at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.backend import Fetched
    from controller.sources.bucket_backend import BucketBackend


async def fetch_files(source: BucketBackend, into: Path) -> tuple[Fetched, dict[str, str]]:
    """And the files, by their paths below `into`."""
    await asyncio.to_thread(into.mkdir, exist_ok=True)
    found = await source.fetch(await source.resolve(), into)
    return found, await asyncio.to_thread(_files, into)


async def refusal_of(source: BucketBackend, into: Path) -> Setback:
    with pytest.raises(Setback) as setback:
        await fetch_files(source, into)
    return setback.value


def _files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }
