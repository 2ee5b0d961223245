"""However much peers send without an end, the memory of the evaluator and of the proxy stays within what a
sidecar has, and a client beside them is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.clients.attacks import bodies, heads, peak_megabytes, uploads
from tests.clients.evaluator import evaluator
from tests.clients.test_evaluator import ready
from tests.clients.up import banner
from tests.cluster.patience import within
from tests.cluster.replica import run_replica
from tests.cluster.stubbed import Proxy
from tests.stub_api import stub_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.clients.attacks import Attack

pytestmark = pytest.mark.long

MOST_MEGABYTES: Final = 128
PATIENCE: Final = 20.0
PATHS: Final = {
    "ofrep": "/ofrep/v1/evaluate/flags",
    "sync": "/flagd.sync.v1.FlagSyncService/FetchAllFlags",
    "management": "/healthz",
}
"""Of each port, one that is known: others are refused before their body comes."""
ASK = b"GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n"


async def count_answers(attack: Attack, peers: int, port: int, path: str) -> int:
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


@contextlib.contextmanager
def an_evaluator(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Its process and its ports, once it serves."""
    (folder / "flags.json").write_text(banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=folder) as running:
        yield running.process.pid, ready(running)


@contextlib.contextmanager
def a_proxy(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same of a proxy."""
    with stub_api(folder / "stub") as stub, run_replica(Proxy(folder, stub)) as running:
        within(lambda: running.ask("/readyz")[0] == 200, running.log_text)
        yield running.pid, {"sync": running.sync, "management": running.management}


@pytest.mark.parametrize(
    ("program", "port"),
    [(an_evaluator, "ofrep"), (an_evaluator, "management"), (a_proxy, "sync"), (a_proxy, "management")],
)
async def test_memory_is_bounded_and_others_are_answered(
    tmp_path: Path, program: Callable[[Path], AbstractContextManager[tuple[int, dict[str, Any]]]], port: str
) -> None:
    with program(tmp_path) as (pid, ports):
        # One after another on the same process: memory that an attack leaves in pieces counts, too.
        for attack, peers in ((bodies, 100), (heads, 25), (uploads, 450)):
            assert await count_answers(attack, peers, ports[port], PATHS[port]) > 0
            assert peak_megabytes(pid) < MOST_MEGABYTES, attack.__name__
