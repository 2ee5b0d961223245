from __future__ import annotations

import sys

import pytest

from evaluator.wire.hub import Hub
from tests.worlds.hub import BUDGET, FakeScheduler, Reader, join, publish


class SubscribedHub:
    def __init__(self) -> None:
        self.scheduler = FakeScheduler()
        self.hub = Hub(self.scheduler.queue())

    def publish(self, *values: bytes, key: object = "t") -> None:
        for value in values:
            publish(self.hub, key, value)
        self.scheduler.run()

    def retract(self, reason: object = None) -> None:
        self.hub.retract("t", reason)
        self.scheduler.run()

    def join(self, reader: Reader | None = None, key: object = "t") -> Reader:
        return join(self.hub, key, reader)


@pytest.fixture
def scene() -> SubscribedHub:
    return SubscribedHub()


def test_a_subscriber_gets_the_current_value_at_once_and_each_change(scene: SubscribedHub) -> None:
    scene.publish(b"1")
    reader = scene.join()
    assert reader.received == [b"1"]
    scene.publish(b"2")
    assert reader.received == [b"1", b"2"]


def test_a_subscriber_may_come_before_the_first_value(scene: SubscribedHub) -> None:
    reader = scene.join()
    assert reader.received == []
    scene.publish(b"1")
    assert reader.received == [b"1"]


def test_a_slow_reader_gets_the_newest_value_and_none_in_between(scene: SubscribedHub) -> None:
    reader = scene.join(Reader(room=1))
    scene.publish(b"1")
    for number in range(2, 1000):
        scene.publish(b"%d" % number)
    assert reader.received == [b"1"]
    reader.read(scene.hub)
    assert reader.received == [b"1", b"999"]
    assert scene.hub.skipped == 997


def test_a_burst_of_changes_is_one_message(scene: SubscribedHub) -> None:
    reader = scene.join()
    scene.publish(b"1", b"2", b"3")
    assert reader.received == [b"3"]


def test_a_reader_that_never_reads_delays_no_other(scene: SubscribedHub) -> None:
    stuck, quick = scene.join(Reader(room=0)), scene.join()
    scene.publish(b"1")
    scene.publish(b"2")
    assert (stuck.received, quick.received) == ([], [b"1", b"2"])


def test_an_equal_value_is_not_sent(scene: SubscribedHub) -> None:
    reader = scene.join()
    scene.publish(b"1")
    scene.publish(b"1")
    assert reader.received == [b"1"]


def test_a_change_reverted_before_it_could_be_sent_is_never_sent(scene: SubscribedHub) -> None:
    reader = scene.join(Reader(room=1))
    scene.publish(b"1")
    scene.publish(b"2")
    scene.publish(b"1")
    reader.read(scene.hub)
    assert reader.received == [b"1"]


def test_a_subscriber_that_fails_is_dropped_alone(scene: SubscribedHub) -> None:
    readers = [scene.join(Reader(failing=number == 1)) for number in range(3)]
    scene.publish(b"1")
    assert [reader.received for reader in readers] == [[b"1"], [], [b"1"]]
    assert [type(error) for error in readers[1].errors] == [OSError]
    assert (scene.hub.streams, scene.hub.listeners("t")) == (2, 2)


def test_a_retraction_is_sent_with_its_reason_and_the_topic_may_come_back(scene: SubscribedHub) -> None:
    reader = scene.join()
    scene.publish(b"1")
    scene.retract("deleted")
    scene.retract("deleted")
    scene.publish(b"1")
    assert reader.received == [b"1", ("gone", "deleted"), b"1"]


def test_a_retraction_reverted_before_it_could_be_sent_is_never_sent(scene: SubscribedHub) -> None:
    reader = scene.join(Reader(room=1))
    scene.publish(b"1")
    scene.retract()
    scene.publish(b"1")
    reader.read(scene.hub)
    assert reader.received == [b"1"]


def test_a_late_subscriber_receives_the_retraction(scene: SubscribedHub) -> None:
    scene.publish(b"1")
    scene.retract("deleted")
    assert scene.join().received == [("gone", "deleted")]


def test_a_topic_is_forgotten_once_it_has_neither_value_nor_subscriber(scene: SubscribedHub) -> None:
    reader = scene.join()
    scene.publish(b"1")
    assert reader.subscription is not None
    scene.hub.unsubscribe(reader.subscription)
    assert scene.hub.topics == 1
    scene.hub.drop("t")
    assert scene.hub.topics == 0
    assert scene.join().received == []


def test_a_dropped_value_is_unknown_to_late_subscribers_until_the_next(scene: SubscribedHub) -> None:
    early = scene.join()
    scene.publish(b"1")
    scene.hub.drop("t")
    late = scene.join()
    scene.publish(b"1")
    assert (early.received, late.received) == ([b"1"], [b"1"])


