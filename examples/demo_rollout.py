"""A Git repository, `flagstaff up --rollout`, a shop with an OpenFeature client, and what Prometheus sees of
it: a change that an override stops for a while, and that passes its steps once somebody resumes it; and one
that is rolled back.

Run it with `make demo-rollout`; it takes less than a minute. Everything happens in a scratch folder and on
free loopback ports. Prometheus is simulated: it answers from what the shop counted.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from demo import commit, expect, flagstaff_up, git, say, wait_for
from openfeature import api
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parent / "rollouts"
USERS = 200
STOPPED = 12
"""Seconds for which an override is in force."""
PATIENCE = 30.0


class Shop(threading.Thread):
    """An application that serves each of its users over and over, and asks the flags each time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.failing = False
        """Whether one in five payments by the new API fails."""
        self.error_ratio = 0.0
        """Of payments by the new API, in the last round."""
        self._client = api.get_client()
        self._rounds: Queue[dict[str, int]] = Queue(1)
        self._ended = threading.Event()

    def run(self) -> None:
        """Serve everybody, round after round."""
        while not self._ended.is_set():
            counted = self._serve_everybody()
            with contextlib.suppress(Empty):
                self._rounds.get_nowait()
            self._rounds.put(counted)
            time.sleep(0.2)

    def users(self) -> dict[str, int]:
        """How many users get the new definition of each flag, in a round that begins from now on."""
        self._rounds.get(timeout=PATIENCE)
        self._rounds.get(timeout=PATIENCE)
        return self._rounds.get(timeout=PATIENCE)

    def _serve_everybody(self) -> dict[str, int]:
        users = [EvaluationContext(f"user-{number}") for number in range(USERS)]
        checkouts = [self._client.get_boolean_value("new-checkout", False, user) for user in users]
        by_new_api = [self._client.get_string_value("payment-api", "v1", user) == "v2" for user in users]
        failed = sum(new and number % 5 == 0 for number, new in enumerate(by_new_api)) if self.failing else 0
        self.error_ratio = failed / max(1, sum(by_new_api))
        return {"new-checkout": sum(checkouts), "payment-api": sum(by_new_api)}

    def end(self) -> None:
        """Stop after this round."""
        self._ended.set()
        self.join()


