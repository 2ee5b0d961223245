"""`flagstaff set`: changes one flag in its file, and says what that changes."""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.authoring.definition_edits import EditRefused, division, with_percent, with_value
from controller.cli.arguments import add_reading_arguments, local_options
from controller.cli.flag_changes import as_text, compare
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, did_you_mean, exit_on, printable
from controller.cli.problems import failures
from controller.flagsets.layers import PathRefused, select
from controller.local.worktree import WorkingTree, compose_tree, read_working_tree, working_tree_of
from controller.runtime.setbacks import Setback
from evaluator.flags.document import read_document
from evaluator.flags.layer import read_layer
from evaluator.flags.model import ABSENT, Bucketing
from evaluator.host.durable import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controller.cli.flag_changes import FlagChanges
    from controller.local.local_options import LocalOptions
    from evaluator.flags.model import Flag, Json
    from evaluator.flags.problems import Piece


@dataclass(frozen=True, slots=True)
class _Edit:
    """The text of a file before and after."""

    file: str
    before: bytes
    after: bytes


def configure_set(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("flag", metavar="FLAG", help="the flag's key")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--default", metavar="VARIANT", help="serve VARIANT where no rule chooses")
    what.add_argument(
        "--percent", type=_percent, metavar="VARIANT=PERCENT",
        help="serve VARIANT to this share of the users that the rule divides; as few users as possible move",
    )  # fmt: skip
    what.add_argument("--rule", metavar="RULE", help="the rule (`targeting`), as JSON or YAML")
    what.add_argument(
        "--enable", dest="state", action="store_const", const="ENABLED", help="have the flag evaluated"
    )
    what.add_argument(
        "--disable", dest="state", action="store_const", const="DISABLED",
        help="have applications use their own defaults",
    )  # fmt: skip
    parser.add_argument(
        "--layer",
        metavar="P",
        help="the layer to change, one of --path (default: the only one with the flag)",
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--commit", action="store_true", help="commit the file with Git, and nothing else")
    parser.add_argument(
        "-o", "--output", choices=("text", "patch"), default="text",
        help="print the change in words (the default) or as a patch for `git apply`",
    )  # fmt: skip
    parser.add_argument("--source", default=".", metavar="SOURCE", help="a folder (default: the current one)")
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a layer of the flag set, base first (default: the root folder)",
    )  # fmt: skip
    add_reading_arguments(parser)
    parser.set_defaults(run=run, bucketing=Bucketing.V2.value, ref=None, failure_policy="PerFlag")


def run(options: argparse.Namespace) -> int:
    """0: changed, or nothing to change; 1: the change would be a problem; 2: wrong usage, or a file that
    cannot be changed in place; 3: no source.
    """
    local = local_options(options)
    with exit_on(UNREACHABLE, Setback):
        folder = working_tree_of(options.source)
        if folder is None:
            raise Exit(f"{options.source} is no folder with files to change", USAGE)
        tree = read_working_tree(folder, local.paths)
        before = compose_tree(tree, replace(local, lenient=True))
    piece = _choose_piece(_pieces(tree, local, options.flag), options, before.flag_set.flags)
    with exit_on(USAGE, EditRefused):
        edit = _make_edit(piece, tree, options, before.flag_set.flags.get(options.flag))
    changed_tree = replace(tree, files={**tree.files, edit.file: edit.after})
    after = compose_tree(changed_tree, local)
    known = {problem.message for problem in failures(before.problems, lenient=local.lenient)}
    new = [one for one in failures(after.problems, lenient=local.lenient) if one.message not in known]
    if new:
        for problem in new:
            print(problem, file=sys.stderr)
        raise Exit("nothing was written, since the change would be a problem", PROBLEM)
    changes = compare((edit.file, "changed"), before.flag_set, after)
    print(_patch(edit) if options.output == "patch" else _words(edit, changes), end="")
    if not options.dry_run and edit.after != edit.before:
        _write(folder, edit)
        if options.commit:
            _commit(folder, edit.file, next(iter(changes.lines), f"~ {options.flag}")[2:])
    return OK


def _percent(text: str) -> tuple[str, float]:
    variant, equals, share = text.rpartition("=")
    try:
        percent = float(share.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if (
        not equals
        or not variant
        or not 0 <= percent <= 100
        or round(percent * 100) != round(percent * 100, 9)
    ):
        message = f"{text!r}: write VARIANT=PERCENT, from 0 to 100 with two decimals at most, such as on=25"
        raise argparse.ArgumentTypeError(message)
    return variant, percent


def _pieces(tree: WorkingTree, local: LocalOptions, key: str) -> dict[str, Piece]:
    """What each layer says of the flag."""
    pieces = {}
    for path in local.paths:
        with exit_on(USAGE, PathRefused):
            layer = read_layer([(name, tree.files[name]) for name in select(tree.files, path)])
        piece = layer.flags.get(key)
        if piece is not None and isinstance(piece.value, dict):
            pieces[path] = piece
    return pieces


def _choose_piece(
    pieces: Mapping[str, Piece], options: argparse.Namespace, flags: Mapping[str, Flag]
) -> Piece:
    if not pieces:
        hint = did_you_mean(options.flag, flags)
        raise Exit(f"no layer defines the flag {options.flag!r}{hint}", USAGE)
    layer = options.layer
    if layer is None and len(pieces) == 1:
        (layer,) = pieces
    if layer is None and sys.stdin.isatty():
        for number, path in enumerate(pieces, 1):
            print(f"{number}  {path}", file=sys.stderr)
        print("which layer? ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        names = dict(enumerate(pieces, 1))
        layer = names.get(int(answer), answer) if answer.isdecimal() else answer
    if layer not in pieces:
        said = "several layers define" if layer is None else f"{layer!r} is no layer that defines"
        choices = " or ".join(f"--layer {path}" for path in pieces)
        raise Exit(f"{said} the flag {options.flag!r}; choose {choices}", USAGE)
    return pieces[layer]


def _make_edit(piece: Piece, tree: WorkingTree, options: argparse.Namespace, served: Flag | None) -> _Edit:
    """Raises EditRefused, Exit."""
    file = piece.document.file
    if piece.document.embedded:
        raise EditRefused(f"{file} is a manifest; edit it by hand")
    text = tree.files[file]
    for path, value in _values(piece, options, served):
        text = with_value(text, file, (*piece.path, *path), value)
    return _Edit(file, tree.files[file], text)


def _values(
    piece: Piece, options: argparse.Namespace, served: Flag | None
) -> Sequence[tuple[tuple[str | int, ...], Json]]:
    """Places in the flag and what is to be there. Raises EditRefused, Exit."""
    if options.state is not None:
        return [(("state",), options.state)]
    if options.default is not None:
        return [(("defaultVariant",), options.default)]
    if options.rule is not None:
        document = read_document(options.rule.encode(), file="--rule.yaml")
        if not isinstance(document.value, dict) or document.findings:
            raise Exit(f"--rule is no object of JSON or YAML: {options.rule}", USAGE)
        return [(("targeting",), document.value)]
    if served is None:
        raise EditRefused("the flag has an error; correct it first (flagstaff lint)")
    return _divide(piece, served, *options.percent)


def _divide(
    piece: Piece, flag: Flag, variant: str, percent: float
) -> list[tuple[tuple[str | int, ...], Json]]:
    if variant not in flag.variants:
        raise Exit(f"the flag has no variant {variant!r}{did_you_mean(variant, flag.variants)}", USAGE)
    own = piece.value.get("targeting")
    rule: Any = own if own is not None else None if flag.targeting is ABSENT else deepcopy(flag.targeting)
    found = division(rule)
    if found is None:
        if rule:
            raise EditRefused("its rule divides no users, so that it has no percentage; write a --rule")
        others = [name for name in flag.variants if name != variant]
        if flag.default_variant not in (variant, None):
            others = [str(flag.default_variant)]
        if len(others) != 1:
            raise EditRefused("it has several other variants, and none is the default; write a --rule")
        made = {"fractional": with_percent([[variant, 0], [others[0], 100]], variant, percent)}
        return [(("targeting",), made)]
    place, arguments = found
    start = 0 if isinstance(arguments[0], list) else 1
    old = arguments[start:]
    new = with_percent(old, variant, percent)
    if own is None:
        node = rule
        for step in place[:-1]:
            node = node[step]
        node[place[-1]] = [*arguments[:start], *new]
        return [(("targeting",), rule)]
    if [bucket[:1] for bucket in old] != [bucket[:1] for bucket in new] or any(
        len(bucket) == 1 for bucket in old
    ):
        return [(("targeting", *place), [*arguments[:start], *new])]
    return [
        (("targeting", *place, start + at, 1), bucket[1])
        for at, bucket in enumerate(new)
        if bucket[1] != old[at][1]
    ]


def _words(edit: _Edit, changes: FlagChanges) -> str:
    return "".join(f"{printable(line)}\n" for _, line in as_text(changes))


def _patch(edit: _Edit) -> str:
    before, after = (text.decode().splitlines(keepends=True) for text in (edit.before, edit.after))
    lines = difflib.unified_diff(before, after, f"a/{edit.file}", f"b/{edit.file}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _write(folder: Path, edit: _Edit) -> None:
    path = folder / edit.file
    with exit_on(UNREACHABLE, OSError):
        if path.is_symlink() or path.read_bytes() != edit.before:
            raise Exit(f"{path} changed meanwhile; nothing was written, so run it again", PROBLEM)
        mode = path.stat().st_mode
        write_file(path, edit.after)
        path.chmod(mode)


def _commit(folder: Path, file: str, subject: str) -> None:
    words = ["git", "-C", str(folder), "commit", "-q", "-m", subject, "--only", "--", file]
    with exit_on(UNREACHABLE, OSError):
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - no shell reads it
    if done.returncode:
        said = printable(done.stderr or done.stdout).strip()
        raise Exit(f"{file} is written, but Git did not commit it: {said}", PROBLEM)
