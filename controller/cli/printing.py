"""What verbs print, and how they end. Standard library only, so any image can use it."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence


OK, PROBLEM, USAGE, UNREACHABLE = 0, 1, 2, 3
"""Exit codes, as every verb has them."""
INTERRUPTED = 130
"""The exit code that shells report for a process that SIGINT ended."""


class Exit(Exception):
    """The verb cannot do its work: the text is the reason, and `code` the exit code."""

    def __init__(self, why: object, code: int = UNREACHABLE) -> None:
        super().__init__(str(why))
        self.code = code


@contextlib.contextmanager
def exit_on(code: int, *errors: type[Exception]) -> Iterator[None]:
    """End the verb with `code` where the block raises one of `errors`, whose text says why."""
    try:
        yield
    except errors as error:
        raise Exit(reason(error), code) from error


def reason(error: Exception) -> str:
    """The error's own words; of an OSError its file and what is wrong with it, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


_DIGITS: Final = 12
_MOST_KNOWN: Final = 1000
_DIGEST: Final = re.compile(rf"([0-9a-f]{{{_DIGITS}}})[0-9a-f]{{28,}}")


def add_steps_argument(parser: argparse.ArgumentParser) -> None:
    """--output of verbs that print an answer and its steps."""
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text",
        help="the answer and a line for each step (text, the default), or all of it as one JSON object",
    )  # fmt: skip


def format_answer(answer: Mapping[str, Any], steps: Sequence[str] = (), *, as_json: bool = False) -> str:
    """The answer as JSON, then its steps, one a line; `as_json` puts them into the object. Nothing in it can
    steer a terminal.
    """
    if as_json:
        answer, steps = {**answer, "steps": [*steps]} if steps else answer, ()
    lines = [json.dumps(answer, indent=2, ensure_ascii=False)]
    lines += [f"  {step}" for step in steps]
    return printable("\n".join(lines))


def printable(text: str) -> str:
    """Escape all characters that cannot be seen, except line breaks."""
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in text.split("\n"))


def _escape(sign: str) -> str:
    return sign if sign.isprintable() else json.dumps(sign)[1:-1]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "…"?` for the known word that is spelled most alike, or an empty text."""
    import difflib

    names = [*known][:_MOST_KNOWN]
    turned = [name for name in names if sorted(name) == sorted(word)]
    near = turned or difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def columns(rows: Sequence[Sequence[str]], codes: Sequence[Sequence[str]] = ()) -> Iterator[str]:
    """A line of each row, with its cells below each other. Nothing in it can steer a terminal, but `codes`:
    those by which one draws each cell, empty for none.
    """
    plain = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*plain, strict=True)]
    for row, drawn in zip_longest(plain, codes, fillvalue=("",) * len(widths)):
        cells = (
            (f"\x1b[{code}m{cell}\x1b[0m" if code else cell) + " " * (width - _width(cell))
            for cell, width, code in zip(row, widths, drawn, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _width(text: str) -> int:
    """Places that a terminal takes for a text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(1 + (east_asian_width(sign) in {"W", "F"}) - bool(combining(sign)) for sign in text)


def short(revision: str) -> str:
    """Shorten a complete revision to `main@sha1:46ead10f53b7`; return any other text as it is."""
    return _DIGEST.sub(r"\1", revision)


def announce(verb: str, revision: str, subject: str) -> None:
    """Say on standard error that a commit was read, not the working tree."""
    quoted = f" {subject!r}" if subject else ""
    print(f"flagstaff {verb}: reading {short(revision)}{quoted}", file=sys.stderr)


SILENT_SECONDS: Final = 1.0
"""Seconds before anything is shown."""


@contextlib.contextmanager
def progress(doing: str, patience: float = SILENT_SECONDS) -> Iterator[None]:
    """Show `doing` on standard error, if that is a terminal and the block lasts longer
    than `patience`, in seconds. Shows nothing for an empty text.
    """
    if not doing or not sys.stderr.isatty():
        yield
        return
    with contextlib.ExitStack() as shown:
        ended = threading.Event()
        waiting = threading.Thread(target=_show_later, args=(doing, ended, patience), daemon=True)
        waiting.start()
        shown.callback(waiting.join)
        shown.callback(ended.set)
        yield


def _show_later(doing: str, ended: threading.Event, patience: float) -> None:
    if ended.wait(patience):
        return
    print(f"{printable(doing)} …", end="", file=sys.stderr, flush=True)
    ended.wait()
    print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
