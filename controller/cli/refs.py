"""`flagstaff refs`: where code refers to flags, which flags no code asks for, and calls without a flag."""

from __future__ import annotations

import argparse
import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controller.authoring.code_references import FORMS, CodeReference
from controller.cli.arguments import add_build_arguments
from controller.cli.definitions import SOURCE_HELP, read_definitions
from controller.cli.output import add_output_argument, document
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, Exit, exit_on, printable
from controller.local.code_search import CodeSearch, Removal, added_lines, read_options, removals, search
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_MOST_COMMITS = 10_000
_SHOWN = 5
"""References of one flag in a text for people; other forms have all."""


@dataclass(frozen=True, slots=True)
class CodeReport:
    """What was found for each flag."""

    keys: Sequence[str]
    """The flags that are defined, sorted."""
    found: CodeSearch
    removed: Mapping[str, Removal]
    since: str | None
    """Only lines that were added since this commit are reported; None: all."""

    @property
    def unreferenced(self) -> list[str]:
        """The flags to which no code refers."""
        return [] if self.since else [key for key in self.keys if key not in self.found.references]


def configure_refs(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("code", metavar="DIR", type=Path, help="the folder of the code")
    add_build_arguments(parser, **SOURCE_HELP, name="--source")
    parser.add_argument(
        "--since", metavar="COMMIT",
        help="report only what lines refer to that the folder has and this commit has not, as in a pull "
        "request: origin/main",
    )  # fmt: skip
    parser.add_argument(
        "--lookback", metavar="N", type=_commits, default=0,
        help="search the newest N commits for the one that removed the last reference to a flag (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--form", action="append", choices=[*FORMS], default=[], dest="forms",
        help="also search for keys in this form: of new-cart newCart (camel), NewCart (pascal), new_cart "
        "(snake), NEW_CART (upper-snake), new.cart (dot); may be repeated",
    )  # fmt: skip
    add_output_argument(parser, "text", "json", "csv", "markdown")
    parser.set_defaults(run=run)


def _commits(text: str) -> int:
    if not text.isdecimal() or int(text) > _MOST_COMMITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of commits; write 0 to {_MOST_COMMITS}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """0: each flag that code asks for is defined; 1: one is not; 2 wrong usage; 3 no source or folder."""
    if not arguments.code.is_dir():
        raise Exit(f"{arguments.code} is no folder", UNREACHABLE)
    _, composition = read_definitions(arguments)
    keys = sorted({*composition.flag_set.flags, *composition.missing})
    with exit_on(UNREACHABLE, Setback):
        report = _report(arguments, keys)
    print(_FORMS[arguments.output](report), end="")
    return PROBLEM if report.found.undefined else OK


def _report(arguments: argparse.Namespace, keys: Sequence[str]) -> CodeReport:
    options = read_options(arguments.code)
    options = options.model_copy(update={"forms": (*options.forms, *arguments.forms)})
    found = search(arguments.code, keys, options)
    gone = [key for key in keys if key not in found.references]
    removed = removals(arguments.code, gone, options, arguments.lookback) if arguments.lookback else {}
    if arguments.since is not None:
        found = _keep_added(found, added_lines(arguments.code, arguments.since))
    return CodeReport(keys, found, removed, arguments.since)


def _keep_added(found: CodeSearch, lines: Mapping[str, frozenset[int]]) -> CodeSearch:
    """What lines that were added refer to."""

    def kept(references: Iterable[CodeReference]) -> list[CodeReference]:
        return [place for place in references if place.line in lines.get(place.file, ())]

    references = {key: kept(places) for key, places in found.references.items()}
    return replace(
        found,
        references={key: places for key, places in references.items() if places},
        undefined=kept(found.undefined),
    )


def as_text(report: CodeReport) -> str:
    """Lines for people."""
    return "".join(f"{printable(line)}\n" for line in _lines(report))


def _lines(report: CodeReport) -> Iterator[str]:
    found = report.found
    for key, places in sorted(found.references.items()):
        yield f"{key}: {_count(len(places), 'reference')}"
        yield from (f"  {place.file}:{place.line}: {place.text}" for place in places[:_SHOWN])
        if len(places) > _SHOWN:
            yield f"  … and {len(places) - _SHOWN} more"
    for key in report.unreferenced:
        yield f"{key}: no reference{_removal_text(report.removed.get(key))}"
    for place in found.undefined:
        yield f"{place.file}:{place.line}: the flag {place.key!r} is not defined: {place.text}"
    for note in found.notes:
        yield f"note: {note}"
    unreferenced = "" if report.since else f", {_count(len(report.unreferenced), 'flag')} without one"
    total = sum(map(len, found.references.values()))
    yield (
        f"{_count(total, 'reference')} to {_count(len(found.references), 'flag')} in "
        f"{_count(found.files, 'file')}{unreferenced}, {_count(len(found.undefined), 'call')} without a flag"
    )


def _removal_text(removed: Removal | None) -> str:
    if removed is None:
        return ""
    day = removed.at.date().isoformat()
    return (
        f"; the last one was removed by {removed.commit[:12]} on {day}, {removed.author}: {removed.subject}"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def as_json(report: CodeReport) -> str:
    """One object: `flags` by key, with `references` and, where known, `removed`; `undefined`; `notes`."""
    flags: dict[str, Any] = {}
    for key in report.keys if report.since is None else sorted(report.found.references):
        flags[key] = {"references": [_plain(place) for place in report.found.references.get(key, ())]}
        if (removed := report.removed.get(key)) is not None:
            flags[key]["removed"] = {
                "commit": removed.commit,
                "author": removed.author,
                "subject": removed.subject,
                "at": removed.at.isoformat(),
            }
    content = {
        "files": report.found.files,
        "flags": flags,
        "undefined": [{"key": place.key, **_plain(place)} for place in report.found.undefined],
        "notes": report.found.notes,
    }
    return document(content, "json")


def _plain(place: CodeReference) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "name": place.name, "text": place.text}


def as_csv(report: CodeReport) -> str:
    """A line for each reference, and for each flag without one."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("flag", "file", "line", "name", "text", "defined"))
    for key, places in sorted(report.found.references.items()):
        writer.writerows((key, place.file, place.line, place.name, place.text, "true") for place in places)
    writer.writerows((key, "", "", "", "", "true") for key in report.unreferenced)
    for place in report.found.undefined:
        writer.writerow((place.key, place.file, place.line, place.name, place.text, "false"))
    return printable(written.getvalue())


def as_markdown(report: CodeReport) -> str:
    """For a comment on a pull request: first what it uses that is not defined."""
    lines = [
        f"- :x: `{_cell(place.file)}:{place.line}` uses `{_cell(place.key)}`, which is not defined"
        for place in report.found.undefined
    ]
    if report.found.references:
        lines += ["", "| flag | references | first |", "| --- | --- | --- |"]
        for key, places in sorted(report.found.references.items()):
            lines.append(f"| `{_cell(key)}` | {len(places)} | `{_cell(places[0].file)}:{places[0].line}` |")
    if report.unreferenced:
        names = ", ".join(f"`{_cell(key)}`" for key in report.unreferenced)
        lines += ["", f"Without a reference: {names}"]
    return "".join(f"{printable(line)}\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")


_FORMS = {"text": as_text, "json": as_json, "csv": as_csv, "markdown": as_markdown}
