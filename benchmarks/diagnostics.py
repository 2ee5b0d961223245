"""How long a document takes that is wrong in one way everywhere, beside a right one of its size.

    python -m benchmarks.diagnostics [KILOBYTES]

The aim: three times as long at most.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median
from evaluator.flags.merge import parse
from tests.unit.evaluator.flags.wrong_documents import WRONG_FLAGS, WRONG_WHOLES, document, right_flag

if TYPE_CHECKING:
    from collections.abc import Callable

TITLE = "wrong documents beside a right one of their size"
ROUNDS, KILOBYTES = 3, 1_000


def main() -> None:
    """Print a row for each kind of wrong."""
    size = 1_000 * int(sys.argv[1] if sys.argv[1:] else KILOBYTES)
    right = _seconds_per_byte(lambda count: document(right_flag, count), size)
    makers = {name: _maker(flag) for name, flag in WRONG_FLAGS.items()} | dict(WRONG_WHOLES)
    keep(TITLE, [_row(name, _seconds_per_byte(make, size), right) for name, make in makers.items()])


def _maker(flag: Callable[[int], Any]) -> Callable[[int], bytes]:
    return lambda count: document(flag, count)


def _row(name: str, wrong: float, right: float) -> dict[str, Any]:
    return {"wrong": name, "µs/KB": round(wrong * 1e9), "times a right one": round(wrong / right, 1)}


def _seconds_per_byte(make: Callable[[int], bytes], size: int) -> float:
    content = make(max(1, round(100 * size / len(make(100)))))
    return median([_seconds(content) for _ in range(ROUNDS)]) / len(content)


def _seconds(content: bytes) -> float:
    begun = time.process_time()
    parse(content, file="flags.json")
    return time.process_time() - begun


if __name__ == "__main__":
    main()
