"""The evaluator of flagd's own core (Go, published as a module), behind a pipe."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.go import Module, prepare, program

ENGINE: Final = Module(
    "flagd-core", Path(__file__).parent / "engine", "the evaluator of flagd's core: about a minute"
)


@dataclass(frozen=True)
class Reply:
    """What flagd answers to one document and its questions."""

    now: int
    """Unix seconds that flagd read for all of its answers."""
    refused: str | None
    """Why flagd does not load the document."""
    answers: list[dict[str, Any]]
    """Each has `value`, `variant`, `reason`, `metadata` and, where it failed, `error`."""


class FlagdCore:
    """A process that evaluates one document after the other."""

    def __init__(self) -> None:
        core = program(ENGINE, "NOT COMPARED WITH FLAGD: its core cannot be built")
        self.process = subprocess.Popen(
            [core], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def ask(self, document: Any, asks: list[dict[str, Any]]) -> Reply:
        """`asks` have `key`, `type` ("boolean", "string", "integer", "float", "object" or "any") and
        `context`.

        flagd reads the clock by itself: a document is asked again if a second ended meanwhile.
        """
        request = {
            "definitions": document if isinstance(document, str) else json.dumps(document),
            "asks": [each | {"context": json.dumps(each["context"])} for each in asks],
        }
        while True:
            reply = self._exchange(json.dumps(request))
            if reply["now"] == reply["asked_until"] or "refused" in reply:
                return Reply(reply["now"], reply.get("refused"), reply["answers"])

    def _exchange(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answered = self.process.stdout.readline()
        assert answered, f"flagd's core ended on {line}"
        found: dict[str, Any] = json.loads(answered)
        return found


if __name__ == "__main__":
    sys.exit(prepare(ENGINE, "NOT COMPARED WITH FLAGD: its core cannot be built here"))
