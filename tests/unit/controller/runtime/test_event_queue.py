"""Events of several namespaces, of which one's are never accepted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter

from controller.api.meta import ObjectKey
from controller.runtime.event import Event, EventType
from controller.runtime.event_queue import EventQueue
from tests.waiting import until


class Server(EventQueue):
    """Keeps what is posted, and never answers for one namespace."""

    def __init__(self, most: int = 100) -> None:
        dropped = Counter("dropped", "Dropped.", registry=CollectorRegistry())
        super().__init__(dropped, resource="test of Events", most=most, drain=0.0)
        self.begun: list[str] = []
        self.posted: list[str] = []

    async def post(self, event: Event) -> None:
        self.begun.append(event.key)
        if event.object.namespace == "hostile":
            await asyncio.Event().wait()
        self.posted.append(event.key)


def event_of(namespace: str, number: int) -> Event:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    source = ObjectKey("FlagSource", namespace, "flags")
    return Event(
        f"{namespace}{number}", source, "v1", "uid", "1", EventType.NORMAL, "Reason", "a message", moment
    )


async def test_events_that_are_never_accepted_hold_up_no_other_namespace() -> None:
    server = Server()
    async with server.post_in_background():
        for number in range(20):
            server.accept(event_of("hostile", number))
        for namespace in ("shop", "bank"):
            for number in range(3):
                server.accept(event_of(namespace, number))
        await until(lambda: len(server.posted) == 6)
        assert [key for key in server.posted if key.startswith("shop")] == ["shop0", "shop1", "shop2"]
        assert [key for key in server.begun if key.startswith("hostile")] == ["hostile0"]


async def test_from_a_full_queue_events_of_the_namespace_with_most_are_dropped() -> None:
    server = Server(most=5)
    server.accept(event_of("shop", 0))
    for number in range(20):
        server.accept(event_of("hostile", number))
    async with server.post_in_background():
        await until(lambda: server.posted == ["shop0"])
