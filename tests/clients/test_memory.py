"""However much peers send without an end, the evaluator's memory stays within what a sidecar has, and a client
beside them is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import pytest

from tests.clients.attacks import bodies, heads, peak_megabytes, uploads
from tests.clients.evaluator import evaluator
from tests.clients.test_evaluator import ready
from tests.clients.up import banner

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.attacks import Attack

MOST_MEGABYTES: Final = 128
PATIENCE: Final = 20.0
PATHS: Final = {"ofrep": "/ofrep/v1/evaluate/flags", "management": "/healthz"}
"""Of each port, one that is known: others are refused before their body comes."""
ASK = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n"


async def attacked(attack: Attack, peers: int, port: int, path: str) -> int:
    """How often a client beside `peers` attackers was answered."""
    answers, over = 0, asyncio.Event()

    async def ask() -> None:
        nonlocal answers
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not over.is_set():
            writer.write(ASK)
            async with asyncio.timeout(PATIENCE):
                assert b"HTTP/1.1" in await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"\n")
            answers += 1
            await asyncio.sleep(0.01)
        writer.close()

    asking = asyncio.create_task(ask())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(attack(port, path) for _ in range(peers)), return_exceptions=True)
    over.set()
    await asking
    return answers


@pytest.mark.parametrize("port", ["ofrep", "management"])
@pytest.mark.parametrize(("attack", "peers"), [(bodies, 100), (heads, 25), (uploads, 450)])
async def test_memory_is_bounded_and_others_are_answered(
    tmp_path: Path, attack: Attack, peers: int, port: str
) -> None:
    (tmp_path / "flags.json").write_text(banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ports = await asyncio.to_thread(ready, running)
        assert await attacked(attack, peers, ports[port], PATHS[port]) > 0
        assert peak_megabytes(running.process.pid) < MOST_MEGABYTES