def test_a_subscriber_may_leave_while_it_receives(scene: SubscribedHub) -> None:
    reader, other = Reader(), scene.join()

    def leave() -> None:
        assert reader.subscription is not None
        scene.hub.unsubscribe(reader.subscription)

    scene.join(reader)
    reader.on_receive = leave
    scene.publish(b"1")
    scene.publish(b"2")
    assert (reader.received, other.received) == ([b"1"], [b"1", b"2"])


def test_a_subscriber_may_throw_another_out_while_it_receives(scene: SubscribedHub) -> None:
    first, second = scene.join(), scene.join()

    def throw_out() -> None:
        assert second.subscription is not None
        scene.hub.unsubscribe(second.subscription)

    first.on_receive = throw_out
    scene.publish(b"1")
    assert (first.received, second.received) == ([b"1"], [])


def test_a_broadcast_lets_other_work_in_between(scene: SubscribedHub) -> None:
    readers = [scene.join() for _ in range(10 * BUDGET)]
    publish(scene.hub, "t", b"1")
    scene.scheduler.step()
    notified = sum(bool(reader.received) for reader in readers)
    assert 0 < notified <= BUDGET
    scene.scheduler.run()
    assert all(reader.received == [b"1"] for reader in readers)


def test_values_that_take_long_to_send_make_shorter_slices(scene: SubscribedHub) -> None:
    def take_long() -> None:
        scene.scheduler.seconds += BUDGET

    readers = [scene.join(Reader(on_receive=take_long)) for _ in range(100)]
    publish(scene.hub, "t", b"1")
    scene.scheduler.step()
    assert sum(bool(reader.received) for reader in readers) == 1


def test_a_small_topic_does_not_wait_for_a_large_one(scene: SubscribedHub) -> None:
    for _ in range(10_000):
        scene.join(key="large")
    reader = scene.join(key="small")
    publish(scene.hub, "large", b"1")
    publish(scene.hub, "small", b"1")
    scene.scheduler.step()
    assert reader.received == [b"1"]


def test_the_last_in_line_is_notified_however_fast_values_change(scene: SubscribedHub) -> None:
    readers = [scene.join() for _ in range(4 * BUDGET)]
    for number in range(40):
        publish(scene.hub, "t", b"%d" % number)
        scene.scheduler.step()
    assert all(reader.received for reader in readers)


def test_an_error_that_nobody_expects_stops_no_broadcast(scene: SubscribedHub) -> None:
    class Hopeless(Reader):
        def on_failure(self, error: Exception) -> None:
            raise RuntimeError("and again") from error

    readers = [scene.join(), scene.join(Hopeless(failing=True)), scene.join()]
    publish(scene.hub, "t", b"1")
    with pytest.raises(RuntimeError, match="and again"):
        scene.scheduler.step()
    scene.scheduler.run()
    assert [reader.received for reader in readers] == [[b"1"], [], [b"1"]]


def test_everyone_can_be_listed(scene: SubscribedHub) -> None:
    readers = {scene.join(key="a"), scene.join(key="b")}
    assert {each.subscriber for each in scene.hub.subscriptions()} == readers
    assert (scene.hub.topics, scene.hub.streams, scene.hub.listeners("c")) == (2, 2, 0)


def test_a_subscription_is_small_and_holds_no_payload(scene: SubscribedHub) -> None:
    payload = bytes(1000)
    scene.join(Reader(room=1))
    before = sys.getrefcount(payload)
    publish(scene.hub, "t", payload)
    scene.scheduler.run()
    subscription = next(scene.hub.subscriptions())
    scene.publish(b"other")
    assert isinstance(subscription.subscriber, Reader)
    subscription.subscriber.received.clear()
    assert sys.getrefcount(payload) == before
    assert sys.getsizeof(subscription) <= 96


def test_a_quiet_value_is_for_new_subscribers_and_they_receive_the_next(scene: SubscribedHub) -> None:
    scene.publish(b"1")
    before = scene.join()
    publish(scene.hub, "t", b"1, stale", quiet=True)
    scene.scheduler.run()
    after = scene.join()
    scene.publish(b"1")
    assert (before.received, after.received) == ([b"1"], [b"1, stale", b"1"])


def test_a_quiet_value_does_not_silence_the_one_before_it(scene: SubscribedHub) -> None:
    scene.publish(b"1")
    reader = scene.join()
    publish(scene.hub, "t", b"2")
    publish(scene.hub, "t", b"2, stale", quiet=True)
    scene.scheduler.run()
    assert reader.received == [b"1", b"2, stale"]
