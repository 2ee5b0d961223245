"""What fault tests share: how long recoveries took, told at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line a recovery, whichever process of a parallel run it was measured in."""
    reports = terminalreporter.stats.get("passed", [])
    lines = [
        str(what) for each in reports for name, what in each.user_properties if name == "recovery"
    ]
    if lines:
        terminalreporter.section("recovery")
        for line in sorted(lines):
            terminalreporter.line(line)
