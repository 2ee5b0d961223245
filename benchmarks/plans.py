"""(v) Plans: what a commit to 10,000 flags does to users, as `flagstaff plan` finds it.

    python -m benchmarks.plans

Of one flag that differs, of all of them by arithmetic, and of 100 whose rules need synthetic contexts. Time
is that of the processor, without reading files.
"""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep
from controller.authoring.plans import Beside, plan_flags
from evaluator.flags.model import Flag, FlagSet, State

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = 10_000
SAMPLED = 100
_NOW = 1_800_000_000
_VARIANTS = MappingProxyType({"on": True, "off": False})


def flags(on: int, differing: int, *, arithmetic: bool = True) -> FlagSet:
    """A set in which the first `differing` flags have the share `on`, and all others 10 %."""
    return FlagSet(
        MappingProxyType(
            {
                f"flag-{number}": Flag(
                    f"flag-{number}",
                    State.ENABLED,
                    _VARIANTS,
                    "off",
                    _rule(on if number < differing else 10, arithmetic=arithmetic),
                )
                for number in range(FLAGS)
            }
        )
    )


def _rule(on: int, *, arithmetic: bool) -> dict[str, Any]:
    split = {"fractional": [["on", on], ["off", 100 - on]]}
    gold = {"==": [{"var": "tier"}, "gold"]}
    version = {"sem_ver": [{"var": "version"}, ">=", "2.0.0"]}
    asked = {"and": [gold, version]} if arithmetic else {"and": [gold, {"==": [split, "on"]}]}
    return {"if": [asked, "on", split]}


def measured() -> Iterator[dict[str, Any]]:
    """Yield the seconds of each kind of change."""
    for what, differing, arithmetic in (
        ("one flag differs", 1, True),
        ("all flags differ", FLAGS, True),
        ("100 flags need contexts", SAMPLED, False),
    ):
        before = flags(10, differing, arithmetic=arithmetic)
        after = flags(25, differing, arithmetic=arithmetic)
        began = time.process_time()
        planned = plan_flags(before, after, _NOW, Beside())
        spent = time.process_time() - began
        assert len(planned) == differing
        assert all((flag.method == "Arithmetic") is arithmetic and flag.most for flag in planned)
        yield {"change": what, "flags": FLAGS, "seconds": spent}


if __name__ == "__main__":
    keep("plans", measured())
