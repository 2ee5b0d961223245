"""Any interleaving of what happens to a hub, against what must hold of each reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from evaluator.wire.hub import Hub
from tests.worlds.hub import FakeScheduler, Reader, join, publish

if TYPE_CHECKING:
    from evaluator.http.messages import Zipped

TOPICS = st.sampled_from("ab")
WHO = st.integers(0, 3)


class Watched(Reader):
    """Notes for each value how new it was, and may act from within."""

    def __init__(self, machine: Deliveries, topic: str, room: float, failing: bool) -> None:
        super().__init__(room, failing)
        self.machine = machine
        self.topic = topic
        self.newest = -1
        self.left = False

    def send(self, payload: bytes | Zipped) -> bool:
        assert isinstance(payload, bytes)
        if not super().send(payload):
            return False
        self.hear(int(payload.split()[0]))
        return True

    def retract(self, reason: object) -> None:
        super().retract(reason)
        assert isinstance(reason, int)
        self.hear(reason)

    def hear(self, number: int) -> None:
        if number <= self.newest:
            self.machine.violations.append(f"{number} after {self.newest}")
        if self.left:
            self.machine.violations.append(f"{number} after it left")
        self.newest = number


class Deliveries(RuleBasedStateMachine):
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = FakeScheduler()
        self.hub = Hub(self.scheduler.queue())
        self.now = 0
        self.newest: dict[str, bytes | tuple[str, object] | None] = {"a": None, "b": None}
        self.live: list[Watched] = []
        self.violations: list[str] = []
        """Kept, not raised: the hub would take it for the reader's failure."""

    def number(self) -> int:
        self.now += 1
        return self.now

    @rule(topic=TOPICS, large=st.booleans())
    def publish(self, topic: str, large: bool) -> None:
        payload = b"%d " % self.number() + bytes(300_000 if large else 0)
        self.newest[topic] = payload
        publish(self.hub, topic, payload)

    @rule(topic=TOPICS)
    def publish_the_same_again(self, topic: str) -> None:
        value = self.newest[topic]
        if isinstance(value, bytes):
            publish(self.hub, topic, bytes(bytearray(value)))

    @rule(topic=TOPICS)
    def retract(self, topic: str) -> None:
        number = self.number()
        self.newest[topic] = ("gone", number)
        self.hub.retract(topic, number)

    @rule(
        target=readers,
        topic=TOPICS,
        room=st.sampled_from([0, 1, 2, float("inf")]),
        failing=st.integers(0, 5).map(lambda drawn: drawn == 0),
        deed=st.sampled_from(["none"] * 5 + ["leave", "publish", "push", "join", "drop another"]),
    )
    def subscribe(self, topic: str, room: float, failing: bool, deed: str) -> Watched:
        reader = Watched(self, topic, room, failing)
        reader.on_receive = lambda: self.act(reader, deed)
        self.live.append(reader)
        join(self.hub, topic, reader)
        return reader

    def act(self, reader: Watched, deed: str) -> None:
        reader.on_receive = None
        if deed in ("publish", "push"):
            self.publish(reader.topic, large=False)
            if deed == "push" and reader.subscription is not None:
                self.hub.offer(reader.subscription)
        elif deed == "join":
            self.live.append(other := Watched(self, reader.topic, 1, failing=False))
            join(self.hub, reader.topic, other)
        elif deed == "leave":
            self.leave(reader)
        elif deed == "drop another":
            self.leave(self.live[0])

    def leave(self, reader: Watched) -> None:
        # One that acts within `subscribe` has no subscription yet.
        if reader.subscription is not None:
            self.hub.unsubscribe(reader.subscription)

    @rule(reader=consumes(readers))
    def unsubscribe(self, reader: Watched) -> None:
        self.leave(reader)
        reader.left = True

    @rule(reader=readers, room=st.sampled_from([0, 1, float("inf")]))
    def read(self, reader: Watched, room: float) -> None:
        reader.read(self.hub, room)

    @rule()
    def slice(self) -> None:
        self.scheduler.step()

    @invariant()
    def who_failed_is_gone(self) -> None:
        failed = [reader for reader in self.live if reader.errors]
        assert all(each.subscription is None or not each.subscription.live for each in failed)
        assert all([type(each) for each in reader.errors] == [OSError] for reader in failed)

    @invariant()
    def nobody_hears_what_it_should_not(self) -> None:
        assert self.violations == []

    @invariant()
    def streams_are_counted_right(self) -> None:
        assert self.hub.streams == len(list(self.hub.subscriptions()))

    @rule()
    def come_to_rest(self) -> None:
        self.scheduler.run()
        for subscription in self.hub.subscriptions():
            reader = subscription.subscriber
            assert isinstance(reader, Watched)
            newest = self.newest[reader.topic]
            if reader.writable and newest is not None:
                assert reader.received[-1] == newest

    def teardown(self) -> None:
        for subscription in self.hub.subscriptions():
            reader = subscription.subscriber
            assert isinstance(reader, Watched)
            reader.failing = False
            reader.room = float("inf")
            self.hub.offer(subscription)
        self.come_to_rest()


Deliveries.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDeliveries = Deliveries.TestCase
