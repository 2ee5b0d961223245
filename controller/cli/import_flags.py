"""`flagstaff import`: flags of another product as layered definitions, exactly or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.output import add_output_argument, document, plain
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, columns, exit_on, printable
from controller.importers.comparison import BadCall, FlagComparison, compare, read_calls
from controller.importers.formats import BOUNDS, FORMATS, import_files
from controller.importers.model import ImportRefusal, Remark  # noqa: TC001 - pydantic reads the annotations
from controller.importers.moves import CutOver, freeze, moved_shares
from controller.importers.reading import ImportOptions, UnreadableFile
from controller.importers.writer import files
from controller.runtime.clock import now
from evaluator.flags.text import quote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from controller.importers.model import Imported


@dataclass(frozen=True, slots=True)
class MovedFlag:
    """At most `percent` of users get another value of a flag at the cut-over."""

    flag: str
    environment: str
    percent: float


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What `-o json` prints."""

    flags: int
    files: list[str]
    refused: tuple[ImportRefusal, ...]
    remarks: tuple[Remark, ...]
    moves: list[MovedFlag]
    compared: list[FlagComparison]


def configure_import(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "format", metavar="FORMAT", choices=list(FORMATS), help=f"one of {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "files", metavar="[ENVIRONMENT=]FILE", nargs="+",
        help="files of that format, YAML or JSON; ENVIRONMENT= names the environment that a file is of, or "
        "the only one to take of a file with several",
    )  # fmt: skip
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write definitions there; without it, only say what would come",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="NAME", choices=_approximations(),
        help="accept an approximation, which the message about a refused flag names; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--lists", action="append", default=[], metavar="ATTRIBUTE",
        help="an attribute whose values are lists; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--freeze", type=CutOver, choices=list(CutOver), default=CutOver.SPLIT,
        help="what becomes of users who are divided by shares, since no hash of another product survives: "
        "split divides them anew (default), majority gives all what most have now",
    )  # fmt: skip
    parser.add_argument(
        "--verify", type=Path, metavar="CALLS",
        help="compare with values that the old system gave: a JSON object a line, with flag, context, value, "
        "and where need be environment and time (Unix seconds)",
    )  # fmt: skip
    add_output_argument(parser, "text", "json")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0 all flags are imported and agree; 1 some are refused, or differ; 2 a file cannot be read."""
    imported = _import(options)
    moves = [
        MovedFlag(flag, environment, round(100 * share, 2))
        for flag, shares in moved_shares(imported, options.freeze).items()
        for environment, share in shares.items()
        if share > 0
    ]
    if options.freeze is CutOver.MAJORITY:
        imported = freeze(imported)
    compared = _compare(imported, options.verify) if options.verify is not None else []
    written = _write(imported, options.out) if options.out is not None else []
    report = ImportReport(len(imported.flags), written, imported.refusals, imported.remarks, moves, compared)
    if options.output == "json":
        print(document(plain([report], ImportReport)[0], "json"), end="")
    else:
        print("\n".join(printable(line) for line in _words(report, options)))
    wrong = any(item.missing or (item.differ and not item.divides) for item in compared)
    return PROBLEM if imported.refusals or wrong else OK


def _approximations() -> list[str]:
    return sorted({name for known in FORMATS.values() for name in known.approximations})


def _import(options: argparse.Namespace) -> Imported:
    contents = []
    for text in options.files:
        environment, name = _divide(text)
        with exit_on(USAGE, OSError):
            size = Path(name).stat().st_size
            if size > BOUNDS.document_bytes:
                raise Exit(f"{name}: has {size} bytes; at most {BOUNDS.document_bytes} are read", USAGE)
            contents.append((environment, name, Path(name).read_bytes()))
    chosen = ImportOptions(allowed=frozenset(options.allow), lists=frozenset(options.lists))
    with exit_on(USAGE, UnreadableFile):
        return import_files(options.format, contents, chosen)


def _divide(text: str) -> tuple[str, str]:
    """The environment, or an empty text, and the file."""
    environment, sign, name = text.partition("=")
    return (environment, name) if sign and not Path(text).exists() else ("", text)


def _compare(imported: Imported, file: Path) -> list[FlagComparison]:
    with exit_on(USAGE, OSError, BadCall), file.open("rb") as lines:
        return compare(imported, read_calls(lines, int(now().timestamp())))


def _write(imported: Imported, folder: Path) -> list[str]:
    """Write all files into a folder that is empty or not there."""
    written = []
    with exit_on(USAGE, OSError):
        if folder.exists() and any(folder.iterdir()):
            raise Exit(f"{folder} is not empty; nothing was written", USAGE)
        for name, text in files(imported):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(str(path))
    return written


def _words(report: ImportReport, options: argparse.Namespace) -> Iterator[str]:
    known = FORMATS[options.format].approximations
    for refusal in report.refused:
        what = "segment" if refusal.segment else "flag"
        yield f"{refusal.place}: the {what} {quote(refusal.name)} is refused: {refusal.message}"
        if refusal.approximation:
            yield f"    --allow {refusal.approximation} imports it: {known[refusal.approximation]}"
    for remark in report.remarks:
        yield f"{remark.place}: note on {quote(remark.name)}: {remark.message}"
    if report.moves:
        yield "No hash of another product survives, so some users get other values at the cut-over:"
        rows = [
            (f"    {item.flag}", item.environment, f"at most {item.percent:g} % of users")
            for item in report.moves
        ]
        yield from columns(rows)
    yield from _compared_words(report.compared)
    yield from report.files
    refused = sum(not refusal.segment for refusal in report.refused)
    count = f"{report.flags} flag{'' if report.flags == 1 else 's'}"
    if report.files:
        yield f"{count} imported, {refused} refused"
    else:
        yield f"{count} can be imported, {refused} refused; --out DIR writes definitions"


def _compared_words(compared: Iterable[FlagComparison]) -> Iterator[str]:
    for item in compared:
        where = f" in {item.environment}" if item.environment else ""
        calls = item.agree + item.differ
        if item.missing:
            yield f"{item.flag}{where}: is not imported, and has {item.missing} calls"
        elif not item.differ:
            yield f"{item.flag}{where}: all {calls} calls agree"
        else:
            why = "; its users are divided by a hash" if item.divides else ""
            yield f"{item.flag}{where}: {item.differ} of {calls} calls differ{why}; {item.first}"
