"""`flagstaff archive`: takes a flag out of its files, and keeps its key from being used again."""

from __future__ import annotations

import posixpath
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.authoring.definition_edits import with_value, without_value
from controller.authoring.flag_life import life_of
from controller.authoring.key_uses import key_uses
from controller.cli.definition_changes import (
    add_change_arguments,
    code_references,
    finish,
    read_definition_change,
)
from controller.cli.flag_requests import add_request_arguments, requests_by_flag
from controller.cli.printing import PROBLEM, USAGE, Exit, did_you_mean
from controller.flagsets.layers import read_tests, select
from controller.runtime.clock import now
from evaluator.flags.layer import ARCHIVED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from controller.cli.definition_changes import DefinitionChange
    from evaluator.flags.model import Json
    from evaluator.flags.problems import Document

_FILE: Final = "archived.yaml"
_NEW: Final = b"""\
# Flags that are gone. No flag may have one of their keys: old code may still ask for it.
flags: {}
"""


def configure_archive(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", help="the flag's key")
    parser.add_argument(
        "--code", metavar="DIR", type=Path, action="append", default=[],
        help="a folder of code, which may not refer to the flag; may be repeated",
    )  # fmt: skip
    add_request_arguments(parser, "nobody may have asked for the flag in --requests-in days")
    parser.add_argument("--force", action="store_true", help="archive it although it is in use")
    add_change_arguments(parser, layer="the layer that remembers the key, one of --path (default: the first)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: archived; 1: it is in use, or without it something is a problem; 2: wrong usage; 3: no source,
    folder of code or Prometheus.
    """
    key = options.flag
    change = read_definition_change(options)
    pieces = [layer.flags[key] for layer in change.layers.values() if key in layer.flags]
    if not pieces:
        raise Exit(f"no layer defines the flag {key!r}{did_you_mean(key, change.served.flags)}", USAGE)
    if uses := [*_uses(change, options)]:
        print(*uses, sep="\n", file=sys.stderr)
        if not options.force:
            raise Exit(
                "nothing was written, since the flag is in use; end that first, or add --force", PROBLEM
            )
    entry = _entry(change, key)
    for piece in pieces:
        change.edit(piece.document, partial(without_value, path=piece.path))
    _remember(change, options.layer or change.local.paths[0], key, entry)
    return finish(change, options)


def _uses(change: DefinitionChange, options: argparse.Namespace) -> Iterator[str]:
    """Yield what uses the flag, and print what is not known. Raises Exit."""
    key = options.flag
    for use in key_uses(change.layers.values(), key):
        if use.name != key:
            yield f"{use.place}: {use.name!r} {'needs it' if use.needs else 'names it'}"
    tests = read_tests(change.tree.files, change.local.paths, change.tree.skipped).cases
    places = dict.fromkeys(
        (case.document.file, case.document.place(case.path)[0]) for case in tests if case.flag == key
    )
    yield from (f"{file}:{line}: a test is about it" for file, line in places)
    yield from code_references(options)
    if options.prometheus is None:
        _remark("whether somebody asks for the flag is unknown; --prometheus URL tells")
        return
    days = options.requests_in.days
    for who, count in sorted(requests_by_flag(options.prometheus, days).get(key, {}).items()):
        if count:
            yield f"requested {count:,.0f} times in {days} days by {who or 'an evaluator'}"


def _remark(text: str) -> None:
    print(f"flagstaff archive: {text}", file=sys.stderr)


def _entry(change: DefinitionChange, key: str) -> dict[str, Json]:
    """Return what is remembered of the flag."""
    entry: dict[str, Json] = {"date": now().date().isoformat()}
    if (flag := change.served.flags.get(key)) is not None:
        if owner := life_of(flag.metadata_under(change.served.metadata)).owner:
            entry["owner"] = owner
        entry["default"] = flag.default_variant
    return entry


def _remember(change: DefinitionChange, path: str, key: str, entry: dict[str, Json]) -> None:
    """Write the key where others are remembered, else into a file of the layer. Raises Exit."""
    if path not in change.layers:
        raise Exit(f"--layer: {path!r} is not one of --path", USAGE)
    documents = [document for layer in change.layers.values() for document in layer.documents]
    for document in documents:
        if _archive_of(document):
            change.edit(document, partial(with_value, path=(ARCHIVED, key), value=entry))
            return
    files = select(change.tree.files, path)
    file = posixpath.join(posixpath.dirname(files[0]), _FILE)
    if file in change.tree.files or file not in select([*change.tree.files, file], path):
        # The layer is a single file.
        document = next(document for document in change.layers[path].documents if document.file == files[0])
        change.edit(document, partial(with_value, path=(ARCHIVED,), value={key: entry}, spread=True))
        return
    change.changed[file] = with_value(_NEW, file, (ARCHIVED,), {key: entry}, spread=True)


def _archive_of(document: Document) -> bool:
    value = document.value
    return isinstance(value, dict) and ARCHIVED in value and not document.embedded
