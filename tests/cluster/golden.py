"""What kubectl prints, kept in files: what differs from run to run is masked, all else must stay word for
word.

FLAGSTAFF_REWRITE=1 writes the files anew; read the difference as a person on call would.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER: Final = Path(__file__).parent / "golden"
REWRITE: Final = "FLAGSTAFF_REWRITE"
SETTLED: Final = 3.0
PATIENCE: Final = 30.0
_MASKS: Final = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:\d\d)", "<time>"),
    (r"sha256:[0-9a-f]{64}", "sha256:<digest>"),
    (r"/hook/[0-9a-f]{64}", "/hook/<path>"),
    (r"[0-9a-f]{64}", "<digest>"),
    (r"[0-9a-f]{40}", "<commit>"),
    (r"(Resource Version:\s+)\d+", r"\1<version>"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
    (r"local\.:\d+", "local.:<port>"),
    (r"\b\d+m?\d*s( \(x\d+ over \d+m?\d*s\))?(?=\s+flagstaff-controller)", "<age>"),
    (r"(?m)(?<!Timeout:)(?<!Interval:)\s{2,}\d+m?\d*s(?=\s*$|\s{2,}\S)", "  <age>"),
    (r"(Size:\s+)\d+", r"\1<size>"),
    (r"(?m)[ \t]+$", ""),
)


def mask(text: str, namespace: str) -> str:
    """`text` without what differs from run to run; Events in the order of the alphabet, as many have one
    time, and so the problems that an API server lists in any order.
    """
    text = text.replace(namespace, "shop")
    for pattern, shown in _MASKS:
        text = re.sub(pattern, shown, text)
    text = re.sub(r"Requested At: \d+|At:  \d{16,}", "At:  <time>", text)
    return _columns(_sorted_problems(_sorted_events(text)))


def _sorted_problems(text: str) -> str:
    return re.sub(
        r"(?m)(?:^\* .*\n)+", lambda found: "".join(sorted(found[0].splitlines(keepends=True))), text
    )


def _sorted_events(text: str) -> str:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Events:") and "<none>" not in line:
            end = number + 3
            while end < len(lines) and lines[end].startswith("  "):
                end += 1
            lines[number + 3 : end] = sorted(lines[number + 3 : end])
    return "\n".join(lines) + "\n"


def _columns(text: str) -> str:
    """kubectl's columns are as wide as what was masked: two spaces part them."""
    lines = [re.sub(r"(?<=\S) {2,}", "  ", line) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def check(name: str, show: Callable[[], str]) -> None:
    """Compare with the file, or write it where that is asked for. Events come a moment after what they are
    about.
    """
    file = FOLDER / f"{name}.txt"
    if os.environ.get(REWRITE):
        time.sleep(SETTLED)
        file.parent.mkdir(exist_ok=True)
        file.write_text(show())
    until = time.monotonic() + PATIENCE
    wanted = file.read_text()
    while (text := show()) != wanted and time.monotonic() < until:
        time.sleep(0.2)
    lines = difflib.unified_diff(wanted.splitlines(), text.splitlines(), lineterm="", n=2)
    changed = "\n".join(lines)
    assert not changed, f"{file} is another; {REWRITE}=1 writes it anew\n{changed}"
