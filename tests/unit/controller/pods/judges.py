"""What keeps the processes of judges busy. They import this module: it loads little."""

from __future__ import annotations

import json
import os
from pathlib import Path


def spin(folder: str) -> None:
    """Work without end, and leave the process's id in the folder."""
    (Path(folder) / str(os.getpid())).touch()
    while True:
        pass


def spin_for_hostile_ones(content: bytes, _around: object) -> tuple[str, tuple[str, ...]]:
    """An objection to which the object's own text takes for ever, where that says so."""
    body = json.loads(content)["request"]["object"]
    if body["spec"].get("folder"):
        spin(body["spec"]["folder"])
    return "", ()
