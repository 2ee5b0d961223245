"""How a measurement is printed and kept: medians and ratios, one JSON file for all, with the date of each."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILE = Path(__file__).with_name("results.json")
DATES = "measured on"
"""The key of the results file under which each measurement has its date."""


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def keep(name: str, rows: Iterable[dict[str, Any]]) -> None:
    """Print the rows, each as it is measured, and put them into the results file under `name`."""
    measured = show(name, rows)
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known[name] = measured
    known.setdefault(DATES, {})[name] = time.strftime("%Y-%m-%d", time.gmtime())
    known["machine"] = {
        "cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version(),
    }  # fmt: skip
    FILE.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def show(name: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the rows, and return them."""
    print(f"\n{name}", flush=True)
    measured = []
    for row in rows:
        print("  " + "  ".join(f"{key}: {_format_value(value)}" for key, value in row.items()), flush=True)
        measured.append(row)
    return measured


def _format_value(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
