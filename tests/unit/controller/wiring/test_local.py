from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from controller.runtime.setbacks import Failed
from controller.wiring.local import LocalOptions, open_pipeline

if TYPE_CHECKING:
    from pathlib import Path


async def test_whoever_leaves_while_a_remote_is_silent_leaves_no_thread_behind(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = LocalOptions(f"http://127.0.0.1:{silent.getsockname()[1]}/x", state_dir=tmp_path)
        async with open_pipeline(options) as pipeline:
            asked = asyncio.create_task(pipeline.advance())
            connection, _ = await asyncio.to_thread(silent.accept)
        with connection, pytest.raises(Failed, match="told to stop"):
            await asked
