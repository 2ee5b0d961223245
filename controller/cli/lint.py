"""`flagstaff lint`: the parser that serves, run over files before they are committed."""

from __future__ import annotations

import asyncio
import posixpath
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from controller.api.meta import SUBJECT, VERIFIED_BY
from controller.authoring.flag_life import life_notes
from controller.authoring.policies import NO_POLICIES, Circumstances, Policies, standing_flags
from controller.cli.arguments import (
    add_policies_argument,
    add_reading_arguments,
    committed_reference,
    policy_files,
    substitutions,
    verify_keys,
)
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, announce, exit_on
from controller.cli.problems import as_json, as_sarif, failures, summary
from controller.flagsets.compose import look_alikes
from controller.flagsets.constant_parts import constant_parts
from controller.flagsets.inputs import steps as steps_of
from controller.flagsets.layers import (
    PathRefused,
    definition_places,
    fixed_prefix,
    read_files,
    read_own_policies,
    segments_beside,
    select,
    unread_problems,
)
from controller.flagsets.patches import Patch, apply_patches
from controller.flagsets.preparation import NO_STEPS, Preparation, Steps
from controller.flagsets.segments import is_segment_file
from controller.local.commits import read_commit
from controller.local.local_options import LocalOptions
from controller.local.worktree import read_working_tree
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.merge import Parsed, merge
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from evaluator.flags.layer import Layer
    from evaluator.flags.model import FlagSet

STDIN = "-"
_PARTIAL: Final = frozenset({"missing-flags", "missing-state", "missing-variants", "unknown-reference"})
"""Problems that a layer has without the others."""
Read: TypeAlias = "Callable[[str], tuple[list[tuple[str, bytes]], list[Problem]]]"
"""Takes a path; returns its files by name, and a problem for each unreadable one. Raises Setback."""


class LintInputs(NamedTuple):
    """What is linted, and by what."""

    read: Read
    policies: Policies = NO_POLICIES
    signer: str | None = None
    """Whose signature the commit has; None where none was verified."""


Linted: TypeAlias = "tuple[int, list[Problem]]"
"""(flags without an error, problems)."""


class LintedSet(NamedTuple):
    """One flag set, and what is wrong with it."""

    layers: Sequence[Layer]
    flag_set: FlagSet
    others: Sequence[FlagSet]
    """Those whose flags it may need."""
    problems: list[Problem]


def configure_lint(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "documents", nargs="*", metavar="PATH",
        help="a definition file, folder or glob, each file checked on its own; - reads standard input",
    )  # fmt: skip
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="layers",
        help="a layer of one flag set, base first, as `flagstaff up` takes them",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="PATH", dest="manifests",
        help="a manifest or a folder of manifests, or - for standard input: says what the API server and the "
        "controller would refuse of our kinds",
    )  # fmt: skip
    parser.add_argument(
        "--ref", metavar="REF",
        help="check a commit of the repository in this folder instead of the files as they are on disk: a "
        "branch, tag:NAME, commit:SHA, or HEAD",
    )  # fmt: skip
    parser.add_argument(
        "--source", metavar="SOURCE",
        help="check what a Git URL, oci://HOST/REPOSITORY:TAG or s3://BUCKET/PREFIX holds instead of files "
        "on disk",
    )  # fmt: skip
    add_policies_argument(parser)
    add_reading_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=["text", "json", "sarif"],
        default="text",
        help="how to print (default text)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print every problem; exit with 0, 1 for some that count, 2 for wrong usage or unreadable paths."""
    if [*map(bool, (arguments.documents, arguments.layers, arguments.manifests))].count(True) != 1:
        choices = "files to check each on its own, --path for each layer of one flag set, or -f for manifests"
        raise Exit(f"give {choices}", USAGE)
    if arguments.patches and not arguments.layers:
        raise Exit("--patch changes what layers come to: name them by --path", USAGE)
    if arguments.depends_on and not arguments.layers:
        raise Exit("--depends-on is about one flag set: name its layers by --path", USAGE)
    if arguments.policies is not None and arguments.manifests:
        raise Exit("--policies judge flags: give files or --path, not manifests", USAGE)
    committed = arguments.ref is not None or arguments.source is not None
    if committed and STDIN in arguments.documents:
        raise Exit("--ref and --source read a commit, so they cannot be combined with standard input", USAGE)
    if arguments.verify_keys and not committed:
        raise Exit("--verify-key is about what --ref and --source read; files on disk are not signed", USAGE)
    if arguments.manifests:
        problems, ending_line = _manifests(arguments.manifests)
    else:
        valid, problems = _flags(arguments)
        problems = _said_once(problems)
        ending_line = summary(valid, problems)
    if arguments.output == "json":
        print(as_json(problems), end="")
    elif arguments.output == "sarif":
        print(as_sarif(problems), end="")
    else:
        print(*problems, ending_line, sep="\n")
    return PROBLEM if failures(problems, lenient=arguments.lenient) else OK


