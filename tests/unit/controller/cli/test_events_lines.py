"""How `flagstaff events` shows an Event."""

from __future__ import annotations

from typing import Any

from controller.cli.events import lines

CHANGES = "~ banner: default off (false) → on (true)\n+ new: on (\x1b[2J)"
HEAD = "2026-01-02T03:04:05Z  Normal   FlagSet/shop/flags  Applied  2 changed"


def event(**more: Any) -> dict[str, Any]:
    about = {"kind": "FlagSet", "namespace": "shop", "name": "flags"}
    return {
        "involvedObject": about, "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "reason": "Applied",
        "message": "2 changed", "metadata": {"flagstaff.dev/changes": CHANGES}, **more,
    }  # fmt: skip


def test_each_flag_that_changed_has_a_line() -> None:
    assert lines(event(), colours=False) == [
        HEAD, "  ~ banner: default off (false) → on (true)", "  + new: on ( [2J)",
    ]  # fmt: skip
    assert lines(event(metadata={}), colours=False) == [HEAD]


def test_errors_and_changes_have_colours_and_no_others_do() -> None:
    head, changed, added = lines(event(), colours=True)
    assert head == HEAD
    assert changed.startswith("\x1b[33m  ~ banner")
    assert added == "\x1b[32m  + new: on ( [2J)\x1b[0m"
    assert lines(event(severity="error", metadata={}), colours=True)[0].startswith("\x1b[31m2026")
