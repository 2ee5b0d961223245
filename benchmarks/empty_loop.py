"""How late an event loop is that has nothing to do: the part of another's lag which is the machine's.

    python -m benchmarks.empty_loop

Writes a line when it begins, and at the end of its standard input the bound in milliseconds below which all
lags were.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import uvloop

from evaluator.host.loop_lag import BOUNDS, LoopLag


async def main() -> None:
    """Until standard input ends."""
    logging.disable()
    lag = LoopLag()
    lag.start()
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    lag.stop()
    worst = max((at for at, count in enumerate(lag.counts) if count), default=0)
    print((*BOUNDS, float("inf"))[worst] * 1000)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