def _manifests(paths: Sequence[str]) -> tuple[list[Problem], str]:
    """(problems, the line that sums up). Raises Exit."""
    # The models of all kinds take long to load, and definitions need none.
    from controller.cli.manifests import judge, read_manifests

    broken: list[Problem] = []
    verdict = judge(read_manifests(paths, broken))
    problems = sorted([*verdict.problems, *broken])
    nothing = not verdict.valid and not problems
    return problems, verdict.summary() if nothing else summary(verdict.valid, problems, "manifest")


def _flags(arguments: argparse.Namespace) -> Linted:
    with exit_on(USAGE, Setback):
        inputs = _inputs(arguments)
        steps = steps_of(substitutions(arguments), arguments.age_key or "")
        if arguments.layers:
            linted = lint_layers(inputs, arguments.layers, steps, arguments.patches, arguments.depends_on)
            valid, problems = len(linted.flag_set.flags), linted.problems
        else:
            valid, problems = lint_documents(inputs, arguments.documents, steps)
        return valid, [*problems, *inputs.policies.problems]


def lint_documents(inputs: LintInputs, paths: Sequence[str], steps: Steps = NO_STEPS) -> Linted:
    """Lint every document that `paths` name, each on its own. Raises Setback."""
    flags, holds_flags = 0, False
    problems: list[Problem] = []
    nothing: list[Problem] = []
    for path in paths:
        files, unreadable = ([read_stdin()], []) if path == STDIN else inputs.read(path)
        problems += unreadable
        lists = [(file, content) for file, content in files if is_segment_file(file)]
        for file, content in files:
            if is_segment_file(file):
                continue
            preparation = Preparation(steps)
            layer = read_files([(file, content), *lists], preparation.documents)
            parsed = merge([layer], document=True)
            flags += len(parsed.flag_set.flags)
            holds_flags = holds_flags or layer.has_flags
            here = list(preparation.reportable(_by_place(parsed, [layer], inputs)))
            if all(document.passed_over for document in layer.documents):
                # It is wrong only where no other document holds flags either.
                nothing += [problem for problem in here if problem.severity is Severity.ERROR]
                here = [problem for problem in here if problem.severity is not Severity.ERROR]
            problems += here
            if not _PARTIAL.isdisjoint(problem.code for problem in here):
                problems.append(_partial_note(file))
    return flags, problems if holds_flags else [*problems, *nothing]


def _said_once(problems: Sequence[Problem]) -> list[Problem]:
    """Leave out notes that an error repeats: what is passed over is wrong where nothing else holds flags."""
    errors = {(problem.file, problem.message) for problem in problems if problem.severity is Severity.ERROR}
    return [
        problem
        for problem in problems
        if problem.severity is not Severity.NOTE or (problem.file, problem.message) not in errors
    ]


def _partial_note(file: str) -> Problem:
    """Return a note on a document that lacks what other layers of its flag set may have."""
    folder = posixpath.dirname(file) or "."
    layers = (
        f"--path {folder} --path OVERLAY"
        if posixpath.basename(folder) == "base"
        else f"--path BASE --path {folder}"
    )
    message = (
        "the file was checked on its own; if it is a layer of a flag set, check all layers together, base "
        f"first: flagstaff lint {layers}"
    )
    return Problem(file, 0, 0, Severity.NOTE, "missing-base", message)


def lint_layers(
    inputs: LintInputs,
    paths: Sequence[str],
    steps: Steps = NO_STEPS,
    patches: Sequence[Patch] = (),
    depends_on: Sequence[str] = (),
) -> LintedSet:
    """The one flag set that the layers `paths` make; `depends_on` are sets whose flags it may need. Raises
    Setback.
    """
    others: list[FlagSet] = []
    for path in depends_on:
        layer = read_files(inputs.read(path)[0], Preparation(steps).documents)
        others.append(merge([layer], others=others).flag_set)
    layers, problems = [], []
    preparation = Preparation(steps)
    for path in paths:
        files, unreadable = inputs.read(path)
        problems += unreadable
        layers.append(read_files(files, preparation.documents))
    layers, moved = apply_patches(layers, patches)
    preparation.add_moves(moved)
    parsed = merge(layers, others=others)
    problems += preparation.reportable(_by_place(parsed, layers, inputs))
    return LintedSet(layers, parsed.flag_set, others, problems)


