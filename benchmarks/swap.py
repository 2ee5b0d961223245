"""(e) Reading and swapping in 10,000 flags, and the longest pause that an evaluation beside it saw.

python -m benchmarks.swap
"""

from __future__ import annotations

import asyncio
import json
import time

import uvloop

from benchmarks.results import keep, median, percentile
from evaluator.flags import FlagSet, digest, parse
from evaluator.resolve import FlagType, resolve
from evaluator.wiring import Store

ROUNDS = 7
CONTEXT = {"targetingKey": "user-1", "tier": "gold"}


def document(version: int) -> bytes:
    """10,000 flags with targeting."""
    rule = {
        "if": [
            {"==": [{"var": "tier"}, "gold"]},
            "on",
            {"fractional": [["on", version], ["off", 100]]},
        ]
    }
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": rule,
    }
    return json.dumps({"flags": {f"flag-{index}": flag for index in range(10_000)}}).encode()


def read(content: bytes) -> tuple[FlagSet, str]:
    """Parse and digest, as a pipeline does, in a thread beside the serving loop."""
    flag_set = parse(content, file="flags.json").flag_set
    return flag_set, digest(flag_set)


async def measure() -> dict[str, float]:
    """One reading and swap, with an evaluation every turn of the loop beside it."""
    store = Store()
    store.swap(read(document(1))[0], now=0.0)
    pauses: list[float] = []
    done = asyncio.Event()

    async def evaluate() -> None:
        last = time.perf_counter()
        while not done.is_set():
            if store.snapshot is not None:
                resolve(store.snapshot.compiled, "flag-77", FlagType.BOOLEAN, CONTEXT, 0)
            await asyncio.sleep(0)
            now = time.perf_counter()
            pauses.append((now - last) * 1000)
            last = now

    beside = asyncio.create_task(evaluate())
    await asyncio.sleep(0.1)
    pauses.clear()
    started = time.perf_counter()
    flag_set, content = await asyncio.to_thread(read, document(2))
    parsed = time.perf_counter()
    store.swap(flag_set, now=1.0, content=content)
    swapped = time.perf_counter()
    await asyncio.sleep(0.05)
    done.set()
    await beside
    return {
        "read ms": (parsed - started) * 1000,
        "swap ms": (swapped - parsed) * 1000,
        "longest pause ms": max(pauses),
        "p99 pause ms": percentile(pauses, 0.99),
    }


async def main() -> None:
    """Medians of a few rounds."""
    rounds = [await measure() for _ in range(ROUNDS)]
    keep(
        "10,000 flags read and swapped",
        [{name: median([one[name] for one in rounds]) for name in rounds[0]}],
    )


if __name__ == "__main__":
    uvloop.run(main())
