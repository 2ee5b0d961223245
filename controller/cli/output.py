"""The forms in which verbs print lists of records: tables for people; JSON, YAML and names for programs."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.cli import printing
from controller.cli.printing import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from rich.console import Console

T = TypeVar("T")

FORMS: Final = ("table", "wide", "json", "yaml", "name")
DOCUMENTS: Final = ("json", "yaml")
_MEANINGS: Final = {
    "text": "lines for people",
    "table": "a table",
    "wide": "a table with more columns",
    "json": "JSON",
    "yaml": "YAML",
    "name": "KIND/NAME lines",
    "markdown": "Markdown",
    "sarif": "SARIF",
    "csv": "comma-separated values",
}
_CLEAR: Final = "\x1b[H\x1b[2J"
WATCH_SECONDS: Final = 2.0
"""Seconds from one reading of several clusters to the next."""
_CODES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
"""Codes of the styles of columns: https://ecma-international.org/publications-and-standards/standards/ecma-48
"""
_PIPE_WIDTH: Final = 1_000_000
"""Columns of what is no terminal: no line is broken there."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    heading: str
    text: Callable[[Any], str]
    """The cell of a record."""
    wide: bool = False
    """Only with `-o wide`."""
    style: Callable[[Any], str] = lambda _: ""
    """The cell's colour on a terminal, by its record."""


def add_output_argument(parser: argparse.ArgumentParser, *forms: str) -> None:
    """-o, with the first of `forms`, which are names of `_MEANINGS`, as the default."""
    meanings = ", ".join(f"{_MEANINGS[form]} ({form})" for form in forms)
    parser.add_argument(
        "-o", "--output", choices=forms, default=forms[0], help=f"{meanings}; default {forms[0]}"
    )


def add_watch_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """-w and --watch, which shows `what` until Ctrl-C."""
    parser.add_argument("-w", "--watch", action="store_true", help=f"show {what}, until Ctrl-C")


def document(value: object, form: str) -> str:
    """JSON or YAML of a value, which ends with a line break. Nothing in it can steer a terminal."""
    if form == "json":
        return printable(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"
    # Imported here: the evaluator's verbs print JSON alone.
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1_000)
    return printable(text)


def plain(records: Sequence[Any], kind: type[Any]) -> Any:
    """Records of a dataclass as JSON has them, in camelCase, without fields that are None."""
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(list[kind])  # type: ignore[valid-type] # known at run time alone
    return adapter.dump_python([*records], mode="json", by_alias=True, exclude_none=True)


def table(
    columns: Sequence[Column],
    records: Iterable[Any],
    *,
    wide: bool = False,
    rows: str = "",
    header: bool = True,
) -> str:
    """A table with a line for each record, coloured on a terminal, and a `header`; without records,
    `no {rows}`. A line is not broken, however narrow the terminal is.
    """
    shown = [column for column in columns if wide or not column.wide]
    known = _codes_of_terminal()
    cells = [[column.heading for column in shown]] * header
    codes = [[known.get("bold", "") for _ in shown]] * header
    for record in records:
        cells.append([column.text(record) for column in shown])
        codes.append([known.get(column.style(record), "") for column in shown])
    if len(cells) == header:
        return f"no {rows}\n"
    return "".join(f"{line}\n" for line in printing.columns(cells, codes))


def _codes_of_terminal() -> dict[str, str]:
    """The codes of the styles that standard output shows."""
    if not sys.stdout.isatty() or (console := _console()).color_system is None:
        return {}
    return {"bold": _CODES["bold"]} if console.no_color else _CODES


def draw(thing: object) -> str:
    """What rich draws for standard output, with its colours if that is a terminal and NO_COLOR is not set."""
    console = _console()
    with console.capture() as captured:
        console.print(thing, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _console() -> Console:
    from rich.console import Console

    terminal = sys.stdout.isatty()
    return Console(
        force_terminal=terminal, no_color=bool(os.environ.get("NO_COLOR")) or None, soft_wrap=not terminal,
        width=None if terminal else _PIPE_WIDTH, highlight=False,
    )  # fmt: skip


async def follow(
    show: Callable[[], Awaitable[str]], wait: Callable[[], Awaitable[object]], *, watch: bool
) -> None:
    """Print what `show` returns; to `watch`, again whenever it differs after a `wait`, without an end."""
    last = None
    while True:
        text = await show()
        if text != last:
            print((_CLEAR if watch and sys.stdout.isatty() else "") + text, end="", flush=True)
            last = text
        if not watch:
            return
        await wait()
