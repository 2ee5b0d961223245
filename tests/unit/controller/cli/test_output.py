"""Forms in which verbs print records."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from controller.cli.object_rows import RECORD
from controller.cli.output import Column, document, plain, table

IMPORTS: Final = "import time; from controller.cli.output import *; from controller.cli.printing import *"


@dataclass(frozen=True, slots=True)
class Row:
    __pydantic_config__ = RECORD

    name: str
    last_change: str | None = None


ROWS: Final = (Row("banner", "main"), Row("雪\x1b[2J"))
COLUMNS: Final = (
    Column("NAME", lambda row: row.name, style=lambda _: "red"),
    Column("CHANGE", lambda row: row.last_change or "-"),
    Column("LENGTH", lambda row: str(len(row.name)), wide=True),
)


def on_a_terminal(program: str, **environment: str) -> str:
    """What a Python program prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    variables = {name: text for name, text in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-c", f"{IMPORTS}\n{program}"],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**variables, "TERM": "xterm", "COLUMNS": "80", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        # Linux ends a terminal without a writer by an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                shown += piece
        os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_cells_stand_below_each_other_and_cannot_steer_a_terminal() -> None:
    assert table(COLUMNS, ROWS).splitlines() == [
        "NAME         CHANGE",
        "banner       main",
        "雪\\u001b[2J  -",
    ]


def test_wide_table_has_more_columns_and_an_empty_one_says_so() -> None:
    assert table(COLUMNS, ROWS[:1], wide=True).splitlines()[0] == "NAME    CHANGE  LENGTH"
    assert table(COLUMNS, [], rows="flags") == "no flags\n"


def test_long_cell_is_not_cut_in_a_pipe() -> None:
    assert table(COLUMNS, [Row("a" * 500)]).splitlines()[1] == f"{'a' * 500}  -"


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_table_is_coloured_on_a_terminal_unless_no_color_is_set(
    environment: dict[str, str], coloured: bool
) -> None:
    shown = on_a_terminal(
        "print(table([Column('NAME', str, style=lambda _: 'red')], ['banner']))", **environment
    )
    assert "banner" in shown
    assert ("\x1b[31mbanner" in shown) is coloured


def test_cells_stand_below_each_other_whatever_their_colours() -> None:
    columns = "[Column('A', str, style=lambda text: text), Column('B', str)]"
    shown = on_a_terminal(f"print(table({columns}, ['red', 'none', '']))")
    assert shown.splitlines()[:4] == [
        "\x1b[1mA\x1b[0m     \x1b[1mB\x1b[0m", "\x1b[31mred\x1b[0m   red", "none  none", "",
    ]  # fmt: skip


def test_no_color_leaves_bold_headings_and_a_dumb_terminal_nothing() -> None:
    program = "print(table([Column('A', str, style=lambda _: 'red')], ['b']))"
    assert "\x1b[1mA\x1b[0m\r\nb\r\n" in on_a_terminal(program, NO_COLOR="1")
    assert "A\r\nb\r\n" in on_a_terminal(program, TERM="dumb")


def test_describe_has_coloured_tables_on_a_terminal() -> None:
    condition = {"type": "Ready", "status": "True", "reason": "Applied", "message": "\x1b[2J"}
    body = {"kind": "FlagSet", "metadata": {"name": "flags"}, "status": {"conditions": [condition]}}
    shown = on_a_terminal(
        "from controller.api.meta import Resource; from controller.cli.description import describe_object\n"
        f"print(describe_object(Resource.of({body}), []))"
    )
    assert "\x1b[1mTYPE\x1b[0m" in shown
    assert "\\u001b[2J" in shown


def test_no_line_is_broken_on_a_narrow_terminal() -> None:
    shown = on_a_terminal("print(table([Column('A', str), Column('B', str)], ['x' * 30]))", COLUMNS="20")
    assert f"{'x' * 30}  {'x' * 30}\r\n" in shown


def test_records_are_json_and_yaml_in_camel_case_without_what_is_absent() -> None:
    records = plain((*ROWS[:1], Row("snow")), Row)
    assert records == [{"name": "banner", "lastChange": "main"}, {"name": "snow"}]
    assert json.loads(document(records, "json")) == records
    assert yaml.safe_load(document(records, "yaml")) == records


@pytest.mark.parametrize(("seconds", "shown"), [(1.0, True), (0.0, False)])
def test_work_that_lasts_is_shown_on_a_terminal_and_short_work_is_not(seconds: float, shown: bool) -> None:
    text = on_a_terminal(f"with progress('reading', patience=0.2): time.sleep({seconds})")
    assert ("reading …" in text) is shown
