"""Asks every evaluator all the time, and follows what is in the API server."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.judging import contradiction
from tests.chaos.world import NAME
from tests.cluster.api import Refused, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.commits import Commits
    from tests.chaos.judging import Violations
    from tests.chaos.world import ChaosWorld

_EVERY: Final = 0.05
_PATIENCE: Final = 2.0
_WATCH_SECONDS: Final = 10
REVISION: Final = "flagstaff.dev/revision"


class Observer:
    """A thread for each evaluator and one for the API server, until the block ends."""

    def __init__(self, world: ChaosWorld, commits: Commits, violations: Violations) -> None:
        self._world, self._commits, self._violations = world, commits, violations
        self._over = threading.Event()
        self.versions: set[str] = set()
        """Resource versions of the flag set that were judged."""

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Whatever happens meanwhile is judged."""
        threads = [threading.Thread(target=self._ask, args=(name,)) for name in self._world.pods]
        threads += [threading.Thread(target=self._follow), threading.Thread(target=self._look_for_ends)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._over.set()
            for each in threads:
                each.join()

    def _look_for_ends(self) -> None:
        while not self._over.wait(0.5):
            for name in self._world.ended_processes():
                self._violations.add(f"{name} ended by itself", self._world.log_of(name))

    def _ask(self, name: str) -> None:
        while not self._over.is_set():
            evaluator = self._world.pods[name].evaluator
            if name in self._world.down:
                self._over.wait(_EVERY)
                continue
            port = self._world.pods[name].port("ofrep")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
            with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
                while not self._over.wait(_EVERY):
                    answer = all_flags(connection)
                    if self._world.pods[name].evaluator is not evaluator or name in self._world.down:
                        break
                    self._judge(name, answer)

    def _judge(self, name: str, answer: dict[str, Any]) -> None:
        values = {each["key"]: each.get("value", each.get("errorCode")) for each in answer.get("flags", ())}
        revisions = {each.get("metadata", {}).get(REVISION, "nothing") for each in answer.get("flags", ())}
        revision = " and ".join(sorted(map(str, revisions))) or str(answer)
        wrong = contradiction(values, revision, self._commits.known_commits())
        if not wrong:
            wrong = self._world.progress[name].see(int(values["number"]))
        if wrong:
            self._violations.add(f"{name}: {wrong}")

    def _follow(self) -> None:
        path = path_of("ffc", self._world.spine.name)
        while not self._over.is_set():
            with contextlib.suppress(OSError, Refused, ValueError, http.client.HTTPException):
                listed = self._world.spine.api.ask("GET", path)
                if not listed["items"]:
                    self._violations.add("the API server has no flag set")
                for each in listed["items"]:
                    self._version(each)
                version = listed["metadata"]["resourceVersion"]
                self._watch(f"{path}?watch=true&timeoutSeconds={_WATCH_SECONDS}&resourceVersion={version}")
            self._over.wait(_EVERY)

    def _watch(self, path: str) -> None:
        for line in self._world.spine.api.lines(path):
            event = json.loads(line)
            if event["type"] == "DELETED":
                self._violations.add("the flag set was deleted")
            elif event["type"] in {"ADDED", "MODIFIED"}:
                self._version(event["object"])
            if self._over.is_set():
                return

    def _version(self, found: dict[str, Any]) -> None:
        assert found["metadata"]["name"] == NAME
        flags = found["spec"]["flagSpec"]["flags"]
        values = {key: flag["variants"].get(flag["defaultVariant"]) for key, flag in flags.items()}
        revision = found["metadata"]["annotations"][REVISION]
        if wrong := contradiction(values, revision, self._commits.known_commits()):
            self._violations.add(f"in the API server: {wrong}")
        self.versions.add(found["metadata"]["resourceVersion"])


def all_flags(connection: http.client.HTTPConnection) -> dict[str, Any]:
    """A bulk answer. Raises OSError, HTTPException."""
    connection.request("POST", "/ofrep/v1/evaluate/flags", body="{}")
    answer: dict[str, Any] = json.load(connection.getresponse())
    return answer


def difference_after(world: ChaosWorld, commit: str, number: int) -> str:
    """What is not yet as it must be after the last commit; empty: nothing."""
    for name, progress in world.progress.items():
        if progress.newest != number:
            return f"{name} serves {progress.newest}, not {number}"
    try:
        found, made = world.spine.get("flagset", NAME), world.spine.get("ffc", NAME)
        doubted = world.find_doubted()
    except (OSError, Refused) as error:
        return f"the API server: {error}"
    applied = found["status"].get("lastAppliedRevision", "")
    if not applied.endswith(commit):
        return f"the FlagSet applied {applied}, not {commit}"
    if doubted:
        return doubted
    served, wanted = made["status"].get("served"), f"{len(world.pods)}/{len(world.pods)}"
    if served != wanted or made["status"].get("laggards"):
        return f"served {served}, laggards {made['status'].get('laggards')}"
    return ""


def wait_settled(world: ChaosWorld, commit: str, number: int, seconds: float) -> str:
    """The same, once it is nothing or the seconds are over."""
    until = time.monotonic() + seconds
    while (missing := difference_after(world, commit, number)) and time.monotonic() < until:
        time.sleep(0.1)
    return missing
