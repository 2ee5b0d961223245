"""What verbs share that change definition files: which files they read, how a change is judged, and how it is
printed, written and committed.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from controller.authoring.definition_edits import EditRefused
from controller.authoring.document_format import keep_layout
from controller.authoring.plans import Beside, plan_flags
from controller.authoring.shares import SAMPLES
from controller.cli.arguments import add_reading_arguments, local_options
from controller.cli.change_plan import ChangePlan, as_text
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on, printable
from controller.cli.problems import failures
from controller.flagsets.layers import PathRefused, select
from controller.local.worktree import WorkingTree, compose_tree, read_working_tree, working_tree_of
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.layer import Layer, read_layer
from evaluator.flags.model import Bucketing
from evaluator.host.durable import write_file

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from controller.flagsets.compose import Composition
    from controller.local.local_options import LocalOptions
    from evaluator.flags.model import FlagSet
    from evaluator.flags.problems import Document


_SHOWN: Final = 5
"""References to a flag that are printed of one folder."""


def add_change_arguments(parser: argparse.ArgumentParser, *, layer: str = "") -> None:
    """Add what says which files are changed, and what becomes of the change; `layer` is the help text of
    --layer, which a change of all layers does not have.
    """
    if layer:
        parser.add_argument("--layer", metavar="P", help=layer)
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument(
        "--commit", action="store_true", help="commit the changed files with Git, and nothing else"
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "patch"), default="text",
        help="print what the change does, as plan does (the default), or a patch for `git apply`, and write "
        "nothing",
    )  # fmt: skip
    parser.add_argument("--source", default=".", metavar="SOURCE", help="a folder (default: the current one)")
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a layer of the flag set, base first (default: the root folder)",
    )  # fmt: skip
    add_reading_arguments(parser)
    parser.set_defaults(bucketing=Bucketing.V2.value, ref=None, failure_policy="PerFlag")


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """The definitions of a folder, and what changes in them."""

    folder: Path
    local: LocalOptions
    tree: WorkingTree
    layers: Mapping[str, Layer]
    """By path, base first."""
    before: Composition
    changed: dict[str, bytes] = field(default_factory=dict)
    """The new texts of files, by name."""

    @property
    def served(self) -> FlagSet:
        """The flags before the change."""
        return self.before.flag_set

    def compose(self) -> Composition:
        """Build the flag set with the changes so far."""
        files = {**self.tree.files, **self.changed}
        return compose_tree(replace(self.tree, files=files), self.local)

    def edit(self, document: Document, change: Callable[[bytes, str], bytes]) -> None:
        """Have `change` make another text of a document, of its text and file; one in canonical layout stays
        in it. Raises Exit.
        """
        file = document.file
        with exit_on(USAGE, EditRefused):
            if document.embedded:
                raise EditRefused(f"{file} is a manifest; edit it by hand")
            before = self.changed.get(file, self.tree.files[file])
            self.changed[file] = keep_layout(before, change(before, file), file)


def read_definition_change(options: argparse.Namespace) -> DefinitionChange:
    """Read the files that the options name. Raises Exit."""
    if options.commit and options.output == "patch":
        raise Exit("-o patch writes nothing that --commit could commit; leave one out", USAGE)
    local = local_options(options)
    with exit_on(UNREACHABLE, Setback):
        folder = working_tree_of(options.source)
        if folder is None:
            raise Exit(f"{options.source} is no folder with files to change", USAGE)
        tree = read_working_tree(folder, local.read_paths)
        before = compose_tree(tree, replace(local, lenient=True))
    with exit_on(USAGE, PathRefused):
        layers = {
            path: read_layer([(name, tree.files[name]) for name in select(tree.files, path)])
            for path in local.paths
        }
    return DefinitionChange(folder, local, tree, layers, before)


def choose(option: str, chosen: str | None, choices: Sequence[str], several: str) -> str:
    """Return which of the choices the option or, on a terminal, the user names; the only one where there is
    no other. `several` says why it is asked. Raises Exit.
    """
    if chosen is None and len(choices) == 1:
        return choices[0]
    if chosen is None and sys.stdin.isatty():
        print(
            several,
            *(f"{number}  {path}" for number, path in enumerate(choices, 1)),
            sep="\n",
            file=sys.stderr,
        )
        print(f"which {option.removeprefix('--')}? ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
        numbers = dict(enumerate(choices, 1))
        chosen = numbers.get(int(answer), answer) if answer.isdecimal() else answer
    if chosen is None or chosen not in choices:
        said = several if chosen is None else f"{chosen!r} is none of them: {several}"
        raise Exit(f"{said}; choose {' or '.join(f'{option} {path}' for path in choices)}", USAGE)
    return chosen


def code_references(options: argparse.Namespace) -> Iterator[str]:
    """Yield lines about the places in the folders of --code that refer to the flag, and say where it is not
    known. Raises Exit.
    """
    # Searching takes packages that definitions do not need.
    from controller.local.code_search import read_options, search

    if not options.code:
        message = "whether code refers to the flag is unknown; --code DIR tells"
        print(f"flagstaff {options.verb}: {message}", file=sys.stderr)
    for folder in options.code:
        if not folder.is_dir():
            raise Exit(f"--code: {folder} is no folder", UNREACHABLE)
        with exit_on(UNREACHABLE, Setback):
            places = search(folder, [options.flag], read_options(folder)).references.get(options.flag, [])
        yield from (f"{folder}/{place.file}:{place.line}: {place.text}" for place in places[:_SHOWN])
        if len(places) > _SHOWN:
            yield f"{folder}: {len(places) - _SHOWN} more references"


def finish(change: DefinitionChange, options: argparse.Namespace, before: FlagSet | None = None) -> int:
    """Judge, print, write and commit the change; `before` are the flags that its effect is compared with.
    Raises Exit.
    """
    after = change.compose()
    known = {problem.message for problem in failures(change.before.problems, lenient=change.local.lenient)}
    problems = failures(after.problems, lenient=change.local.lenient)
    if new := [problem for problem in problems if problem.message not in known]:
        print(*new, sep="\n", file=sys.stderr)
        raise Exit("nothing was written, since the change would be a problem", PROBLEM)
    texts = {
        file: (change.tree.files.get(file), text)
        for file, text in change.changed.items()
        if text != change.tree.files.get(file)
    }
    if options.output == "patch":
        print("".join(patch(file, *both) for file, both in texts.items()), end="")
        return OK
    flags = plan_flags(before or change.served, after.flag_set, int(now().timestamp()), Beside())
    plan = ChangePlan(", ".join(change.changed) or change.local.paths[0], "changed", SAMPLES, flags)
    print(*as_text(plan), sep="\n")
    if not options.dry_run and texts:
        write_texts(change.folder, texts)
        if options.commit:
            _commit(
                change.folder, texts, next((f"{flag.key}: {flag.words}" for flag in flags), "flags: edit")
            )
    return OK


def patch(file: str, before: bytes | None, after: bytes) -> str:
    """The change of a file as a patch for `git apply`; `before` is None for a new one."""
    old, new = ((text or b"").decode().splitlines(keepends=True) for text in (before, after))
    lines = difflib.unified_diff(old, new, "/dev/null" if before is None else f"a/{file}", f"b/{file}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def write_texts(folder: Path, texts: Mapping[str, tuple[bytes | None, bytes]]) -> None:
    """Write files, given by name with their texts before, None for a new one, and after. Raises Exit, before
    anything is written, where one has changed meanwhile.
    """
    with exit_on(UNREACHABLE, OSError):
        for file, (before, _) in texts.items():
            path = folder / file
            found = path.read_bytes() if path.is_file() else None
            if path.is_symlink() or found != before:
                raise Exit(f"{path} changed meanwhile; nothing was written, so run it again", PROBLEM)
        for file, (before, after) in texts.items():
            path = folder / file
            mode = None if before is None else path.stat().st_mode
            write_file(path, after)
            path.chmod(0o644 if mode is None else mode)


def _commit(folder: Path, texts: Mapping[str, tuple[bytes | None, bytes]], subject: str) -> None:
    for words in (
        ["add", "--intent-to-add", "--", *texts],
        ["commit", "-q", "-m", subject, "--only", "--", *texts],
    ):
        git = ["git", "-C", str(folder), *words]
        with exit_on(UNREACHABLE, OSError):
            done = subprocess.run(git, capture_output=True, text=True, check=False)  # noqa: S603 - no shell reads it
        if done.returncode:
            said = printable(done.stderr or done.stdout).strip()
            raise Exit(f"{', '.join(texts)}: written, but Git did not commit it: {said}", PROBLEM)
