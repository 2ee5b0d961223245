"""(y) 1,000 evaluators that follow one `flagstaff up` and send it receipts: a commit until the last has it
and until `up` counts them all, and what they cost it at rest.

    python -m benchmarks.machines [EVALUATORS]

`up` is a process of its own; the evaluators are connections of this one, each with its stream, and its report
after each set and as often as `up` asks for. They share the machine's processors.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median
from evaluator.wire.delivery import MARK, REPORT
from evaluator.wire.delivery_pb2 import Member, ReportRequest, ReportResponse
from evaluator.wire.sync_messages import SERVICE
from evaluator.wire.sync_pb2 import SyncFlagsRequest, SyncFlagsResponse
from tests.clients.up import up
from tests.repositories import Repository
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EVALUATORS: Final = 1_000
FLAGS: Final = 100
COMMITS: Final = 5
REST: Final = 30.0
"""Seconds."""
PATIENCE: Final = 120.0


def document(number: int) -> str:
    """FLAGS flags; all of them say which commit it is."""
    metadata = {"number": number}
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on", "metadata": metadata}
    return json.dumps({"flags": {f"flag-{each:03}": flag for each in range(FLAGS)}})


class Evaluators:
    """All of them, and when the last received what."""

    def __init__(self, port: int, count: int) -> None:
        self.port = port
        self.count = count
        self.received = 0
        self.last = 0.0
        self.reports = 0

    async def have_received(self, messages: int) -> None:
        """Until there were so many."""
        await until(lambda: self.received >= messages, poll=0.01)

    async def follow(self, name: str) -> None:
        """One evaluator, until cancelled."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            report = channel.unary_unary(REPORT, ReportRequest.SerializeToString, ReportResponse.FromString)
            subscribe = channel.unary_stream(
                f"{SERVICE}SyncFlags", SyncFlagsRequest.SerializeToString, SyncFlagsResponse.FromString
            )
            stream = subscribe(SyncFlagsRequest(), metadata=((MARK, "1"),))
            digest, changed = "", asyncio.Event()

            async def keep_reporting() -> None:
                pause = 5.0
                while True:
                    changed.clear()
                    if digest:
                        request = ReportRequest(member=Member(instance=name), digest=digest)
                        pause = (await report(request)).next_ms / 1000
                        self.reports += 1
                    try:
                        async with asyncio.timeout(pause):
                            await changed.wait()
                    except TimeoutError:
                        continue

            reporting = asyncio.create_task(keep_reporting())
            try:
                async for message in stream:
                    self.received += 1
                    self.last = time.perf_counter()
                    digest = json.loads(message.flag_configuration)["metadata"]["flagstaff.dev/digest"]
                    changed.set()
            finally:
                reporting.cancel()


async def counted(management: int, wanted: int) -> float:
    """When `up` counts so many evaluators that serve the newest set."""
    ends = time.perf_counter() + PATIENCE
    while time.perf_counter() < ends:
        fleet = await asyncio.to_thread(_fleet, management)
        if fleet and fleet[0]["served"] == fleet[0]["total"] == wanted:
            return time.perf_counter()
        await asyncio.sleep(0.05)
    raise TimeoutError(f"up does not count {wanted} evaluators within {PATIENCE:g} s")


def _fleet(management: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{management}/fleet") as answer:
        fleet: list[dict[str, Any]] = json.load(answer)["flagSets"]
    return fleet


async def measure(count: int) -> AsyncIterator[dict[str, Any]]:
    """The rows."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder) / "repository")
        repository.commit(flags__json=document(0))
        with up(repository) as leader:
            ports = await asyncio.to_thread(leader.ready)
            evaluators, began = Evaluators(ports["sync"], count), time.perf_counter()
            tasks = [asyncio.create_task(evaluators.follow(f"vm-{each:04}")) for each in range(count)]
            joined = await counted(ports["management"], count + 1) - began
            yield {"evaluators": count, "flags": FLAGS, "all connected and counted, s": joined}
            received, known = [], []
            for number in range(1, COMMITS + 1):
                before, committed = evaluators.received, time.perf_counter()
                await asyncio.to_thread(repository.commit, flags__json=document(number))
                await evaluators.have_received(before + count)
                received.append(evaluators.last - committed)
                known.append(await counted(ports["management"], count + 1) - committed)
            yield {"commit to the last evaluator, s": median(received), "to all counted, s": median(known)}
            pid = leader.process.pid
            spent, reports, at = cpu_seconds(pid), evaluators.reports, time.perf_counter()
            await asyncio.sleep(REST)
            passed = time.perf_counter() - at
            yield {
                "CPU of up at rest, cores": (cpu_seconds(pid) - spent) / passed,
                "reports a second": (evaluators.reports - reports) / passed,
                "memory of up, MB": _resident(pid) / 1e6,
            }
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


async def _rows(count: int) -> list[dict[str, Any]]:
    return [row async for row in measure(count)]


if __name__ == "__main__":
    keep("machines", asyncio.run(_rows(int(sys.argv[1]) if sys.argv[1:] else EVALUATORS)))
