"""What is delivered, when, and what the provider's status then says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from controller.api.flagprovider import FlagProviderSpec
from controller.events.alert_reconciler import alert_status
from controller.events.deliverer import Deliverer, Senders
from controller.events.notice import ProviderTarget
from controller.events.outbox import WRITE_ALERT_LATER
from controller.events.senders import PostResult
from tests.statuses import stored_fields
from tests.waiting import run_beside
from tests.worlds.events import CHAT, NOW, Desk, alert, event, failure_event, message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from controller.api.meta import ObjectKey, Resource
    from controller.events.notice import Post
    from controller.events.senders import Sender
    from controller.runtime.http_client import Route

TARGET = ProviderTarget(
    FlagProviderSpec(type="generic", address="https://x.example.com/"), "https://x.example.com/"
)


@dataclass
class Server:
    """Answers as it is reported, then with 200."""

    answers: list[PostResult] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def send(self, post: Post, route: Route) -> PostResult:
        assert (route.proxy, any(route.tls)) == ("", False)
        self.posts.append(post)
        if self.hold is not None:
            await self.hold.wait()
        return self.answers.pop(0) if self.answers else PostResult(200, "status 200")

    def keys(self) -> list[str]:
        return [each.headers["Idempotency-Key"] for each in self.posts]


class Office:
    """A deliverer over a desk; the provider's status is written whenever it asks, as the loop does."""

    def __init__(self, desk: Desk, server: Sender) -> None:
        self.desk, self.written = desk, 0
        self.results: list[tuple[str, str]] = []
        self.later: dict[ObjectKey, float] = {}
        """Alerts whose status is to be written, in so many seconds."""
        self.deliverer = Deliverer(
            desk.outbox, Senders(server, server, server), desk.objects, self, lambda: NOW,
            asyncio.get_running_loop().time, lambda: 1.0,
            lambda kind, result: self.results.append((kind, result)),
        )  # fmt: skip
        desk.outbox.wake = self.wake

    def wake(self, key: ObjectKey, delay: float) -> None:
        if key == CHAT:
            self.store()
        else:
            self.later[key] = delay

    async def write_status(self, resource: Resource, status: Mapping[str, Any]) -> Resource | None:
        if resource.key == CHAT:
            self.store(status)
        else:
            self.desk.objects.learn(replace(resource, status=status, resource_version="2"))
        return resource

    def store(self, status: Mapping[str, Any] | None = None) -> None:
        self.written += 1
        found = self.desk.objects.get(CHAT)
        assert found is not None
        kept = status or stored_fields(self.desk.box.status())
        self.desk.objects.learn(replace(found, status=kept, resource_version=str(self.written + 1)))

    async def until(self, results: int) -> None:
        async with asyncio.timeout(20):
            while len(self.results) < results:  # noqa: ASYNC110 - results come by a plain call
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def office(server: Server) -> AsyncIterator[Office]:
    found = Office(Desk(alert()), server)
    async with run_beside(found.deliverer.run()):
        found.deliverer.use(CHAT, TARGET)
        await asyncio.sleep(0)
        yield found


async def test_events_are_delivered_in_order_and_counted() -> None:
    server = Server()
    async with office(server) as found:
        found.desk.accept(event("Applied"), failure_event(), event("Recovered"))
        await found.until(3)
        assert found.results == [("generic", "delivered")] * 3
        assert [each.type + each.status for each in found.deliverer.last(CHAT)] == ["DeliveredTrue"]
        assert found.desk.box.status().waiting == 0
    assert len(set(server.keys())) == 3


async def test_retry_has_the_same_key_and_keeps_the_order() -> None:
    server = Server([PostResult(503, "status 503")])
    async with office(server) as found:
        found.desk.accept(event("Applied"), event("NewArtifact"))
        await found.until(1)
        (said,) = found.deliverer.last(CHAT)
        assert (said.status, said.reason, said.message) == ("False", "DeliveryFailed", "status 503")
        await found.until(3)
    first, again, second = server.keys()
    assert first == again != second


