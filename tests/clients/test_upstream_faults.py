"""An evaluator whose upstream fails in every way there is: its clients see the last good flags, then the
newest, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.asking import ask_flag
from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.upstreams import (
    HUGE,
    Grpc,
    Http,
    Process,
    Upstream,
    answer_with,
    fetch_flags,
    full,
    hung,
    is_awaited,
    nobody,
    noisy,
    open_stream,
    replace,
)
from tests.clients.watching import Stopwatch, open_watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.faults

KINDS: dict[str, Callable[[], Upstream]] = {"grpc": Grpc, "http": Http}


def numbered_flags(number: int) -> str:
    flag = {"state": "ENABLED", "variants": {"now": number}, "defaultVariant": "now"}
    return json.dumps({"flags": {"banner": flag}})


HALF = numbered_flags(7)[:-9].encode()
FAULTS: dict[str, tuple[Callable[[Upstream], Any], dict[str, str]]] = {
    "killed": (nobody, {"grpc": "Unreachable", "http": "Unreachable"}),
    "hung": (hung, {"grpc": "Timeout", "http": "Timeout"}),
    "garbage": (noisy, {"grpc": "Unreachable", "http": "Unreachable"}),
    "200 MB": (answer_with(lambda: b" " * HUGE), {"grpc": "TooLarge", "http": "TooLarge"}),
    "half a document": (answer_with(lambda: HALF), {"grpc": "Invalid", "http": "Invalid"}),
    "nothing": (answer_with(lambda: b""), {"grpc": "Invalid", "http": "Invalid"}),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextlib.contextmanager
def follow_upstream(upstream: Upstream, folder: Path) -> Iterator[Any]:
    """The upstream's real server, and an evaluator that serves what it has."""
    replace(folder / "flags.json", numbered_flags(1))
    first = Process(upstream, folder)
    try:
        sources = json.dumps([upstream.source])
        with evaluator("--sources", sources, cwd=folder) as running:
            ports = running.next_event("listening")
            running.next_event("flags served")
            yield first, running, ports
    finally:
        first.kill()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_newest_flags_are_served_soon_after_an_upstream_is_well_again(
    kind: str, fault: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    upstream = KINDS[kind]()
    broken, reasons = FAULTS[fault]
    with follow_upstream(upstream, tmp_path) as (first, running, ports), open_watcher(ports["grpc"]) as seen:
        assert seen.sees(1)
        first.kill()
        with broken(upstream):
            running.wait(lambda event: f"stale: {reasons[kind]}" in event["message"])
            assert readiness(ports["management"])["sources"][0]["stale"] is not None
        replace(tmp_path / "flags.json", numbered_flags(2))
        again = Process(upstream, tmp_path)
        try:
            since = Stopwatch()
            assert seen.sees(2)
            record_property("recovery", f"upstream by {kind}, {fault}: {since.seconds} s")
        finally:
            again.kill()
    assert seen.seen == [1, 2]


def readiness(port: int) -> dict[str, Any]:
    """What /readyz says while it is 200."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def test_answers_and_sync_say_that_their_source_is_stale_and_no_stream_is_sent_a_message_just_for_that(
    tmp_path: Path,
) -> None:
    upstream = Http()
    marks = {"flagstaff.dev/stale", "flagstaff.dev/stale-since"}
    with follow_upstream(upstream, tmp_path) as (first, _, ports), open_stream(ports["sync"]) as received:
        fresh = fetch_flags(ports["sync"])
        assert until(lambda: received == [fresh])
        first.kill()
        assert until(lambda: marks <= ask_flag(ports["ofrep"])["metadata"].keys())
        stale = fetch_flags(ports["sync"])
        assert marks <= json.loads(stale)["metadata"].keys()
        with open_stream(ports["sync"]) as late:
            assert until(lambda: late == [stale])
            again = Process(upstream, tmp_path)
            assert until(lambda: late == [stale, fresh])
        assert ask_flag(ports["ofrep"])["metadata"] == {}
        again.kill()
    assert received == [fresh]


def test_an_evaluator_ends_though_its_upstream_never_accepts(kind: str, tmp_path: Path) -> None:
    upstream = KINDS[kind]()
    sources = json.dumps([{**upstream.source, "timeoutS": 600}])
    with full(upstream), evaluator("--sources", sources, cwd=tmp_path) as running:
        running.next_event("listening")
        assert until(lambda: is_awaited(upstream.port))
        assert running.stop() == 0


def test_an_upstream_that_stands_still_and_goes_on_has_lost_nothing(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    upstream = KINDS[kind]()
    with follow_upstream(upstream, tmp_path) as (first, _, ports), open_watcher(ports["grpc"]) as seen:
        assert seen.sees(1)
        first.send(signal.SIGSTOP)
        replace(tmp_path / "flags.json", numbered_flags(2))
        first.send(signal.SIGCONT)
        since = Stopwatch()
        assert seen.sees(2)
        record_property("recovery", f"upstream by {kind}, stopped: {since.seconds} s")
    assert seen.seen == [1, 2]


def test_an_upstream_restarted_again_and_again_is_followed_to_its_newest_flags(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    upstream = KINDS[kind]()
    with follow_upstream(upstream, tmp_path) as (first, _, ports), open_watcher(ports["grpc"]) as seen:
        assert seen.sees(1)
        running, since = first, Stopwatch()
        for number in range(2, 6):
            running.kill()
            replace(tmp_path / "flags.json", numbered_flags(number))
            running, since = Process(upstream, tmp_path), Stopwatch()
        assert seen.sees(5)
        record_property("recovery", f"upstream by {kind}, restarted: {since.seconds} s")
        running.kill()
    assert seen.seen == sorted(set(seen.seen))
