"""Memory and latency of one evaluator for 200 pods of 20 namespaces, beside a sidecar: python -m
benchmarks.node_evaluator. Addresses of the loopback are the pods'; the proxy is this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.results import keep, median, percentile
from controller.proxy.node_pods import NodePod
from evaluator.http.listener import Listener
from tests.worlds.proxy import Scene, flags

USER = "system:serviceaccount:s:e"
PODS, SPACES, FLAGS = 200, 20, 200
BODY = b'{"context":{"tier":"gold"}}'
REQUEST = (
    b"POST /ofrep/v1/evaluate/flags/f7 HTTP/1.1\r\nhost: n\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
OPTIONS = ("host=127.0.0.1", "port=0", "management-port=0", "sync-port=0", "ofrep-port=0", "log-format=json")


def document() -> dict[str, Any]:
    """A set of FLAGS flags with a rule each."""
    made, rule = flags("v"), {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    for number in range(FLAGS):
        variants = {"on": "x" * 20, "off": "y"}
        made["flags"][f"f{number}"] = {
            "state": "ENABLED", "variants": variants, "defaultVariant": "on", "targeting": rule,
        }  # fmt: skip
    return made


async def start(*words: str) -> tuple[asyncio.subprocess.Process, int, asyncio.Task[bytes]]:
    """An evaluator: its process, its OFREP port, and what reads its log."""
    folder = tempfile.mkdtemp()
    options = [f"--{option}" for option in OPTIONS]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evaluator", "start", *options, f"--state-dir={folder}", *words,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "NODE_NAME": "n1"},
    )  # fmt: skip
    assert process.stderr is not None
    while True:
        line = await process.stderr.readline()
        if b'"listening"' in line:
            return process, json.loads(line)["ofrep"], asyncio.create_task(process.stderr.read())


def memory(process: asyncio.subprocess.Process) -> float:
    """Resident megabytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def ask(port: int, address: str, times: int, took: list[float]) -> None:
    """One client's requests, 50 ms apart."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    for _ in range(times):
        began = perf_counter()
        writer.write(REQUEST)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200" in head[:20], head
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        took.append(perf_counter() - began)
        await asyncio.sleep(0.05)
    writer.close()


def latency(what: str, took: list[float]) -> dict[str, Any]:
    """A row of median and 99th percentile."""
    return {"what": what, "p50 ms": median(took) * 1000, "p99 ms": percentile(took, 0.99) * 1000}


async def measure() -> list[dict[str, Any]]:
    """A row for each pattern of requests, and the memory of both."""
    rows = []
    scene = Scene("enforce", node_evaluators="s/e", max_streams=1000, max_streams_per_host=1000)
    spaces = [f"ns{number}" for number in range(SPACES)]
    places = {(space, "flags") for space in spaces}
    for space in spaces:
        scene.learn(f"{space}/flags", document())
    accounts = [f"system:serviceaccount:{space}:default" for space in spaces]
    scene.reviews.rights = dict.fromkeys((USER, *accounts), places)
    addresses = [f"127.0.1.{number + 1}" for number in range(PODS)]
    scene.nodes.pods["n1"] = [
        NodePod(space, f"p{number}", f"u{number}", "default", frozenset({address}), (f"{space}/flags",))
        for number, address in enumerate(addresses)
        for space in (spaces[number % SPACES],)
    ]
    proxy = Listener(scene.routes, name="sync")
    source = {
        "uri": f"127.0.0.1:{await proxy.start('127.0.0.1', 0)}",
        "provider": "grpc",
        "bearerToken": f"{USER}#pod-n1",
    }
    node, port, log = await start(f"--pods-from={json.dumps(source)}")
    for what, times in (("first requests of all pods", 1), ("all pods together", 20)):
        took: list[float] = []
        await asyncio.gather(*(ask(port, address, times, took) for address in addresses))
        rows.append(latency(what, took))
    took = []
    await ask(port, addresses[0], 200, took)
    rows.append(latency("one pod", took))
    rows.append({"what": f"evaluator of {PODS} pods", "MB": memory(node), "streams": scene.proxy.hub.streams})
    alone = {**source, "selector": "ns0/flags"}
    sidecar, port, beside = await start(f"--sources={json.dumps([alone])}")
    await asyncio.sleep(2)
    took = []
    await ask(port, "127.0.0.1", 200, took)
    rows += [latency("one sidecar", took), {"what": "sidecar", "MB": memory(sidecar)}]
    for process, reading in ((node, log), (sidecar, beside)):
        process.terminate()
        await asyncio.gather(process.wait(), reading)
    scene.proxy.close()
    await proxy.drain(0)
    return rows


if __name__ == "__main__":
    keep(f"an evaluator for {PODS} pods, and a sidecar", asyncio.run(measure()))
