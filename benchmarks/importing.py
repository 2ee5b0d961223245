"""(z) `flagstaff import` of 10,000 flags of LaunchDarkly in 50 MB, beside `flagstaff lint` of what it writes.

    python -m benchmarks.importing

No peer imports another product's flags without a server, so the measure is what judging the result takes.
"""

from __future__ import annotations

import json
import resource
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.commands import FLAGSTAFF
from benchmarks.commands import run as run_command
from benchmarks.results import keep, median

FLAGS = 10_000
ROUNDS = 3


def flag(number: int) -> dict[str, Any]:
    """A flag of 5 KB with 40 targets, three rules and a share."""
    rules = [
        {
            "variation": 0,
            "clauses": [
                {"attribute": "plan", "op": "in", "values": ["gold", "platinum", f"plan-{rule}"]},
                {"attribute": "age", "op": "greaterThan", "values": [rule]},
            ],
        }
        for rule in range(3)
    ]
    shares = [{"variation": 0, "weight": 10_000}, {"variation": 1, "weight": 90_000}]
    state = {
        "on": True,
        "offVariation": 1,
        "targets": [{"values": [f"user-{number:042}-{user:04}" for user in range(40)], "variation": 0}],
        "rules": rules,
        "fallthrough": {"rollout": {"variations": shares}},
    }
    return {
        "key": f"flag-{number:05}",
        "description": "why the flag is there " * 80,
        "variations": [{"value": True}, {"value": False}],
        "environments": {"production": state},
    }


def main() -> None:
    """Both verbs, in turns; the memory is the largest of all."""
    times: dict[str, list[float]] = {"import": [], "lint": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "flags.json")
        file.write_text(json.dumps({"items": [flag(number) for number in range(FLAGS)]}), encoding="utf-8")
        size = file.stat().st_size
        for turn in range(ROUNDS):
            out = Path(folder, f"out-{turn}")
            words = [FLAGSTAFF, "import", "launchdarkly", str(file), "--out", str(out)]
            times["import"].append(run_command(words)[1] / 1000)
            layers = ["--path", str(out / "base"), "--path", str(out / "overlays/production")]
            times["lint"].append(run_command([FLAGSTAFF, "lint", *layers])[1] / 1000)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    linted = median(times["lint"])
    rows = [
        {
            "what": f"flagstaff {verb}",
            "CPU s": round(median(taken), 2),
            "ratio": round(median(taken) / linted, 2),
        }
        for verb, taken in times.items()
    ]
    keep(f"import of {FLAGS:,} flags, {size / 1e6:.0f} MB, at most {largest} MB of memory", rows)


if __name__ == "__main__":
    main()
