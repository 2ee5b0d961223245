"""`flagstaff eval`: one answer from a repository, without serving it, and why. `flagstaff manifest`: its
flags for OpenFeature's CLI, which generates code of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.arguments import add_build_arguments, local_options
from controller.cli.context import add_context_arguments, read_context
from controller.cli.printing import (
    OK,
    PROBLEM,
    UNREACHABLE,
    add_steps_argument,
    announce,
    did_you_mean,
    exit_on,
    format_answer,
)
from controller.cli.problems import failures
from controller.local.local_stages import build_once
from controller.local.worktree import compose_working_tree, working_tree_of
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.openfeature_manifest import LeftOut, ManifestFlag, as_file, manifest_flag
from evaluator.resolving.explain import answer, explain
from evaluator.resolving.resolution import ErrorCode
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    import argparse

    from controller.flagsets.compose import Composition
    from controller.local.local_options import LocalOptions


def _add_source(parser: argparse.ArgumentParser) -> None:
    add_build_arguments(
        parser,
        source="a folder, whose files are read as they are on disk, a Git URL, oci://HOST/REPOSITORY:TAG, or "
        "a bucket: s3://BUCKET/PREFIX",
        reference="read a commit instead: a branch, tag:NAME, semver:RANGE, name:refs/…, commit:SHA, or HEAD "
        "(default: the files on disk; of a URL, the repository's own branch)",
    )


def configure_eval(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    _add_source(parser)
    parser.add_argument("key", metavar="KEY", help="the flag's key")
    add_context_arguments(parser)
    parser.add_argument("--explain", action="store_true", help="also print how the answer came about")
    add_steps_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one answer as JSON; exit with 0, 1 if it is an error, 2 for wrong usage, 3 without a source."""
    context = read_context(arguments)
    options, composition = _read(arguments)
    flags = compile_flag_set(composition.flag_set, bucketing=options.bucketing)
    moment = int(now().timestamp())
    if arguments.explain:
        explanation = explain(flags, arguments.key, None, context, moment)
        resolution = explanation.resolution
        steps = [str(step) for step in explanation.steps]
        print(format_answer(answer(arguments.key, resolution), steps, as_json=arguments.output == "json"))
    else:
        resolution = resolve(flags, arguments.key, None, context, moment)
        print(format_answer(answer(arguments.key, resolution)))
    if resolution.error_code == ErrorCode.FLAG_NOT_FOUND:
        if arguments.key in composition.missing:
            words = f"the flag {arguments.key!r} is not served; correct what is said of it above"
        else:
            hint = did_you_mean(arguments.key, composition.flag_set.flags)
            words = f"there is no flag {arguments.key!r}{hint}"
        print(f"flagstaff eval: {words}", file=sys.stderr)
    return PROBLEM if resolution.error_code else OK


def configure_manifest(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    _add_source(parser)
    parser.set_defaults(run=run_manifest)


def run_manifest(arguments: argparse.Namespace) -> int:
    """Print the manifest as JSON; exit with 0, 1 where a definition is bad, 3 without a source."""
    options, composition = _read(arguments)
    entries = [manifest_flag(flag) for flag in composition.flag_set.flags.values()]
    manifest = as_file(entry for entry in entries if isinstance(entry, ManifestFlag))
    print(json.dumps(manifest, ensure_ascii=False, indent=2))
    for entry in entries:
        if isinstance(entry, LeftOut):
            print(f"flagstaff manifest: left out {entry.key}: {entry.reason}", file=sys.stderr)
    return PROBLEM if failures(composition.problems, lenient=options.lenient) else OK


def _read(arguments: argparse.Namespace) -> tuple[LocalOptions, Composition]:
    """The options and the flag set of a verb. Prints the problems of definitions; raises Exit without a
    source.
    """
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
