"""Traces of rollouts: what each command changes, tick by tick. FLAGSTAFF_REWRITE=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.worlds.rollout_traces import RolloutWorld

TRACES = sorted((Path(__file__).parent / "traces").glob("*.txt"))


def trace(text: str) -> str:
    """The text with what its commands, the lines that begin with `$ `, lead to."""
    world, lines = RolloutWorld(), []
    for line in text.splitlines():
        if line.startswith("$ "):
            lines += [line, *world.run(line.removeprefix("$ "))]
        elif not line or line.startswith("#"):
            lines.append(line)
            if not line:
                world = RolloutWorld()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_rollout_goes_as_its_trace_says(path: Path) -> None:
    told = trace(path.read_text())
    if os.environ.get("FLAGSTAFF_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
