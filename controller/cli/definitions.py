"""The definitions that a verb reads: those on disk, or of a commit, artifact or bucket."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.cli.arguments import local_options
from controller.cli.printing import UNREACHABLE, announce, exit_on
from controller.cli.problems import failures
from controller.local.local_stages import build_once
from controller.local.worktree import compose_working_tree, working_tree_of
from controller.runtime.setbacks import Setback

if TYPE_CHECKING:
    import argparse

    from controller.flagsets.compose import Composition
    from controller.local.local_options import LocalOptions


SOURCE_HELP: Final = {
    "source": "a folder, whose files are read as they are on disk, a Git URL, oci://HOST/REPOSITORY:TAG, or "
    "a bucket: s3://BUCKET/PREFIX",
    "reference": "read a commit instead: a branch, tag:NAME, semver:RANGE, name:refs/…, commit:SHA, or HEAD "
    "(default: the files on disk; of a URL, the repository's own branch)",
}
"""Help texts of `add_build_arguments`."""


def read_definitions(arguments: argparse.Namespace) -> tuple[LocalOptions, Composition]:
    """The options and the flag set. Prints the problems of definitions; raises Exit without a source."""
    file = Path(arguments.source)
    if file.is_file() and not arguments.paths:
        # lint takes a file, too.
        arguments.source, arguments.paths = str(file.parent), [file.name]
    options = local_options(arguments)
    with exit_on(UNREACHABLE, Setback):
        composition = _compose(options, arguments.ref, arguments.verb)
    for problem in failures(composition.problems, lenient=options.lenient):
        print(problem, file=sys.stderr)
    return options, composition


def _compose(options: LocalOptions, reference: str | None, verb: str) -> Composition:
    """The working tree's flag set where no reference is asked for, else a commit's. Raises Setback."""
    folder = working_tree_of(options.source)
    if folder is not None and reference is None:
        return compose_working_tree(folder, options)
    built = asyncio.run(build_once(options))
    announce(verb, built.revision, built.subject)
    return built.composition
