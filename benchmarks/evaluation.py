"""(a) One evaluation in process, beside the published Python core, each in a process of its own, alternating.

    python -m benchmarks.evaluation

The published core is openfeature-flagd-core (1.0.0 for bucketing v2, 2.0.0 for v3), from the environments
that `make oracles` sets up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.results import keep, median

ROUNDS = 5
PEERS = {generation: Path(f".oracles/{generation}/bin/python") for generation in ("v2", "v3")}

DEFINITIONS = {
    "flags": {
        "static": {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"},
        "targeting": {
            "state": "ENABLED",
            "variants": {"on": True, "off": False},
            "defaultVariant": "off",
            "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]},
        },
        "fractional": {
            "state": "ENABLED",
            "variants": {"on": True, "off": False},
            "defaultVariant": "off",
            "targeting": {"fractional": [["on", 25], ["off", 75]]},
        },
    }
}
CONTEXT = {"targetingKey": "user-1", "tier": "gold", "email": "a@example.com", "age": 7, "beta": True}

OURS = """
import json, sys, timeit
from evaluator.flags.merge import parse
from evaluator.flags.model import Bucketing
from evaluator.resolving.resolution import FlagType
from evaluator.resolving.resolve import compile_flag_set, resolve
definitions, context, generation = json.loads(sys.stdin.read())
flag_set = flag_set_of(definitions)
flags = compile_flag_set(flag_set, bucketing=Bucketing(generation))
wanted = FlagType.BOOLEAN
call = "resolve(flags, key, wanted, context, 0)"
"""
THEIRS = """
import json, sys, timeit
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext
definitions, context, generation = json.loads(sys.stdin.read())
core = FlagdCore()
core.set_flags(json.dumps(definitions))
given = EvaluationContext(context.pop("targetingKey"), context)
call = "core.resolve_boolean_value(key, False, given)"
"""
MEASURE = """
answers = {}
for key in definitions["flags"]:
    timer = timeit.Timer(call, globals=globals())
    count, _ = timer.autorange()
    answers[key] = [min(timer.repeat(3, count)) / count * 1e9, eval(call).value]
print(json.dumps(answers))
"""


def measure(python: str, script: str, generation: str) -> dict[str, tuple[float, bool]]:
    """Nanoseconds and the answer, by flag."""
    done = subprocess.run(
        [python, "-c", script + MEASURE],
        input=json.dumps([DEFINITIONS, CONTEXT, generation]),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, tuple[float, bool]] = json.loads(done.stdout)
    return answers


def main() -> None:
    """Alternate the two, and compare medians."""
    for generation, python in PEERS.items():
        if not python.exists():
            raise SystemExit(f"no {python}: run `make oracles` first")
        rounds = [
            (measure(sys.executable, OURS, generation), measure(str(python), THEIRS, generation))
            for _ in range(ROUNDS)
        ]
        rows = []
        for key in DEFINITIONS["flags"]:
            if any(ours[key][1] != theirs[key][1] for ours, theirs in rounds):
                raise SystemExit(f"{key}: the two do not agree, so their times mean nothing")
            ours = median([round_[0][key][0] for round_ in rounds])
            theirs = median([round_[1][key][0] for round_ in rounds])
            rows.append({"flag": key, "ours ns": ours, "peer ns": theirs, "times faster": theirs / ours})
        keep(f"evaluation, bucketing {generation}", rows)


if __name__ == "__main__":
    main()
