"""`flagstaff up` as a process of its own, as its users run it, and what it says."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from tests.clients.event_log import PATIENCE, EventLog
from tests.programs import DIES_WITH_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.repositories import Repository

FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")
SCHEMA = Path(__file__).parents[2] / "docs" / "up-events.schema.json"
FREE_PORTS = {"--port": 0, "--sync-port": 0, "--ofrep-port": 0, "--management-port": 0}


def banner(default: str, **more: object) -> str:
    """A document with one string flag, `banner`."""
    variants = {"plain": "Welcome", "party": "Hooray"}
    flag = {"state": "ENABLED", "variants": variants, "defaultVariant": default, **more}
    return json.dumps({"flags": {"banner": flag}}, indent=2)


class Up:
    """A running `flagstaff up --json`; every line that it prints is held against the published schema."""

    def __init__(self, source: Path | str, *arguments: str, **ports: int) -> None:
        asked = FREE_PORTS | {f"--{name.replace('_', '-')}": port for name, port in ports.items()}
        flat = [str(word) for pair in asked.items() for word in pair]
        self.process = subprocess.Popen(
            [*DIES_WITH_US, FLAGSTAFF, "up", str(source), "--json", *flat, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text(encoding="utf-8")))
        self._events = EventLog(self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self.process.stdout or ():
            event = json.loads(line)
            self._schema.validate(event)
            yield event

    def wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event that `wanted` accepts."""
        return self._events.wait(wanted, self.stop)

    def ready(self) -> dict[str, int]:
        """The ports, once a flag set is served."""
        ports: dict[str, int] = self.wait(lambda event: event["event"] == "ready")["ports"]
        return ports

    def revision(self, commit: str) -> dict[str, Any]:
        """What was said of `commit`."""
        return self.wait(lambda event: event.get("revision", "").endswith(commit))

    def source(self, state: str) -> dict[str, Any]:
        """The next event which says that the source is `up` or `down`."""
        return self.wait(lambda event: event.get("state") == state)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """End the process; what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self._events.close()
        errors = ""
        if self.process.stderr is not None and not self.process.stderr.closed:
            errors = self.process.stderr.read()
            self.process.stderr.close()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return errors


@contextlib.contextmanager
def up(repository: Repository | Path | str, *arguments: str, **ports: int) -> Iterator[Up]:
    """`flagstaff up` on free ports, stopped at the end."""
    path = repository if isinstance(repository, Path | str) else repository.path
    running = Up(path, *arguments, **ports)
    try:
        yield running
    finally:
        running.stop()
