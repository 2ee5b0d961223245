"""Evaluations per minute, as they are counted in this process."""

from __future__ import annotations

from controller.local.local_page import KEPT, EvaluationRates
from evaluator.flags.model import Flag, FlagSet, State
from evaluator.resolving.resolve import compile_flag_set, resolve

FLAGS = compile_flag_set(FlagSet({"a": Flag("a", State.ENABLED, {"on": True}, "on")}))


def count(rates: EvaluationRates, key: str, times: int) -> None:
    for _ in range(times):
        rates.count(None, key, resolve(FLAGS, key, None, {}, 0))


def test_counts_of_an_interval_become_a_rate_and_errors_are_left_out() -> None:
    rates = EvaluationRates()
    count(rates, "a", 3)
    count(rates, "missing", 5)
    rates.end_interval(10)
    rates.end_interval(20)
    known = rates.of(["a", "missing", "b"])
    assert known.keys() == {"a"}
    assert (known["a"].times, known["a"].rates) == ((10, 20), {"on": (18.0, 0.0)})


def test_old_intervals_are_dropped() -> None:
    rates = EvaluationRates()
    count(rates, "a", 1)
    for end in range(KEPT + 1):
        rates.end_interval(end)
    assert rates.of(["a"]) == {}
