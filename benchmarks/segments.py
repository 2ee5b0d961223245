"""(x) A shared rule with 100,000 users, to which 20 flags refer: read, made ready, evaluated, and its memory.

    python -m benchmarks.segments

Beside our evaluator: reading the list item by item in Python, as a plain `in` does; and flagd, if
FLAGD_BINARY or PATH names one, by OFREP, beside our evaluator by OFREP.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import keep, median
from benchmarks.servers import flagd_binary, free_ports
from evaluator.flags.canonical import canonical
from evaluator.flags.merge import parse
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evaluator.flags.model import FlagSet

ROUNDS = 5
CALLS = 2_000
FLAGS = 20
SIZES = (10, 100_000)


def users(count: int) -> list[str]:
    """Texts as long as UUIDs."""
    return [f"6f1c2d3e-0000-4000-8000-{number:012}" for number in range(count)]


def document(count: int, flags: int = FLAGS) -> bytes:
    """A set whose flags refer to one list."""
    shared = {"beta": {"in": [{"var": "targetingKey"}, users(count)]}}
    flag = {
        "state": "ENABLED",
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "targeting": {"if": [{"$ref": "beta"}, "on"]},
    }
    made = {f"flag-{number}": flag for number in range(flags)}
    return json.dumps({"flags": made, "$evaluators": shared}).encode()


def main() -> None:
    """Print and keep all rows."""
    keep("a shared rule with a list", rows())


def rows() -> Iterator[dict[str, Any]]:
    """For each size of the list; and the ratios of the largest to the smallest."""
    measured = [in_process(count) for count in SIZES]
    yield from measured
    small, large = measured
    yield {
        "what": "100,000 users to 10",
        "evaluation": large["evaluation µs"] / small["evaluation µs"],
        "item by item": large["item by item µs"] / small["item by item µs"],
    }
    yield {"what": "item by item to a look-up", "ratio": large["item by item µs"] / large["evaluation µs"]}
    one, many = memory(1), memory(FLAGS)
    yield {"what": "compiled rules, MB", "1 flag": one, f"{FLAGS} flags": many, "ratio": many / one}
    binary = flagd_binary()
    if binary is not None:
        yield from by_ofrep(binary)


def in_process(count: int) -> dict[str, Any]:
    """Medians of reading, making ready, and evaluating for a user at the end of the list."""
    content = document(count)
    listed = users(count)
    context = {"targetingKey": listed[-1]}
    flag_set = parse(content, file="flags.json").flag_set

    def compile_all() -> None:
        compile_flag_set(flag_set).compile_all()

    ready = compile_flag_set(flag_set)
    ready.compile_all()
    if resolve(ready, "flag-0", None, context, 0).variant != "on":
        raise SystemExit("the user is not in the list")
    key = listed[-1]
    return {
        "what": f"{count:,} users",
        "document MB": len(canonical(flag_set)) / 1e6,
        "read ms": 1e3 * seconds(lambda: parse(content, file="flags.json")),
        "make ready ms": 1e3 * seconds(compile_all),
        "evaluation µs": 1e6 * seconds(lambda: resolve(ready, "flag-0", None, context, 0), CALLS),
        "item by item µs": 1e6 * seconds(lambda: any(item == key for item in listed), 20),
    }


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    """The median of ROUNDS."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        found.append((time.perf_counter() - start) / calls)
    return median(found)


def memory(flags: int) -> float:
    """Megabytes that the compiled rules hold besides the flag set."""
    flag_set: FlagSet = parse(document(SIZES[-1], flags), file="flags.json").flag_set
    gc.collect()
    tracemalloc.start()
    ready = compile_flag_set(flag_set)
    ready.compile_all()
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    del ready
    return held


def by_ofrep(binary: str) -> Iterator[dict[str, Any]]:
    """Medians of calls to flagd and to our evaluator, one after the other on one connection."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "flags.json"
        file.write_bytes(document(SIZES[-1]))
        uri = f"file:{file}"
        found = {
            "flagd": ofrep_micros([
                binary, "start", "-f", uri, "-p", "{}", "-r", "{}", "-m", "{}", "-g", "{}",
            ]),
            "ours": ofrep_micros(
                [
                    sys.executable, "-m", "evaluator", "start", "--uri", uri, "--port={}", "--ofrep-port={}",
                    "--management-port={}", "--sync-port={}",
                ]
            ),
        }  # fmt: skip
    yield {"what": "p50 by OFREP, µs", **found, "ratio": found["flagd"] / found["ours"]}


def ofrep_micros(command: list[str]) -> float:
    """The median of calls to a server that is started for them."""
    ports = [str(port) for port in free_ports(4)]
    numbers = iter(ports)
    words = [word.format(next(numbers)) if "{}" in word else word for word in command]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    body = json.dumps({"context": {"targetingKey": users(SIZES[-1])[-1]}}).encode()
    url = f"http://127.0.0.1:{ports[1]}/ofrep/v1/evaluate/flags/flag-0"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                if json.load(answer)["variant"] == "on":
                    break
            time.sleep(0.1)
        else:
            raise SystemExit(f"{words[0]} serves nothing")
        found = []
        for _ in range(200):
            start = time.perf_counter()
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                answer.read()
            found.append(1e6 * (time.perf_counter() - start))
        return median(found)
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main()
