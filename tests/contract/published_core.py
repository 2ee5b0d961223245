"""The published Python cores of flagd, one for each generation of `fractional`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ORACLES: Final = Path(os.environ.get("ORACLES") or ROOT / ".oracles")
NOW: Final = 1_700_000_000
"""Unix seconds, the time for all of their answers."""


class Core:
    """A published core in a process of its own."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        program = [ORACLES / generation / "bin" / "python", Path(__file__).with_name("oracle.py")]
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii"
        )

    def ask(self, document: dict[str, Any], asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        request = {"definitions": json.dumps(document), "now": NOW, "asks": asks}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the core ended on {json.dumps(request)}"
        answers: list[dict[str, Any]] = json.loads(line)["answers"]
        return answers

    def end(self) -> None:
        self.process.communicate()