def _by_place(parsed: Parsed, layers: Sequence[Layer], inputs: LintInputs) -> list[Problem]:
    """Problems and notes."""
    problems = (
        *parsed.problems,
        *parsed.notes,
        *look_alikes(layers, parsed.flag_set.flags),
        *constant_parts(layers, parsed.flag_set),
        *life_notes(layers, parsed.flag_set, now()),
        *_unmet(inputs, parsed, layers),
    )
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))


def _unmet(inputs: LintInputs, parsed: Parsed, layers: Sequence[Layer]) -> Iterator[Problem]:
    """What the flags do not meet as they are: `plan` knows what changes."""
    if not inputs.policies.policies:
        return
    around = Circumstances(now(), signer=inputs.signer, places=definition_places(layers))
    for verdict in inputs.policies.verdicts(standing_flags(parsed.flag_set), around):
        yield verdict.problem


def _place(path: str) -> tuple[Path, str]:
    """The folder that has a path's files, and the path in it."""
    if not Path(path).is_absolute() and ".." not in Path(path).parts:
        return Path(), path
    fixed = Path(fixed_prefix(path))
    root = fixed if fixed.is_dir() else fixed.parent
    return root, Path(path).relative_to(root).as_posix()


def _policies_on_disk(paths: Sequence[str], folder: list[tuple[str, bytes]] | None) -> Policies:
    """The policies beside the files, and those at the top of the folder that has them."""
    patterns: dict[Path, list[str]] = {}
    for path in paths:
        root, pattern = _place(path)
        patterns.setdefault(root, []).append(pattern)
    found = NO_POLICIES
    for root, of_root in patterns.items():
        tree = read_working_tree(root, of_root)
        own = read_own_policies(tree.files, of_root, tree.skipped, folder)
        problems = [replace(problem, file=str(root / problem.file)) for problem in own.problems]
        found = Policies((*found.policies, *own.policies), (*found.problems, *problems))
    return found


def _on_disk(path: str) -> tuple[list[tuple[str, bytes]], list[Problem]]:
    """The files as they are on disk, under the names that the user typed."""
    root, pattern = _place(path)
    tree = read_working_tree(root, [pattern])
    if problems := unread_problems(tree.skipped, tree.files, [pattern]):
        return [], [replace(problem, file=str(root / problem.file)) for problem in problems]
    try:
        names = select(tree.files, pattern)
    except PathRefused as refusal:
        message = path + refusal.message.removeprefix(pattern)
        if Path(path).is_dir() and all(name.startswith(".") for name in tree.files):
            message = f"{path}: no definitions (*.json, *.yaml or *.yml): the folder is empty"
        raise PathRefused(refusal.reason, message) from None
    names += segments_beside(tree.files, pattern)
    return [(str(root / name), tree.files[name]) for name in names], []


def _inputs(arguments: argparse.Namespace) -> LintInputs:
    folder = policy_files(arguments)
    if arguments.ref is None and arguments.source is None:
        named = [path for path in arguments.layers or arguments.documents if path != STDIN]
        return LintInputs(_on_disk, _policies_on_disk(named, folder))
    paths = (*(arguments.layers or arguments.documents), *arguments.depends_on)
    reference = committed_reference(arguments.ref)
    options = LocalOptions(
        arguments.source or ".",
        reference,
        paths,
        insecure=arguments.insecure,
        endpoint=arguments.endpoint,
        region=arguments.region,
        verify_keys=verify_keys(arguments),
    )
    return asyncio.run(_committed(options, folder))


async def _committed(options: LocalOptions, folder: list[tuple[str, bytes]] | None) -> LintInputs:
    commit, tree = await read_commit(options)
    announce("lint", str(commit.revision), commit.metadata.get(SUBJECT, ""))
    policies = read_own_policies(tree, options.paths, commit.skipped, folder)
    return LintInputs(reader_of(tree, commit.skipped), policies, commit.metadata.get(VERIFIED_BY))


def reader_of(tree: Mapping[str, bytes], skipped: Iterable[str]) -> Read:
    """What reads the files of a tree; `skipped` as `Fetched` has it."""

    def read(path: str) -> tuple[list[tuple[str, bytes]], list[Problem]]:
        if problems := unread_problems(skipped, tree, [path]):
            return [], problems
        names = [*select(tree, path), *segments_beside(tree, path)]
        return [(name, tree[name]) for name in names], []

    return read


def read_stdin() -> tuple[str, bytes]:
    """Name and content of standard input; the name says whether it is JSON or YAML."""
    content = sys.stdin.buffer.read()
    suffix = "json" if content.lstrip().startswith(b"{") else "yaml"
    return f"stdin.{suffix}", content
