"""A Git repository, `flagstaff up`, an OpenFeature client, a commit, a broken commit, and one on which a
test of a flag fails: one minute from Git to an application.

Run it with `make demo`. Everything happens in a scratch folder and on free loopback ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parent / "gitops-repo"
LAYERS = ("--path", "flags/base", "--path", "flags/overlays/production", "--tests", "Require")
FLAGS = "flags/base/checkout.yaml"
PATIENCE = 20.0


def main() -> int:
    """Play the demo; 0 when every step did what it says."""
    with tempfile.TemporaryDirectory(prefix="flagstaff-demo-") as scratch:
        repository = Path(scratch) / "flags"
        shutil.copytree(EXAMPLE, repository)
        git(repository, "init", "-q", "-b", "main")
        commit(repository, "Flags of the checkout")
        say(f"a Git repository with the example's flags: {repository}")
        with flagstaff_up(repository, *LAYERS) as (ports, events):
            client = connect(ports["grpc"])
            play(repository, client, events)
            play_tests(repository, events)
            if sys.stdin.isatty() and sys.stdout.isatty():
                keep_serving(repository, ports, events)
    return 0


def play(repository: Path, client: Client, events: Queue[dict[str, Any]]) -> None:
    """A commit that is served, one that is refused, and one that corrects it."""
    say(f"an OpenFeature client reads banner-text: {client.value()!r}")

    started = time.perf_counter()
    edit(repository, "defaultVariant: plain", "defaultVariant: christmas")
    commit(repository, "Christmas banner")
    committed = time.perf_counter()
    client.wait_for_change()
    value = client.value()
    elapsed = (time.perf_counter() - committed) * 1000
    say(f"after a commit it reads: {value!r}, {elapsed:.0f} ms after `git commit` returned")
    say(f"  (the commit itself lasted {(committed - started) * 1000:.0f} ms)")
    expect(value == "Merry Christmas", "the new value")

    edit(repository, "defaultVariant: christmas", "defaultVariant: chrismas")
    commit(repository, "A typo")
    refused = wait_for(events, lambda event: bool(event.get("problems")))
    for problem in refused["problems"]:
        say(f"a broken commit is refused: {problem['file']}:{problem['line']}: {problem['message']}")
    say(f"the last good value is still served: {client.value()!r}")
    expect(client.value() == "Merry Christmas", "the last good value")

    edit(repository, "defaultVariant: chrismas", "defaultVariant: christmas")
    commit(repository, "Correct the typo")
    corrected = wait_for(events, lambda event: event["event"] == "revision")
    expect(not corrected["problems"], "a commit without problems")
    say("the typo is corrected by a third commit")


def play_tests(repository: Path, events: Queue[dict[str, Any]]) -> None:
    """A commit on which a test of a flag fails, and one that corrects it."""
    edit(repository, "[gold, platinum]", "[gold]")
    commit(repository, "Fewer customers with many items")
    held = wait_for(events, lambda event: bool(event.get("problems")))
    for problem in held["problems"]:
        say(f"a commit that a flag's test fails on is held: {problem['file']}:{problem['line']}:")
        say(f"  {problem['message']}")
    edit(repository, "[gold]", "[gold, platinum]")
    commit(repository, "Platinum customers are back")
    released = wait_for(events, lambda event: event["event"] == "revision")
    expect(not released["problems"], "a commit whose tests pass")
    say("the next commit passes its tests")


class Client:
    """The application: the OpenFeature SDK with its published flagd provider."""

    def __init__(self) -> None:
        self._sdk = api.get_client()
        self._changed = threading.Event()
        self._sdk.add_handler(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, self._on_change)

    def _on_change(self, details: EventDetails) -> None:
        if "banner-text" in (details.flags_changed or []):
            self._changed.set()

    def value(self) -> str:
        """What the application would show."""
        return self._sdk.get_string_value("banner-text", "?", EvaluationContext("user-1"))

    def wait_for_change(self) -> None:
        """Until the evaluator has announced a change of the flag."""
        expect(self._changed.wait(PATIENCE), "a change event")
        self._changed.clear()


def connect(port: int) -> Client:
    """A client, subscribed."""
    provider = FlagdProvider(host="127.0.0.1", port=port, resolver_type=ResolverType.RPC)
    api.set_provider_and_wait(provider)
    return Client()


@contextlib.contextmanager
def flagstaff_up(repository: Path, *options: str) -> Iterator[tuple[dict[str, int], Queue[dict[str, Any]]]]:
    """`flagstaff up` on free ports, and what it says."""
    ports = [word for name in ("", "sync-", "ofrep-", "management-") for word in (f"--{name}port", "0")]
    command = ["flagstaff", "up", str(repository), *options]
    say("served by: " + " ".join(command))
    script = Path(sys.executable).parent / "flagstaff"
    process = subprocess.Popen(  # noqa: S603 - our own script
        [str(script), *command[1:], *ports, "--json"], stdout=subprocess.PIPE, text=True
    )
    events: Queue[dict[str, Any]] = Queue()
    reader = threading.Thread(target=read_events, args=(process, events), daemon=True)
    reader.start()
    try:
        ready = wait_for(events, lambda event: event["event"] == "ready")
        yield ready["ports"], events
    finally:
        api.shutdown()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
        reader.join()


def read_events(process: subprocess.Popen[str], events: Queue[dict[str, Any]]) -> None:
    """One JSON object a line."""
    if process.stdout is not None:
        with process.stdout as lines:
            for line in lines:
                events.put(json.loads(line))


def wait_for(events: Queue[dict[str, Any]], wanted: Any) -> dict[str, Any]:
    """The next event that `wanted` accepts."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(Empty):
        while True:
            event = events.get(timeout=max(0.0, deadline - time.monotonic()))
            if wanted(event):
                return event
    raise SystemExit("demo: an expected event did not arrive")


def edit(repository: Path, old: str, new: str) -> None:
    """Replace text in the flags."""
    file = repository / FLAGS
    text = file.read_text(encoding="utf-8")
    expect(old in text, f"{old!r} in {FLAGS}")
    file.write_text(text.replace(old, new), encoding="utf-8")


def commit(repository: Path, message: str) -> None:
    """Commit everything."""
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", message)


def git(repository: Path, *arguments: str) -> None:
    """Git, free of the user's own configuration."""
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.com",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.com",
    }
    subprocess.run(["git", *arguments], cwd=repository, env=environment, check=True)  # noqa: S603, S607


def keep_serving(repository: Path, ports: dict[str, int], events: Queue[dict[str, Any]]) -> None:
    """Leave it to the person at the terminal, and show what becomes of each commit."""
    say(f"still serving; the page of the flags is http://localhost:{ports['management']}/ui")
    say("try these in another terminal, and end with Ctrl-C here:")
    say(f"  cd {repository} && $EDITOR {FLAGS} && git commit -am 'My change'")
    say(f"  curl -s -X POST localhost:{ports['ofrep']}/ofrep/v1/evaluate/flags/banner-text")
    say(f"  curl -s localhost:{ports['management']}/readyz")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            event = events.get()
            if event["event"] == "revision":
                show(event)


def show(revision: dict[str, Any]) -> None:
    """One commit, and what became of it."""
    touched = [*revision["added"], *revision["changed"], *revision["removed"]]
    say(f"commit {revision['subject']!r}: {', '.join(touched) or 'no flag'} changed")
    for problem in revision["problems"]:
        say(f"  {problem['file']}:{problem['line']}: {problem['message']}")


def expect(held: bool, what: str) -> None:
    """End the demo where it does not do what it says."""
    if not held:
        raise SystemExit(f"demo: expected {what}")


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
