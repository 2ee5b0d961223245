"""(c) From the end of `git commit` to the value at a subscribed stock client.

    python -m benchmarks.commit

The client is the OpenFeature SDK with the flagd provider (RPC), notified by the event stream; the repository
is local.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path

from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.event import EventDetails, ProviderEvent

from benchmarks.results import keep, median, percentile
from tests.clients.up import Up
from tests.repositories import Repository

COMMITS = 60


def document(number: int, flags: int) -> str:
    """A flag set whose flag `number` says which commit it is of."""
    others = {
        f"flag-{index}": {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
        for index in range(flags - 1)
    }
    shown = {"state": "ENABLED", "variants": {"now": number}, "defaultVariant": "now"}
    return json.dumps({"flags": {"number": shown, **others}})


def main() -> None:
    """A set of 10 flags and one of 1,000."""
    rows = []
    for flags in (10, 1_000):
        with tempfile.TemporaryDirectory() as folder:
            times = measure(Repository(Path(folder) / "repository"), flags)
        rows.append(
            {
                "flags": flags,
                "commits": len(times),
                "p50 ms": median(times),
                "p99 ms": percentile(times, 0.99),
            }
        )
    keep("commit to value at a subscribed client, local repository", rows)


def measure(repository: Repository, flags: int) -> list[float]:
    """Milliseconds of each commit."""
    repository.commit("first", flags__json=document(0, flags))
    running = Up(repository.path)
    try:
        ports = running.ready()
        api.set_provider(FlagdProvider(host="127.0.0.1", port=ports["grpc"], resolver_type=ResolverType.RPC))
        client = api.get_client()
        changed = threading.Event()

        def on_change(_: EventDetails) -> None:
            changed.set()

        client.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, on_change)
        times = []
        for number in range(1, COMMITS + 1):
            changed.clear()
            repository.commit("next", flags__json=document(number, flags))
            started = time.perf_counter()
            if not changed.wait(20):
                raise SystemExit("no change came within 20 s")
            value = client.get_integer_value("number", -1)
            times.append((time.perf_counter() - started) * 1000)
            if value != number:
                raise SystemExit(f"the client read {value} after commit {number}")
    finally:
        api.shutdown()
        running.stop()
    return times


if __name__ == "__main__":
    main()
