"""Prints an answer and its trace, whatever evaluated it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def shown(answer: Mapping[str, Any], steps: Iterable[object] = ()) -> str:
    """The answer as JSON, then its steps, one a line. Nothing in it can steer a terminal."""
    lines = [json.dumps(answer, indent=2, ensure_ascii=False)]
    lines += [f"  {step}" for step in steps]
    return printable("\n".join(lines))


def printable(text: str) -> str:
    """`text` with what is no character to be seen as an escape, but for line breaks."""
    return "\n".join(
        line if line.isprintable() else "".join(map(_escaped, line)) for line in text.split("\n")
    )


def _escaped(sign: str) -> str:
    return sign if sign.isprintable() else json.dumps(sign)[1:-1]
