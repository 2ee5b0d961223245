"""`flagstaff fmt`: gives files of definitions, tests and policies their canonical layout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.authoring.document_format import FormatRefused, LeftAlone, format_document
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on, printable
from controller.flagsets.layers import is_beside_definitions, is_definition
from evaluator.flags.document import SEVERAL, decode, read_document
from evaluator.flags.layer import ARCHIVED, EVALUATORS, FLAGS
from evaluator.flags.model import ABSENT
from evaluator.flags.problems import UnreadableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_STDIN: Final = "-"
_SECTIONS: Final = frozenset({FLAGS, EVALUATORS, ARCHIVED})


def configure_fmt(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", default=["."],
        help="a file, a folder with all below it, or - for standard input (default: the current folder)",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and end with 1 where a file would change"
    )
    parser.add_argument(
        "--diff", action="store_true", help="write nothing, and print a patch for `git apply`"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: all files have their layout now; 1: with --check, one has not, or one changed meanwhile; 2: wrong
    usage, or a file has an error and stays as it is; 3: no such file.
    """
    piped = _STDIN in options.paths
    if piped and len(options.paths) > 1:
        raise Exit("- is standard input, and stands alone", USAGE)
    refused, changed = False, {}
    for name, source in _sources(options.paths):
        try:
            made = format_document(decode(source), name).encode()
        except LeftAlone as reason:
            print(f"flagstaff fmt: {printable(name)} is left alone: {reason}", file=sys.stderr)
            made = source
        except (FormatRefused, UnreadableError) as problem:
            said = str(problem) if isinstance(problem, FormatRefused) else f"{name}: error: {problem}"
            print(printable(said), file=sys.stderr)
            refused = True
            continue
        if made != source:
            changed[name] = source, made
        if piped and not (options.check or options.diff):
            sys.stdout.write(made.decode())
    if changed and not (piped and not options.diff):
        _report(changed, options)
    return USAGE if refused else PROBLEM if options.check and changed else OK


def _report(changed: dict[str, tuple[bytes, bytes]], options: argparse.Namespace) -> None:
    """Print what changes, or write it. Raises Exit."""
    # Most runs change nothing, and other verbs that write need more than this one.
    from controller.cli.definition_changes import patch, write_texts

    if options.diff:
        print(*(patch(name, *texts) for name, texts in changed.items()), sep="", end="")
        return
    if not options.check:
        write_texts(Path(), changed)
    for name in changed:
        print(f"{printable(name)}: {'would be ' if options.check else ''}formatted")


def _sources(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files that paths mean. Raises Exit."""
    for given in dict.fromkeys(paths):
        path = Path(given)
        if given == _STDIN:
            from controller.cli.lint import read_stdin

            yield read_stdin()
        elif path.is_dir():
            with exit_on(UNREACHABLE, OSError):
                found = [(file.as_posix(), file.read_bytes()) for file in sorted(_below(path))]
            yield from ((name, source) for name, source in found if _is_ours(name, source))
        else:
            if not is_definition(given) and not is_beside_definitions(given):
                raise Exit(f"{given} is no *.json, *.yaml or *.yml", USAGE)
            with exit_on(UNREACHABLE, OSError):
                yield path.as_posix(), path.read_bytes()


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that may be definitions, tests or policies, apart from hidden ones."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            yield from _below(path)
        elif is_definition(path.name) or is_beside_definitions(path.name):
            yield path


def _is_ours(name: str, source: bytes) -> bool:
    """Whether a file that nobody named has definitions, tests or a policy, or may have, as it is broken."""
    if is_beside_definitions(name):
        return True
    if not any(section.encode() in source for section in _SECTIONS):
        return False
    read = read_document(source, file=name)
    if read.value is ABSENT:
        # Several documents are manifests.
        return all(finding.message != SEVERAL for finding in read.findings)
    return isinstance(read.value, dict) and not _SECTIONS.isdisjoint(read.value)
