"""An evaluator in a process of its own, without a source: what the wire benchmarks load.

    python -m benchmarks.serving NUMBER_OF_FLAGS [CERTIFICATE KEY]

Prints the ports as JSON once it is ready, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path

import uvloop

from evaluator.flags.merge import parse
from evaluator.settings import Settings, TlsPaths
from evaluator.store.store import Store
from evaluator.wiring import serve
from tests.stores import swap


def document(flags: int) -> bytes:
    """`static` and `targeting`, and as many others as make up the number."""
    both = {"on": True, "off": False}
    made = {
        f"flag-{index}": {"state": "ENABLED", "variants": both, "defaultVariant": "on"}
        for index in range(flags - 2)
    }
    made["static"] = {"state": "ENABLED", "variants": both, "defaultVariant": "on"}
    made["targeting"] = {
        "state": "ENABLED",
        "variants": {"a": "one", "b": "two"},
        "defaultVariant": "b",
        "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "a", "b"]},
    }
    return json.dumps({"flags": made}).encode()


async def main(flags: int, certificate: str = "", key: str = "") -> None:
    """Serve until standard input ends, by TLS if there are a certificate and its key."""
    store = Store()
    swap(store, parse(document(flags), file="flags.json").flag_set, now=0.0)
    tls = TlsPaths(certificate=Path(certificate), key=Path(key)) if certificate else None
    settings = Settings(
        host="127.0.0.1", port=0, ofrep_port=0, management_port=0, sync_port=0, server_tls=tls
    )
    serving = await serve(store, settings)
    # As the evaluator's own process does: what is there to stay is not looked at again.
    gc.freeze()
    ports = serving.ports
    print(json.dumps({"grpc": ports.grpc, "ofrep": ports.ofrep, "management": ports.management}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await serving.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), *sys.argv[2:]))
