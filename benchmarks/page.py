"""(r) The page of a cluster with 100 open pages: memory and CPU of its process at rest, and while a flag set
changes once a second and each page asks for its view again, as browsers do.

    python -m benchmarks.page [PAGES]

Everything is real: etcd, kube-apiserver, the process as its service account, a token for each request. Pages,
control plane and process share the machine's processors.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import uvloop

from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median, percentile
from controller.kube.client import Cluster
from tests.cluster.assets import PLANE, find
from tests.cluster.objects import Namespace
from tests.cluster.pages import page, token_of
from tests.cluster.plane import run_plane
from tests.cluster.plugin import install
from tests.go import build

if TYPE_CHECKING:
    from tests.cluster.pages import PageProcess

PAGES, SETS, FLAGS, WRITES, REST_SECONDS = 100, 20, 100, 20, 10.0
PATIENCE = 30.0
NAMESPACE = "bench"
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
VIEWS = ("flags", "delivery")
"""Half of the pages show one, half the other, of the set that changes."""


class OpenPage:
    """A page that a browser has open, and what it shows."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.address = address
        self.shown = -1
        self.changed = asyncio.Event()
        self.at = 0.0

    async def run(self, root: str) -> None:
        """Follow the changes until cancelled."""
        version = await self.load()
        patience = aiohttp.ClientTimeout(total=None)
        async with self.session.get(f"{root}/changes?seen={version}", timeout=patience) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"event: change"):
                    await self.load()

    async def load(self) -> str:
        """Ask for the view; return its version."""
        async with self.session.get(self.address) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        if found := re.search(r"number-(\d{9})", text):
            self.shown = int(found[1])
        self.at = time.perf_counter()
        self.changed.set()
        version = re.search(r'data-version="([^"]*)"', text)
        assert version is not None
        return version[1]

    async def wait_shown(self, number: int) -> float:
        """When it showed a write."""
        while self.shown < number:
            self.changed.clear()
            await self.changed.wait()
        return self.at


def configuration(name: str, number: int) -> dict[str, Any]:
    """FLAGS flags; the key of the first has the number of the write, which the flags' view shows."""
    rule = {"if": [{"in": ["@example.com", {"var": "email"}]}, "on", "off"]}
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": rule,
    }
    flags = {f"a-number-{number:09}": flag, **{f"flag-{each:03}": flag for each in range(FLAGS - 1)}}
    return {
        "apiVersion": "core.openfeature.dev/v1beta1",
        "kind": "FeatureFlagConfiguration",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {}},
        "spec": {"flagSpec": {"flags": flags}},
    }


def memory(process: PageProcess) -> float:
    """Resident MiB."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * PAGE_SIZE / 2**20


async def measure(process: PageProcess, cluster: Cluster, token: str, pages: int) -> dict[str, Any]:
    """Everything about `pages` open pages."""
    for each in range(SETS):
        await cluster.apply(configuration(f"set-{each:02}", 0), manager="bench")
    empty = memory(process)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        addresses = [f"{process.url}/{VIEWS[n % 2]}?set={NAMESPACE}/set-00" for n in range(pages)]
        opened = [OpenPage(session, address) for address in addresses]
        following = [asyncio.create_task(one.run(process.url)) for one in opened]
        await asyncio.wait_for(asyncio.gather(*(one.changed.wait() for one in opened)), PATIENCE)
        await asyncio.sleep(2)
        used = cpu_seconds(process.pid)
        await asyncio.sleep(REST_SECONDS)
        rest = (cpu_seconds(process.pid) - used) / REST_SECONDS
        used, waits = cpu_seconds(process.pid), []
        for number in range(1, WRITES + 1):
            sent = time.perf_counter()
            await cluster.apply(configuration("set-00", number), manager="bench")
            flags_pages = [one for one in opened if "/flags?" in one.address]
            shown = asyncio.gather(*(one.wait_shown(number) for one in flags_pages))
            waits += [at - sent for at in await asyncio.wait_for(shown, PATIENCE)]
            await asyncio.sleep(max(0.0, 1.0 - (time.perf_counter() - sent)))
        used = cpu_seconds(process.pid) - used
        full = memory(process)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return {
        "pages": pages,
        "MiB without pages": empty,
        "MiB with pages": full,
        "KiB/page": (full - empty) * 1024 / pages,
        "CPU at rest, processors": rest,
        "CPU ms/page and change": used / WRITES / pages * 1000,
        "change to view ms, median": median(waits) * 1000,
        "change to view ms, p99": percentile(waits, 0.99) * 1000,
    }


async def rows(process: PageProcess, kubeconfig: str, token: str, pages: int) -> list[dict[str, Any]]:
    cluster = await Cluster.connect(kubeconfig)
    try:
        return [await measure(process, cluster, token, pages)]
    finally:
        await cluster.close()


def main() -> None:
    """Measure and keep."""
    pages = int(sys.argv[1]) if len(sys.argv) > 1 else PAGES
    assets = find() or build(PLANE)
    print(f"{SETS} sets of {FLAGS} flags; {WRITES} changes, one a second")
    with tempfile.TemporaryDirectory() as folder, run_plane(assets, Path(folder) / "plane") as plane:
        install(plane)
        plane.kubectl("create", "namespace", NAMESPACE)
        token = token_of(Namespace(plane, NAMESPACE))
        with (
            page(plane, Path(folder) / "page") as process,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            keep("page", runner.run(rows(process, str(plane.kubeconfig), token, pages)))


if __name__ == "__main__":
    main()
