"""A published provider in a process of its own, asked a line of JSON at a time
(tests/node/ask.mjs says how).
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any

from tests.foreign.languages import command

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 30.0


class Asked:
    """A provider that has started."""

    def __init__(self, words: list[str], errors: IO[str], patience: float) -> None:
        self._errors = errors
        self._patience = patience
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, kind: str, key: str, fallback: Any, **context: Any) -> dict[str, Any]:
        """`{"value", "variant"?, "reason", "errorCode"?}` of one flag."""
        asked = {"kind": kind, "key": key, "fallback": fallback, "context": context}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._next(self._answers, f"answer for {key}")

    def expect(self, event: str) -> None:
        """Wait until the provider says so."""
        while self._next(self._events, event)["event"] != event:
            pass

    def close(self) -> None:
        """End it: with its input, or else for good."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _next(self, source: queue.Queue[dict[str, Any]], wanted: str) -> dict[str, Any]:
        try:
            return source.get(timeout=self._patience)
        except queue.Empty:
            self._errors.seek(0)
            raise AssertionError(f"no {wanted}; stderr: {self._errors.read()}") from None

    def _read(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            (self._events if "event" in said else self._answers).put(said)


@contextlib.contextmanager
def open_provider(language: str, provider: str, port: int, patience: float = PATIENCE) -> Iterator[Asked]:
    """The provider, ready within `patience` seconds, and ended at the end. Raises AssertionError."""
    with tempfile.TemporaryFile("w+") as errors:
        running = Asked(command(language, provider, port), errors, patience)
        try:
            running.expect("ready")
            yield running
        finally:
            running.close()
