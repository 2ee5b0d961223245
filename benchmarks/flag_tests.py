"""(w) `flagstaff test` of 10,000 flags with a test each, beside `flagstaff lint` of the same flags.

    python -m benchmarks.flag_tests

No other tool tests flagd's definitions, so the measure is what reading and judging them takes anyway.
"""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.commands import FLAGSTAFF
from benchmarks.commands import run as run_command
from benchmarks.results import keep, median
from controller.authoring.flag_test_files import read_flag_tests
from controller.authoring.flag_test_runs import run_flag_tests
from evaluator.flags.layer import read_layer
from evaluator.flags.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable

FLAGS = 10_000
ROUNDS = 3


def definition(number: int) -> dict[str, Any]:
    """A flag with a rule and a percentage."""
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", {"fractional": [["on", 10], ["off", 90]]}]}
    variants = {"on": number, "off": -1}
    return {"state": "ENABLED", "variants": variants, "defaultVariant": "off", "targeting": rule}


def case(number: int, kind: str) -> dict[str, Any]:
    """A test of that flag: of one answer, or of the shares of all users."""
    test = {"name": f"test {number}", "flag": f"flag-{number:05}"}
    if kind == "shares":
        return {**test, "context": {"tier": "basic"}, "distribution": {"on": "10 ± 1"}}
    return {**test, "context": {"tier": "gold"}, "expect": {"variant": "on", "value": number}}


def main() -> None:
    """The verbs, and the tests alone."""
    flags = json.dumps({"flags": {f"flag-{number:05}": definition(number) for number in range(FLAGS)}})
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "flags.json").write_text(flags, encoding="utf-8")
        linted = seconds(lambda: verb("lint", folder))
        rows = [{"what": "flagstaff lint", "CPU s": round(linted, 2)}]
        for kind in ("answers", "shares"):
            content = json.dumps({"tests": [case(number, kind) for number in range(FLAGS)]}).encode()
            Path(folder, "flags.flagtest.json").write_bytes(content)
            tested = seconds(lambda: verb("test", folder))
            alone = seconds(partial(run, flags.encode(), content))
            rows += [
                {
                    "what": f"flagstaff test, {kind}",
                    "CPU s": round(tested, 2),
                    "ratio": round(tested / linted, 2),
                },
                {
                    "what": f"the tests alone, {kind}",
                    "CPU s": round(alone, 2),
                    "ratio": round(alone / linted, 2),
                },
            ]
    keep(f"tests of {FLAGS:,} flags", rows)


def verb(name: str, folder: str) -> float:
    """Seconds of CPU time of a verb over a folder."""
    return run_command([FLAGSTAFF, name, folder]).cpu / 1000


def run(flags: bytes, tests: bytes) -> float:
    """Seconds of CPU time for reading and running the tests of a flag set that is read already."""
    flag_set = merge([read_layer([("flags.json", flags)])]).flag_set
    began = time.process_time()
    report = run_flag_tests(flag_set, read_flag_tests([[("flags.flagtest.json", tests)]]).cases)
    taken = time.process_time() - began
    if report.failures:
        raise SystemExit(report.failures[0].message)
    return taken


def seconds(measure: Callable[[], float]) -> float:
    """The median of some rounds."""
    return median([measure() for _ in range(ROUNDS)])


if __name__ == "__main__":
    main()
