"""(f) Server streams: how far apart subscribers hear of a change, what a stream costs, and whether any of
them is forgotten.

    python -m benchmarks.streams

`flagstaff evaluator start` follows a file of 100 flags that is replaced by a rename; the subscribers are a
process on another CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import starmap
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.footprint import megabytes
from benchmarks.loads import cpu_seconds
from benchmarks.results import keep, median, percentile
from benchmarks.servers import COMPILED, PINNED
from benchmarks.serving import document

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGES = 50
WORDS = [f"{Random(n).getrandbits(40):x}" for n in range(300)]
SETS = (
    (21, 10_000, "identity"), (21, 10_000, "gzip"), (1_000, 10_000, "identity"), (1_000, 10_000, "gzip"),
    (10_000, 1_000, "identity"), (10_000, 1_000, "gzip"),
)  # fmt: skip
"""Flags, streams, and what clients accept: 10,000 streams of the largest set are 30 GB a change."""
EVENTS = "/flagd.evaluation.v1.Service/EventStream"
SYNC = "/flagd.sync.v1.FlagSyncService/SyncFlags"
FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")


class Evaluator:
    """One that follows a file."""

    def __init__(self, folder: Path, flags: dict[str, Any], *, compiled: bool = False) -> None:
        """`compiled`: in the form of `make native`."""
        self._file = folder / "flags.json"
        self._flags = json.dumps(flags).removeprefix("{").encode()
        self._number = 0
        self.change()
        command = (str(COMPILED), "-P", "-m", "evaluator") if compiled else (FLAGSTAFF, "evaluator")
        self._process = subprocess.Popen(
            [*PINNED, *command, "start", "--host=127.0.0.1", "--log-format=json", "--port=0",
             "--management-port=0", "--sync-port=0", "--ofrep-port=0", "--uri", f"file:{self._file}"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.ports: dict[str, Any] = {}
        served = False
        while not (served and self.ports):
            line = json.loads(self._process.stderr.readline() if self._process.stderr else "{}")
            served = served or line["message"] == "flags served"
            self.ports = line if line["message"] == "listening" else self.ports

    def change(self) -> str:
        """A new set of flags; a text that is in all that is said of it."""
        self._number += 1
        marker = f"marker-{self._number:06}"
        on = json.dumps({"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"})
        following = self._file.with_suffix(".next")
        following.write_bytes(f'{{"flags": {{"{marker}": {on}, '.encode() + self._flags + b"}")
        following.replace(self._file)
        return marker

    def next_marker(self) -> str:
        """What `change` will return."""
        return f"marker-{self._number + 1:06}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=60)


@contextlib.contextmanager
def evaluator(flags: dict[str, Any] | None = None) -> Iterator[Evaluator]:
    with tempfile.TemporaryDirectory() as folder:
        running = Evaluator(Path(folder), flags or json.loads(document(100))["flags"])
        try:
            yield running
        finally:
            running.stop()


class Crowd:
    """A process of subscribers."""

    def __init__(self, port: int, path: str, connections: int, streams: int, *encoding: str) -> None:
        words = [str(port), path, str(connections), str(streams), *encoding]
        self._process = subprocess.Popen(
            ["taskset", "-c", "1", sys.executable, "-m", "benchmarks.subscribers", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.opened = self.hear()

    def hear(self) -> Any:
        return json.loads(self._process.stdout.readline() if self._process.stdout else "{}")

    def change(self, running: Evaluator) -> dict[str, Any]:
        """What became of one change; `ms` from the rename to the last subscriber."""
        assert self._process.stdin is not None
        self._process.stdin.write(running.next_marker() + "\n")
        self._process.stdin.flush()
        self.hear()
        before = time.monotonic()
        running.change()
        found: dict[str, Any] = self.hear()
        found["ms"] = (found.get("first", before) + found.get("spread", 0.0) - before) * 1000
        return found

    def stop(self) -> None:
        self._process.communicate(timeout=60)


def changes(crowd: Crowd, running: Evaluator, count: int) -> list[dict[str, Any]]:
    """One after another, up to the first that a subscriber missed."""
    found: list[dict[str, Any]] = []
    while len(found) < count and (not found or found[-1]["received"] == found[0]["received"]):
        found.append(crowd.change(running))
    return found


def spread(port: str, path: str, streams: int = 1_000) -> dict[str, object]:
    """One connection a stream, CHANGES changes."""
    with evaluator() as running:
        crowd = Crowd(running.ports[port], path, streams, 1)
        found = changes(crowd, running, CHANGES)
        crowd.stop()
    apart = [each.get("spread", float("inf")) * 1000 for each in found]
    return {
        "port": port,
        "streams": streams,
        "changes": len(found),
        "first to last subscriber, p50 ms": median(apart),
        "p99 ms": percentile(apart, 0.99),
        "max ms": max(apart),
        "rename to last subscriber, p50 ms": median([each["ms"] for each in found]),
        "lost": sum(streams - each["received"] for each in found),
    }


def at_once(port: str, path: str, connections: int, streams: int) -> dict[str, object]:
    """Open all of them at once, then five changes."""
    with evaluator() as running:
        before = megabytes(running.pid)
        crowd = Crowd(running.ports[port], path, connections, streams)
        after = megabytes(running.pid)
        found = changes(crowd, running, 5)
        grown = megabytes(running.pid)
        crowd.stop()
    total = connections * streams
    return {
        "port": port,
        "connections": connections,
        "streams": total,
        "opened": crowd.opened["received"],
        "opened within s": crowd.opened["seconds"],
        "connections at the end": found[-1]["alive"],
        "KB a stream": (after - before) * 1024 / total,
        "KB a stream after changes": (grown - before) * 1024 / total,
        "rename to last subscriber, p50 ms": median([each["ms"] for each in found]),
        "lost": sum(total - each["received"] for each in found),
    }


def varied(flags: int) -> dict[str, Any]:
    """Flags of 0.4 KB each that differ as those of people do, so that gzip finds what it finds in them."""
    random = Random(flags)
    return {
        f"{random.choice(WORDS)}-{random.choice(WORDS)}-{number}": {
            "state": "ENABLED",
            "variants": {"on": True, "off": False},
            "defaultVariant": "off",
            "targeting": {
                "if": [
                    {"in": [{"var": "country"}, random.sample(WORDS, 4)]}, "on",
                    {"fractional": [["on", share := random.randrange(100)], ["off", 100 - share]]},
                ]
            },
            "metadata": {"owner": f"team-{random.choice(WORDS)}", "flagstaff.dev/file": f"{number}.yaml",
                         "ticket": f"{random.choice(WORDS)}-{random.randrange(10**5)}"},
        }
        for number in range(flags)
    }  # fmt: skip


def compressed(flags: int, streams: int, encoding: str) -> dict[str, object]:
    """Three changes of a set of so many flags for clients that accept gzip, or `identity` alone."""
    with evaluator(varied(flags)) as running:
        crowd = Crowd(running.ports["sync"], SYNC, streams, 1, encoding)
        found, spent = [], []
        for _ in range(3):
            before = cpu_seconds(running.pid)
            found.append(crowd.change(running))
            spent.append(cpu_seconds(running.pid) - before)
        resident = megabytes(running.pid)
        crowd.stop()
    return {
        "flags": flags,
        "streams": streams,
        "encoding": encoding,
        "MB a change": median([each["bytes"] / 1e6 for each in found]),
        "CPU s a change": median(spent),
        "rename to last subscriber, s": median([each["ms"] / 1000 for each in found]),
        "first to last subscriber, s": median([each["spread"] for each in found]),
        "MB resident": resident,
        "lost": sum(streams - each["received"] for each in found),
    }


def main() -> None:
    """On the evaluation port and on the sync port."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("needs two CPUs, one for the subscribers")
    keep("streams: 1,000 subscribers receive changes", [spread("grpc", EVENTS), spread("sync", SYNC)])
    keep(
        "streams: 10,000 opened at once",
        [
            at_once("grpc", EVENTS, 10_000, 1),
            at_once("grpc", EVENTS, 40, 250),
            at_once("sync", SYNC, 10_000, 1),
        ],
    )  # fmt: skip
    keep("streams: a change for clients with and without gzip", list(starmap(compressed, SETS)))


if __name__ == "__main__":
    main()
