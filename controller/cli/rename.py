"""`flagstaff rename`: another key for a flag, in its files, in rules that need it and in its tests."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from controller.authoring.definition_edits import with_item, with_name, with_value
from controller.authoring.key_uses import key_uses
from controller.authoring.renames import keyed_places, seed_of, with_key
from controller.cli.definition_changes import (
    add_change_arguments,
    code_references,
    finish,
    read_definition_change,
)
from controller.cli.printing import USAGE, Exit, did_you_mean
from controller.flagsets.layers import read_tests
from evaluator.flags.model import ABSENT, BUCKETING_KEY, Bucketing
from evaluator.flags.references import Expander

if TYPE_CHECKING:
    import argparse

    from controller.cli.definition_changes import DefinitionChange
    from evaluator.flags.model import FlagSet
    from evaluator.flags.problems import Piece


def configure_rename(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", help="the flag's key")
    parser.add_argument("key", metavar="NEW", help="its new key")
    parser.add_argument(
        "--keep-buckets", action="store_true",
        help="hash the old key in the flag's own rule, so that users stay in their buckets",
    )  # fmt: skip
    parser.add_argument(
        "--code", metavar="DIR", type=Path, action="append", default=[],
        help="a folder of code, whose references to the flag are printed; may be repeated",
    )  # fmt: skip
    add_change_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: renamed; 1: the change would be a problem; 2: wrong usage; 3: no source or folder of code."""
    old, new = options.flag, options.key
    change = read_definition_change(options)
    pieces = [layer.flags[old] for layer in change.layers.values() if old in layer.flags]
    if not pieces:
        raise Exit(f"no layer defines the flag {old!r}{did_you_mean(old, change.served.flags)}", USAGE)
    if any(new in layer.flags for layer in change.layers.values()):
        raise Exit(f"there is a flag {new!r} already", USAGE)
    if options.keep_buckets and change.served.metadata.get(BUCKETING_KEY) == Bucketing.V3:
        raise Exit("--keep-buckets: with bucketing v3 no rule hashes another flag's key", USAGE)
    # Places are as in the files that were read, and have the flag's name, so that it changes after them.
    for use in key_uses(change.layers.values(), old):
        change.edit(use.piece.document, partial(with_value, path=use.path, value=new))
    for piece in pieces:
        change.edit(piece.document, partial(with_name, path=piece.path, name=new))
    _rename_in_tests(change, old, new)
    before = _as_if_renamed(change, old, new)
    if options.keep_buckets:
        for piece in pieces:
            _keep_buckets(change, piece, old, new)
    print(f"flagstaff rename: {old} becomes {new} in {', '.join(change.changed)}", file=sys.stderr)
    for line in code_references(options):
        print(f"flagstaff rename: change the code, too: {line}", file=sys.stderr)
    return finish(change, options, before)


def _keep_buckets(change: DefinitionChange, piece: Piece, old: str, new: str) -> None:
    rule = piece.value.get("targeting") if isinstance(piece.value, dict) else None
    for place, hashes in keyed_places(rule, old):
        path = (*piece.path[:-1], new, "targeting", *place)
        if hashes:
            change.edit(piece.document, partial(with_item, path=(*path, 0), value=seed_of(old)))
        else:
            change.edit(piece.document, partial(with_value, path=path, value=old))


def _rename_in_tests(change: DefinitionChange, old: str, new: str) -> None:
    tests = read_tests(change.tree.files, change.local.paths, change.tree.skipped).cases
    # A matrix makes several cases of one test.
    places = {(case.document.file, case.path): case for case in tests if case.flag == old}
    for case in places.values():
        change.edit(case.document, partial(with_value, path=(*case.path, "flag"), value=new))


def _as_if_renamed(change: DefinitionChange, old: str, new: str) -> FlagSet:
    """The flags before the change, where the flag has its new key and answers as under the old one: what
    differs from the flags after the change is what users see.
    """
    renamed = change.compose().flag_set
    served = {key: flag for key, flag in change.served.flags.items() if key != old}
    if (flag := renamed.flags.get(new)) is not None:
        rule = flag.targeting
        if rule is not ABSENT and rule is not None:
            rule = with_key(Expander(renamed.evaluators).expand(rule), old, new)
        served[new] = replace(flag, targeting=rule)
    return replace(change.served, flags=served)
