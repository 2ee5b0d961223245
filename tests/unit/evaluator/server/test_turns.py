from __future__ import annotations

from evaluator.server.turns import SLICE, Turns

from .fakes import FakeTimers


class Listener:
    """Counts what it is told, and leaves when it is shut down."""

    def __init__(self, turns: Turns[Listener]) -> None:
        self.turns = turns
        self.told = 0
        turns.join(self)

    def advance(self) -> None:
        self.told += 1

    def shut_down(self) -> None:
        self.turns.leave(self)


def crowd(size: int) -> tuple[FakeTimers, Turns[Listener], list[Listener], list[str]]:
    timers, done = FakeTimers(), list[str]()
    turns: Turns[Listener] = Turns(timers, lambda: done.append("told"))
    return timers, turns, [Listener(turns) for _ in range(size)], done


def test_few_are_told_at_once_and_then_it_is_said() -> None:
    timers, turns, listeners, done = crowd(SLICE)
    turns.tell(turns)
    assert [each.told for each in listeners] == [1] * SLICE
    assert (timers.armed, done) == ([], ["told"])


def test_of_many_a_slice_is_told_in_each_turn_and_the_end_is_said_once() -> None:
    timers, turns, listeners, done = crowd(2 * SLICE + 1)
    turns.tell(turns)
    assert (sum(each.told for each in listeners), len(timers.pending), done) == (SLICE, 1, [])
    timers.advance(0.0)
    assert [each.told for each in listeners] == [1] * len(listeners)
    assert done == ["told"]


def test_who_waits_keeps_the_place_when_all_are_to_be_told_again() -> None:
    timers, turns, listeners, _ = crowd(SLICE + 1)
    turns.tell(listeners)
    turns.tell(listeners)
    timers.armed.pop().callback()
    assert listeners[-1].told == 1
    assert sum(each.told for each in listeners) == 2 * SLICE


def test_some_alone_can_be_told() -> None:
    _, turns, listeners, _ = crowd(3)
    turns.tell(listeners[1:2])
    assert [each.told for each in listeners] == [0, 1, 0]


def test_who_leaves_while_waiting_is_not_told_and_may_leave_twice() -> None:
    timers, turns, listeners, _ = crowd(SLICE + 1)
    turns.tell(listeners)
    turns.leave(listeners[-1])
    turns.leave(listeners[-1])
    timers.advance(0.0)
    assert (listeners[-1].told, len(turns)) == (0, SLICE)


def test_closing_shuts_everyone_down_and_ends_the_turns() -> None:
    timers, turns, listeners, done = crowd(SLICE + 1)
    turns.tell(listeners)
    turns.close()
    assert (len(turns), timers.pending, done) == (0, [], [])