async def test_alert_status_has_the_outcomes_of_its_messages() -> None:
    async with office(Server([PostResult(503, "status 503", 3_600.0)])) as found:
        other = alert("other", kind="FlagSource")
        found.desk.objects.learn(other)
        found.desk.accept(event("Applied"), event("NewArtifact"))
        await found.until(1)
        assert found.later == {alert().key: WRITE_ALERT_LATER}
        failure = {
            "time": "2026-01-02T03:04:05Z",
            "reason": "DeliveryFailed",
            "message": "FlagProvider chat: status 503",
        }
        waits = {"waiting": 2, "lastDelivery": None, "lastFailure": failure}
        assert alert_status(alert(), found.desk.outbox).fields() == waits
        assert alert_status(other, found.desk.outbox).fields() == {
            "waiting": 0,
            "lastDelivery": None,
            "lastFailure": None,
        }
        found.deliverer.use(CHAT, replace(TARGET, address="https://y.example.com/"))
        await found.until(3)
        arrived = waits | {"waiting": 0, "lastDelivery": "2026-01-02T03:04:05Z"}
        assert alert_status(alert(), found.desk.outbox).fields() == arrived
        # The next leader has it of the alert's own status, as long as nothing new happens.
        again = replace(alert(), status={"lastDelivery": "2026-01-02T03:04:04Z", "lastFailure": failure})
        assert alert_status(again, found.desk.restart().outbox).fields() == waits | {
            "waiting": 0,
            "lastDelivery": "2026-01-02T03:04:04Z",
        }
        found.desk.outbox.forget_alert(alert().key)
        assert not any(alert_status(alert(), found.desk.outbox).fields().values())


async def test_refused_message_does_not_block_the_next() -> None:
    server = Server([PostResult(400, "status 400: no")])
    async with office(server) as found:
        found.desk.accept(event("Applied"), event("NewArtifact"))
        await found.until(2)
        status = found.desk.box.status()
        assert (status.dead, status.last_dead) == (1, "Applied of FlagSet/flags: status 400: no")
    assert found.results == [("generic", "dead"), ("generic", "delivered")]


async def test_unknown_commit_does_not_block_the_next() -> None:
    server = Server([PostResult(404, "status 404: Commit Not Found")])
    spec = FlagProviderSpec(type="gitlab", address="https://x.example.com/shop/flags")
    async with office(server) as found:
        found.deliverer.use(CHAT, replace(TARGET, spec=spec, address="https://x.example.com/shop/flags"))
        found.desk.box.push(message("1"))
        found.desk.box.push(message("2"))
        found.store()
        await found.until(2)
    assert found.results == [("gitlab", "dead"), ("gitlab", "delivered")]
    assert server.keys() == ["1", "2"]


async def test_changed_address_is_tried_at_once() -> None:
    server = Server([PostResult(503, "status 503", 3_600.0)])
    async with office(server) as found:
        found.desk.accept(event("Applied"))
        await found.until(1)
        found.deliverer.use(CHAT, replace(TARGET, address="https://y.example.com/"))
        await found.until(2)
    assert [each.url for each in server.posts] == ["https://x.example.com/", "https://y.example.com/"]


async def test_message_waits_until_its_provider_is_usable() -> None:
    server = Server()
    async with office(server) as found:
        found.deliverer.stop(CHAT)
        found.desk.accept(event("Applied"))
        await asyncio.sleep(0.01)
        assert server.posts == []
        found.deliverer.use(CHAT, TARGET)
        await found.until(1)


async def test_running_send_is_finished_and_written_when_leading_ends() -> None:
    server = Server(hold=asyncio.Event())
    found = Office(Desk(alert()), server)
    task = asyncio.create_task(found.deliverer.run())
    found.deliverer.use(CHAT, TARGET)
    await asyncio.sleep(0)
    found.desk.accept(event("Applied"), event("NewArtifact"))
    while not server.posts:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0)
    assert server.hold is not None
    server.hold.set()
    await asyncio.gather(task, return_exceptions=True)
    resource = found.desk.objects.get(CHAT)
    assert resource is not None
    assert [each["reason"] for each in resource.status["pending"]] == ["NewArtifact"]
    assert len(server.posts) == 1
    alerted = found.desk.objects.get(alert().key)
    assert alerted is not None
    assert alerted.status["lastDelivery"] == "2026-01-02T03:04:05Z"
    assert found.desk.outbox.boxes() == {}


async def test_suspended_provider_is_sent_nothing_until_resumed() -> None:
    server = Server(hold=asyncio.Event())
    async with office(server) as found:
        found.desk.accept(event("Applied"), event("NewArtifact"))
        while not server.posts:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
        resource = found.desk.objects.get(CHAT)
        assert resource is not None
        found.desk.objects.learn(replace(resource, spec={"suspend": True}, resource_version="100"))
        assert server.hold is not None
        server.hold.set()
        await found.until(1)
        await asyncio.sleep(0.01)
        assert len(server.posts) == 1
        found.desk.objects.learn(replace(resource, resource_version="101"))
        found.deliverer.use(CHAT, TARGET)
        await found.until(2)


async def test_request_names_the_namespace_of_the_object() -> None:
    server = Server()
    async with office(server) as found:
        found.deliverer.use(CHAT, replace(TARGET, namespace="shop"))
        found.desk.box.push(message("1", namespace="other"))
        found.desk.box.push(message("2"))
        found.store()
        await found.until(2)
    objects = [json.loads(each.body)["involvedObject"] for each in server.posts]
    assert [each["namespace"] for each in objects] == ["other", "shop"]
