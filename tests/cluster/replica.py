"""A program of ours as a process of its own, that can be killed and started again."""

from __future__ import annotations

import contextlib
import signal
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, TypeVar

from tests.cluster.patience import PATIENCE
from tests.cluster.plane import start

if TYPE_CHECKING:
    import re
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


class Replica:
    """One process at a time. Its log, of the last start, is in `log`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{name}.log"
        self.command: list[str] = []
        self.management = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self._process = start(self.command, log)

    def read_ports(self, ports: re.Pattern[str]) -> tuple[int, ...]:
        """The numbers in the line of its log that names its ports."""
        until = time.monotonic() + PATIENCE
        while not (found := ports.search(self.log_text())):
            late = self.has_ended() or time.monotonic() > until
            assert not late, f"{self.log.stem} does not listen: {self.log_text()[-3000:]}"
            time.sleep(0.02)
        return tuple(map(int, found.groups()))

    def log_text(self) -> str:
        """All that it logged."""
        return self.log.read_text(errors="replace")

    def ask(self, path: str) -> tuple[int, str]:
        """The management port's status and text; status 0 where there is no answer."""
        try:
            url = f"http://127.0.0.1:{self.management}{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> str:
        """What Prometheus would read; empty where there is no answer."""
        return self.ask("/metrics")[1]

    def has_ended(self) -> bool:
        """Whether there is no process now."""
        return self._process is None or self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        self._started.send_signal(number)

    def wait(self) -> int:
        """The exit code, once it ended by itself."""
        return self._started.wait(PATIENCE)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        self.send(number)
        return self.wait()

    def close(self) -> None:
        """End what still runs."""
        if not self.has_ended():
            self.end(signal.SIGKILL)


R = TypeVar("R", bound=Replica)


@contextlib.contextmanager
def run_replica(replica: R) -> Iterator[R]:
    """`replica` for as long as the block lasts; inside, it may be ended and started again."""
    with contextlib.closing(replica):
        replica.start()
        yield replica
