"""Files that are written from the program."""

from __future__ import annotations

from controller.cli.published import ROOT, published_files, reasons


def test_published_files_are_those_that_the_program_writes() -> None:
    stale = [name for name, content in published_files().items() if (ROOT / name).read_text() != content]
    assert stale == [], "make reference writes them anew"


def test_reasons_that_are_in_a_variable_are_listed() -> None:
    listed = {reason.name for reason in reasons() if reason.kind == "FlagRollout"}
    assert listed >= {
        "RolloutStarted", "StepAdvanced", "Promoted", "RolledBack", "CheckError", "Inconclusive", "Frozen",
        "OutsideWindow", "WaitingForConfirmation",
    }  # fmt: skip
