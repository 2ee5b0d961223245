"""Which lines of a log are shown, and how."""

from __future__ import annotations

import argparse
import json

import pytest

from controller.cli.logs import configure_logs, format_line

LINE = json.dumps(
    {
        "time": "2026-01-02T03:04:05Z", "level": "warning", "logger": "l", "message": "not\nready",
        "object": "FlagSet/shop/flags", "revision": "main",
    }
)  # fmt: skip


def line(text: str, *words: str, namespace: str = "shop") -> str:
    parser = argparse.ArgumentParser()
    configure_logs(parser)
    return format_line(text, "pod-1", parser.parse_args(words), namespace)


def test_line_has_its_time_pod_level_object_message_and_fields() -> None:
    expected = "2026-01-02T03:04:05Z  pod-1  warning  FlagSet/shop/flags  not ready  revision=main"
    assert line(LINE) == expected
    assert line(LINE, namespace="") == expected


@pytest.mark.parametrize(
    ("words", "namespace", "visible"),
    [
        (("--for", "flagset/flags"), "shop", True),
        (("--for", "FlagSet/other"), "shop", False),
        ((), "other", False),
        (("--level", "error"), "shop", False),
        (("--level", "warning"), "shop", True),
    ],
)
def test_lines_are_chosen_by_object_namespace_and_level(
    words: tuple[str, ...], namespace: str, visible: bool
) -> None:
    assert bool(line(LINE, *words, namespace=namespace)) is visible


def test_line_that_is_no_json_is_shown_unless_an_object_is_asked_for() -> None:
    assert line("Traceback \x1b[2J") == "pod-1  Traceback \\u001b[2J"
    assert line("Traceback", "--for", "FlagSet/flags") == ""
