"""(k) Delivery: a write, an override and a push until evaluators serve them, and what 10,000 receipts cost.

    python -m benchmarks.delivery

Everything is real: etcd, kube-apiserver, controller and proxy as their service accounts, Git over HTTP,
evaluators as processes, stock clients. All of it shares the machine's processors.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import grpc
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.event import EventDetails, ProviderEvent

from benchmarks.cluster import plane
from benchmarks.commit import document
from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median, percentile
from controller.kube.client import Cluster
from controller.runtime.clock import now
from evaluator.host.times import timestamp
from evaluator.wire.delivery import REPORT, MemberText
from evaluator.wire.delivery_pb2 import ReportRequest, ReportResponse
from tests.cluster.fleets import NAMES, followed_source, wait_served
from tests.cluster.hooks import Hook
from tests.cluster.objects import Namespace
from tests.cluster.pods import PodProcess, pods
from tests.cluster.proxies import ProxyProcess, proxy
from tests.cluster.spines import spine_in
from tests.worlds.objects import configuration, manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.controllers import ControllerProcess
    from tests.cluster.plane import Plane

WRITES, PUSHES, FLAGS, OVERRIDES = 200, 60, 21, 100
MEMBERS, CONNECTIONS, AT_ONCE, ROUND_SECONDS = 10_000, 20, 400, 10.0
PATIENCE = 60.0
NAMESPACE = "shop"
RECEIPTS, FFC = "flagreceipts", "featureflagconfigurations"


def main() -> None:
    """All of them on one plane."""
    # All members come from one address, beside the evaluators of the rows before.
    limits = "--max-streams-per-host", str(2 * MEMBERS), "--max-streams", str(2 * MEMBERS)
    with plane() as (cluster, process, folder), proxy(cluster, folder / "proxy", *limits) as delivering:
        row = asyncio.run(measure_writes(cluster, delivering, folder))
        keep("write to a subscribed client of an evaluator", [row])
        row = asyncio.run(overridden(cluster, delivering, folder))
        keep("FlagOverride to a subscribed client of an evaluator", [row])
        keep(
            f"push to subscribed clients of {len(NAMES)} evaluators, the last of them",
            [measure_pushes(cluster, process, delivering, folder)],
        )
        keep(f"{MEMBERS} receipts", asyncio.run(receipts(cluster, delivering)))


def figures(times: Sequence[float]) -> dict[str, Any]:
    """Of seconds, in milliseconds."""
    found = [each * 1000 for each in times]
    return {"p50 ms": median(found), "p99 ms": percentile(found, 0.99), "max ms": max(found)}


class Reader:
    """A stock client that receives changes, and when it read which value of the flag `number`."""

    def __init__(self, pod: PodProcess) -> None:
        self._read: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._domain = f"{pod.namespace}-{pod.name}"
        self._provider = FlagdProvider(
            host="127.0.0.1", port=pod.port("grpc"), resolver_type=ResolverType.RPC
        )

    def __enter__(self) -> Self:
        api.set_provider_and_wait(self._provider, domain=self._domain)
        client = api.get_client(domain=self._domain)

        def on_change(_: EventDetails) -> None:
            self._read.put((client.get_integer_value("number", -1), time.perf_counter()))

        client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, on_change)
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()

    def wait(self, number: int) -> float:
        """When it read this one, on time.perf_counter's clock. Raises queue.Empty when that takes
        a minute.
        """
        while True:
            found, moment = self._read.get(timeout=PATIENCE)
            if found == number:
                return moment


# -- written and pushed
# ----------------------------------------------------------------------------------------------


async def measure_writes(cluster: Plane, delivering: ProxyProcess, folder: Path) -> dict[str, Any]:
    """WRITES FeatureFlagConfigurations, one after another."""
    client = await Cluster.connect(str(cluster.kubeconfig))
    source, times = followed_source(delivering.target, NAMESPACE, "written"), []
    try:
        await client.apply(numbered_object("written", 0), manager="bench")
        with pods(cluster, NAMESPACE, source, folder / "pods", "written") as [pod], Reader(pod) as reader:
            for number in range(1, WRITES + 1):
                started = time.perf_counter()
                await client.apply(numbered_object("written", number), manager="bench")
                times.append(await asyncio.to_thread(reader.wait, number) - started)
                await asyncio.sleep(0.05)
    finally:
        await client.close()
    return {"writes": WRITES, "flags": FLAGS, **figures(times)}


async def overridden(cluster: Plane, delivering: ProxyProcess, folder: Path) -> dict[str, Any]:
    """OVERRIDES FlagOverrides of one flag, one after another."""
    client = await Cluster.connect(str(cluster.kubeconfig))
    source, times = followed_source(delivering.target, NAMESPACE, "overridden"), []
    variants = {str(number): number for number in range(OVERRIDES + 1)}
    flag = {"state": "ENABLED", "variants": variants, "defaultVariant": "0"}
    served_set = configuration("overridden", flagSpec={"flags": {"number": flag}})
    served_set["metadata"]["namespace"] = NAMESPACE
    try:
        await client.apply(served_set, manager="bench")
        with pods(cluster, NAMESPACE, source, folder / "pods", "overridden") as [pod], Reader(pod) as reader:
            for number in range(1, OVERRIDES + 1):
                started = time.perf_counter()
                await client.apply(override(number), manager="bench")
                times.append(await asyncio.to_thread(reader.wait, number) - started)
                await asyncio.sleep(0.05)
    finally:
        await client.close()
    return {"overrides": OVERRIDES, **figures(times)}


def override(number: int) -> dict[str, Any]:
    """The FlagOverride that sets the flag to this variant for an hour."""
    spec = {
        "flagSetRef": {"name": "overridden"}, "flag": "number", "variant": str(number), "reason": "x",
        "expiresAt": timestamp(now() + timedelta(hours=1)),
    }  # fmt: skip
    found = manifest("FlagOverride", "number", spec)
    found["metadata"]["namespace"] = NAMESPACE
    return found


def numbered_object(name: str, number: int) -> dict[str, Any]:
    """An object whose flag `number` is that."""
    found = configuration(name, flagSpec=json.loads(document(number, FLAGS)))
    found["metadata"]["namespace"] = NAMESPACE
    return found


def measure_pushes(
    cluster: Plane, process: ControllerProcess, delivering: ProxyProcess, folder: Path
) -> dict[str, Any]:
    """PUSHES commits that a webhook reports, one after another."""
    times = []
    with contextlib.ExitStack() as stack:
        spine = stack.enter_context(spine_in(cluster, NAMESPACE, folder))
        hook = Hook(spine, process.receiver)
        spine.wait_ready("ffc")
        source = followed_source(delivering.target, NAMESPACE)
        fleet = stack.enter_context(pods(cluster, NAMESPACE, source, folder / "pods", *NAMES))
        wait_served(spine, f"{len(fleet)}/{len(fleet)}")
        readers = [stack.enter_context(Reader(each)) for each in fleet]
        for number in range(1, PUSHES + 1):
            commit = spine.repository.commit("next", flags__json=document(number, FLAGS))
            started = time.perf_counter()
            hook.send(commit)
            times.append(max(each.wait(number) for each in readers) - started)
            spine.wait_applied(commit)
            time.sleep(0.5)
    return {"pushes": PUSHES, "evaluators": len(NAMES), "flags": FLAGS, **figures(times)}


# -- receipts
# --------------------------------------------------------------------------------------------------------


async def receipts(cluster: Plane, delivering: ProxyProcess) -> list[dict[str, Any]]:
    """MEMBERS join, are steady for a round, and serve another revision."""
    space = Namespace(cluster, NAMESPACE)
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(delivering.target))
            for _ in range(CONNECTIONS)
        ]
        crowd = Crowd(space, delivering, [report_of(each) for each in channels])
        joined = await crowd.measure("all join", await crowd.publish(1))
        # The first round spreads them over its seconds; the second is what there is from then on.
        await crowd.send(await crowd.digest(), pace=ROUND_SECONDS)
        steady = await crowd.measure("steady", await crowd.digest(), pace=ROUND_SECONDS)
        changed = await crowd.measure("all change", await crowd.publish(2))
    return [joined, steady, changed]


def report_of(channel: grpc.aio.Channel) -> Any:
    """The call on one connection."""
    return channel.unary_unary(
        REPORT,
        request_serializer=ReportRequest.SerializeToString,
        response_deserializer=ReportResponse.FromString,
    )


class Crowd:
    """The members, over a few connections of one process."""

    def __init__(self, space: Namespace, delivering: ProxyProcess, calls: list[Any]) -> None:
        self._space, self._delivering, self._calls = space, delivering, calls
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._serves: dict[int, tuple[str, float]] = {}
        """By member: which digest, and since when."""
        self._pid = delivering.pid

    async def publish(self, number: int) -> str:
        """Write the flag set; its digest."""
        before = await self.digest() if number > 1 else ""
        await asyncio.to_thread(self._space.apply, numbered_object("crowd", number))
        await asyncio.to_thread(
            self._space.wait, "ffc", lambda it: it["status"].get("digest", before) != before, "crowd"
        )
        return await self.digest()

    async def digest(self) -> str:
        """Of the flag set as it is."""
        found = await asyncio.to_thread(self._space.get, "ffc", "crowd")
        return str(found["status"]["digest"])

    async def measure(self, name: str, digest: str, pace: float = 0.0) -> dict[str, Any]:
        """One receipt of each member, and what becomes of them."""
        used, made, started = cpu_seconds(self._pid), self._space.api.writes(), time.perf_counter()
        await self.send(digest, pace)
        sent = time.perf_counter() - started
        wanted = f"{MEMBERS}/{MEMBERS}"
        await asyncio.to_thread(
            self._space.wait, "ffc", lambda it: it["status"].get("served") == wanted, "crowd"
        )
        counted = time.perf_counter() - started - sent
        used = cpu_seconds(self._pid) - used
        now = self._space.api.writes()
        return {
            "receipts": MEMBERS,
            "what": name,
            "sent within s": sent,
            "counted s after the last": counted,
            "proxy CPU s": used,
            "proxy CPU us/receipt": used / MEMBERS * 1e6,
            "writes of FlagReceipts": now[RECEIPTS] - made[RECEIPTS],
            "writes of FeatureFlagConfigurations": now[FFC] - made[FFC],
        }

    async def send(self, digest: str, pace: float = 0.0) -> None:
        """All members report, spread over `pace` seconds, or as fast as they are answered."""
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number in range(MEMBERS):
                ahead = started + pace * number / MEMBERS - time.perf_counter()
                if ahead > 0:
                    await asyncio.sleep(ahead)
                await self._turns.acquire()
                tasks.create_task(self._report(number, digest))

    async def _report(self, number: int, digest: str) -> None:
        member = MemberText(f"instance-{number:05}", node=f"node-{number % 100}", version="0")
        now = time.perf_counter()
        if self._serves.get(number, ("", 0.0))[0] != digest:
            self._serves[number] = digest, now
        request = ReportRequest(
            member=member.message(),
            selector=f"{NAMESPACE}/crowd",
            digest=digest,
            served_for_ms=round((now - self._serves[number][1]) * 1000),
        )
        try:
            await self._calls[number % CONNECTIONS](request, timeout=PATIENCE)
        finally:
            self._turns.release()


if __name__ == "__main__":
    main()
