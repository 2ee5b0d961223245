from __future__ import annotations

import pytest

from evaluator.server.notifier import FairNotifier
from tests.worlds.hub import BUDGET, FakeScheduler


class Listener:
    """Counts its notifications, and leaves when it is shut down."""

    def __init__(self, notifier: FairNotifier[Listener]) -> None:
        self.notifier = notifier
        self.notified = 0
        notifier.join(self)

    def advance(self) -> None:
        self.notified += 1

    def shut_down(self) -> None:
        self.notifier.leave(self)


def crowd(size: int) -> tuple[FakeScheduler, FairNotifier[Listener], list[Listener], list[str]]:
    scheduler, done = FakeScheduler(), list[str]()
    notifier: FairNotifier[Listener] = FairNotifier(scheduler.queue(), lambda: done.append("all notified"))
    return scheduler, notifier, [Listener(notifier) for _ in range(size)], done


def test_few_are_notified_at_once_and_then_the_end_is_reported() -> None:
    scheduler, notifier, listeners, done = crowd(BUDGET)
    notifier.notify(notifier)
    assert [each.notified for each in listeners] == [1] * BUDGET
    assert (not scheduler.waiting, done) == (True, ["all notified"])


def test_of_many_a_slice_is_notified_in_each_turn_and_the_end_is_reported_once() -> None:
    scheduler, notifier, listeners, done = crowd(4 * BUDGET)
    notifier.notify(notifier)
    assert (sum(each.notified for each in listeners), len(scheduler.waiting), done) == (BUDGET, 1, [])
    scheduler.step()
    assert 0 < sum(each.notified for each in listeners) - BUDGET <= BUDGET
    scheduler.run()
    assert [each.notified for each in listeners] == [1] * len(listeners)
    assert done == ["all notified"]


def test_a_waiting_listener_keeps_its_place_when_all_are_to_be_notified_again() -> None:
    scheduler, notifier, listeners, _ = crowd(BUDGET + 1)
    notifier.notify(listeners)
    notifier.notify(listeners)
    scheduler.step()
    assert listeners[-1].notified == 1
    scheduler.run()
    assert [each.notified for each in listeners] == [2] * BUDGET + [1]


def test_some_alone_can_be_notified() -> None:
    _, notifier, listeners, _ = crowd(3)
    notifier.notify(listeners[1:2])
    assert [each.notified for each in listeners] == [0, 1, 0]


def test_one_that_fails_is_left_out_and_the_others_are_notified_the_next_time() -> None:
    class Broken(Listener):
        def advance(self) -> None:
            raise OSError("a bug")

    scheduler, notifier, listeners, _ = crowd(2)
    with pytest.raises(OSError, match="a bug"):
        notifier.notify([Broken(notifier), *listeners])
    notifier.notify(listeners[:1])
    assert ([each.notified for each in listeners], not scheduler.waiting) == ([1, 1], True)


def test_a_listener_that_leaves_while_waiting_is_not_notified_and_may_leave_twice() -> None:
    scheduler, notifier, listeners, _ = crowd(BUDGET + 1)
    notifier.notify(listeners)
    notifier.leave(listeners[-1])
    notifier.leave(listeners[-1])
    scheduler.run()
    assert (listeners[-1].notified, len(notifier)) == (0, BUDGET)


def test_closing_shuts_all_down_and_notifies_none() -> None:
    scheduler, notifier, listeners, _ = crowd(BUDGET + 1)
    notifier.notify(listeners)
    notifier.close()
    scheduler.run()
    assert (len(notifier), listeners[-1].notified) == (0, 0)
