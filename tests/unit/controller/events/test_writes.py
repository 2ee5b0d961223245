"""What alerts cost the API server: writes of the provider's status, by the loop that all kinds share."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from controller.api.flagprovider import FlagProviderStatus
from controller.events.alert_reconciler import FlagAlertReconciler
from controller.events.deliverer import Deliverer, Senders
from controller.events.outbox import WRITE_ALERT_LATER
from controller.events.provider_reconciler import FlagProviderReconciler
from controller.events.senders import PostResult
from controller.runtime.loop import Loop, Outputs
from controller.runtime.queue import KeyedQueue
from tests.unit.controller.events.test_deliverer import Server
from tests.worlds.events import CHAT, NOW, Desk, Plans, alert, event, status
from tests.worlds.objects import thing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from controller.api.meta import ObjectKey, Resource


@dataclass
class Bench:
    """A provider, its loop, and an API server that counts."""

    server: Server
    desk: Desk
    loop: Loop = field(init=False)
    alerts: Loop = field(init=False)
    """Of FlagAlerts: `woken` is what it is to look at, and when."""
    woken: dict[ObjectKey, float] = field(default_factory=dict)
    alert_writes: int = 0
    deliverer: Deliverer = field(init=False)
    writes: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.deliverer = Deliverer(
            self.desk.outbox, Senders(self.server, self.server, self.server), self.desk.objects, self,
            lambda: NOW, clock, lambda: 0.0,
            lambda _kind, _result: None,
        )  # fmt: skip
        reconciler = FlagProviderReconciler(
            self._secret,
            self._newest,
            self.desk.outbox,
            self.deliverer,
            Plans(),  # type: ignore[arg-type]
            "controller-0",
            allow_local=False,
            flux="",
        )
        queue: KeyedQueue[ObjectKey] = KeyedQueue(clock, lambda: 0.0, places=4, group=lambda _: "")
        self.loop = Loop(reconciler, self.desk.objects, Outputs(self, self), now=lambda: NOW, queue=queue)
        queue = KeyedQueue(clock, lambda: 0.0, places=4, group=lambda _: "")
        alerts = FlagAlertReconciler(self.desk.objects, self.desk.outbox)
        self.alerts = Loop(alerts, self.desk.objects, Outputs(self, self), now=lambda: NOW, queue=queue)
        self.desk.outbox.wake = self.wake
        spec = {"type": "generic", "address": "https://x.example.com/"}
        self.desk.objects.learn(replace(self.desk.provider, spec=spec, resource_version="2"))

    def wake(self, key: ObjectKey, delay: float) -> None:
        if key == CHAT:
            self.loop.wake(key, delay)
        else:
            self.woken[key] = delay

    async def _secret(self, _namespace: str, _name: str) -> None:
        """There is none."""

    async def _newest(self, _key: ObjectKey) -> FlagProviderStatus:
        return FlagProviderStatus()

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource:
        self.writes += resource.key == CHAT
        self.alert_writes += resource.key != CHAT
        return replace(resource, status=status, resource_version=str(int(resource.resource_version) + 1))

    def count_reconcile(self, _key: ObjectKey, result: str, _seconds: float) -> None:
        assert result == "success"
        self.looks += 1

    async def alert(self) -> tuple[int, Mapping[str, Any]]:
        """Writes of the alert's status so far, and the status, once it was looked at again and again."""
        for _ in range(3):
            looks = self.looks
            self.alerts.wake(alert().key)
            await self.until(lambda looks=looks: self.looks > looks)  # type: ignore[misc]
        found = self.desk.objects.get(alert().key)
        return self.alert_writes, {} if found is None else found.status

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 - what is waited for is state of the code under test
                await asyncio.sleep(0.001)

    async def idle(self) -> int:
        """All writes so far, after the provider was looked at again and again."""
        for _ in range(5):
            looks = self.looks
            self.loop.wake(CHAT)
            await self.until(lambda looks=looks: self.looks > looks)  # type: ignore[misc]
        return self.writes

    async def send_all(self, posts: int) -> int:
        """All writes once so many requests were made, and what came of them is written."""
        await self.until(lambda: len(self.server.posts) == posts and not self.desk.box.pending)
        found = self.desk.objects.get
        await self.until(lambda: (each := found(CHAT)) is not None and not each.status.get("waiting"))
        return await self.idle()


@contextlib.asynccontextmanager
async def bench(*answers: PostResult) -> AsyncIterator[Bench]:
    found = Bench(Server(list(answers)), Desk(alert(), thing("FlagSet", "flags", status=status())))
    tasks = [asyncio.create_task(each()) for each in (found.loop.run, found.alerts.run, found.deliverer.run)]
    try:
        yield found
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_idle_provider_costs_no_write_and_a_message_two() -> None:
    async with bench() as found:
        assert await found.idle() == 1
        found.desk.outbox.accept(event("Applied"))
        assert await found.send_all(1) == 3
        found.desk.outbox.accept(event("NewArtifact"))
        assert await found.send_all(2) == 5


async def test_a_burst_costs_less_than_two_writes_a_message() -> None:
    async with bench() as found:
        await found.idle()
        for number in range(5):
            found.desk.outbox.accept(event("Applied", f"change {number}"))
        # One as they come, one as the first arrived, one as the last did; a slow machine has time for others.
        assert await found.send_all(5) < 1 + 2 * 5


async def test_a_burst_costs_one_write_of_its_alert_some_seconds_later() -> None:
    async with bench() as found:
        await found.idle()
        assert (await found.alert())[0] == 1
        for number in range(5):
            found.desk.outbox.accept(event("Applied", f"change {number}"))
        await found.send_all(5)
        assert found.woken == {alert().key: WRITE_ALERT_LATER}
        writes, status = await found.alert()
        assert (writes, status["waiting"], status["lastDelivery"]) == (2, 0, "2026-01-02T03:04:05Z")


async def test_a_provider_that_goes_on_failing_costs_one_write_more_for_a_message() -> None:
    down = PostResult(503, "status 503", 0.01)
    async with bench(*[down] * 2) as found:
        await found.idle()
        found.desk.outbox.accept(event("Applied"))
        assert await found.send_all(3) == 4