class Prometheus(http.server.BaseHTTPRequestHandler):
    """Answers each instant query with the shop's error ratio, as Prometheus does."""

    shop: Shop

    def do_POST(self) -> None:
        """A query."""
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        """A query."""
        sample = {"metric": {}, "value": [time.monotonic(), str(self.shop.error_ratio)]}
        body = json.dumps(
            {"status": "success", "data": {"resultType": "vector", "result": [sample]}}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Print nothing."""


def main() -> int:
    """Play the demo; 0 when every step did what it says."""
    with tempfile.TemporaryDirectory(prefix="flagstaff-demo-") as scratch, prometheus() as address:
        repository = Path(scratch) / "flags"
        shutil.copytree(EXAMPLE, repository)
        file = repository / "rollout.yaml"
        file.write_text(
            file.read_text(encoding="utf-8").replace("http://127.0.0.1:9090", address), encoding="utf-8"
        )
        git(repository, "init", "-q", "-b", "main")
        commit(repository, "Flags of the checkout")
        say(f"a Git repository with two flags and a FlagRollout: {repository}")
        with flagstaff_up(repository, "--path", "flags.yaml", "--rollout", str(file)) as (ports, events):
            api.set_provider_and_wait(OFREPProvider(f"http://127.0.0.1:{ports['ofrep']}"))
            shop = Prometheus.shop = Shop()
            shop.start()
            try:
                play(repository, file, shop, events)
            finally:
                shop.end()
    return 0


def play(repository: Path, file: Path, shop: Shop, events: Queue[dict[str, Any]]) -> None:
    """A change that an override stops, and that passes; a change that is rolled back, and its revert. `file`
    has the FlagRollout.
    """
    said = shop.users()
    say(f"an OpenFeature client asks for {USERS} users: {said['new-checkout']} get the new checkout")
    wait_for(events, lambda event: event["event"] == "revision")

    edit(repository, '"off"\n', '"on"\n')
    commit(repository, "New checkout")
    say("a commit turns new-checkout on")
    follow(shop, events, "new-checkout", "10% of users")
    override(file, "new-checkout")
    say(f"somebody on call turns it off for {STOPPED} seconds")
    follow(shop, events, "new-checkout", "an override hides it")
    expect(shop.users()["new-checkout"] == 0, "the old checkout for everybody")
    message = follow(shop, events, "new-checkout", "an override hid it")
    expect(shop.users()["new-checkout"] == 0, "the old checkout for everybody, until somebody decides")
    resume(file, message)
    say("somebody resumes the rollout, by an annotation in its file")
    follow(shop, events, "new-checkout", "is promoted")
    expect(shop.users()["new-checkout"] == USERS, "the new checkout for everybody")

    shop.failing = True
    edit(repository, "defaultVariant: v1", "defaultVariant: v2")
    commit(repository, "Pay by the new API")
    say("a commit moves payments to an API that fails for one in five")
    follow(shop, events, "payment-api", "is rolled back")
    expect(shop.users()["payment-api"] == 0, "the old API for everybody")
    say("the commit is still the newest in Git: nothing there was changed, and it is not tried again")

    git(repository, "revert", "--no-commit", "HEAD")
    commit(repository, "Pay by the old API")
    reverted = wait_for(events, lambda event: event.get("reason") == "RolloutReverted")
    say(f"git revert: {reverted['reason']}: {shorten_commits(reverted['message'])}")


def override(file: Path, flag: str) -> None:
    """Add a FlagOverride that turns a flag off for a while."""
    end = datetime.fromtimestamp(time.time() + STOPPED, UTC)  # noqa: TID251 - a demo reads the clock
    manifest = {
        "apiVersion": "flagstaff.dev/v1beta1",
        "kind": "FlagOverride",
        "metadata": {"name": "incident", "namespace": "shop"},
        "spec": {
            "flagSetRef": {"name": "checkout-production"},
            "flag": flag,
            "variant": "off",
            "reason": "INC-4711",
            "expiresAt": f"{end:%Y-%m-%dT%H:%M:%SZ}",
        },
    }
    replace(file, "", f"{json.dumps(manifest)}\n---\n")


def resume(file: Path, message: str) -> None:
    """Add the annotation that the message of a held rollout names."""
    named = re.search(r'(flagstaff\.dev/rollout-resume): "([0-9a-f]+)"', message)
    expect(named is not None, f"the annotation in {message!r}")
    if named is not None:
        name = "{name: checkout, namespace: shop"
        replace(file, name, f'{name}, annotations: {{{named[1]}: "{named[2]}"}}')


def replace(file: Path, old: str, new: str) -> None:
    """Replace text in the file of the FlagRollout; it is read again."""
    file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


def follow(shop: Shop, events: Queue[dict[str, Any]], flag: str, end: str) -> str:
    """Say what happens to the rollout, and what the client's users get, until it ends so; return the message
    of that.
    """
    while True:
        event = wait_for(events, lambda event: event["event"] == "rollout")
        users = shop.users()[flag]
        say(f"  {event['reason']}: {shorten_commits(event['message'])}")
        say(f"    {users} of {USERS} users get the change")
        if end in event["message"]:
            return str(event["message"])


@contextlib.contextmanager
def prometheus() -> Iterator[str]:
    """The simulated Prometheus; its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def shorten_commits(message: str) -> str:
    """The message with the first twelve characters of each commit."""
    return re.sub(r"(?<=sha1:)([0-9a-f]{12})[0-9a-f]+", r"\1", message)


def edit(repository: Path, old: str, new: str) -> None:
    """Replace text in the flags."""
    file = repository / "flags.yaml"
    text = file.read_text(encoding="utf-8")
    expect(old in text, f"{old!r} in flags.yaml")
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
