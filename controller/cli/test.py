"""`flagstaff test`: runs the tests of flags that stand beside the definitions."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.authoring.flag_test_reports import as_annotations, as_junit, test_run_record
from controller.authoring.flag_test_runs import TestReport, run_flag_tests
from controller.cli.arguments import add_build_arguments, local_options
from controller.cli.output import add_watch_argument
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, announce, exit_on, printable
from controller.cli.problems import as_sarif, failures, format_count
from controller.flagsets.layers import read_tests
from controller.local.commits import WORKING_TREE, read_tree
from controller.local.worktree import compose_tree, layers_of, working_tree_of
from controller.runtime.setbacks import Setback
from evaluator.flags.problems import Problem, Severity

if TYPE_CHECKING:
    from controller.local.local_options import LocalOptions


_FORMS: Final = ("text", "json", "junit", "sarif", "github")
_SHOWN: Final = 100
"""Flags whose gaps `--coverage` lists as text; JSON has all."""


class _Tested(NamedTuple):
    """What a run found."""

    problems: list[Problem]
    """What is wrong with definitions and files of tests."""
    report: TestReport


def configure_test(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "layers", nargs="*", metavar="PATH",
        help="a layer of the flag set, base first, as with --path: a file, folder or glob of definitions",
    )  # fmt: skip
    add_build_arguments(
        parser,
        name="--source",
        source="a folder, whose files are read as they are on disk (default: the current one), a Git URL, "
        "oci://HOST/REPOSITORY:TAG, or a bucket: s3://BUCKET/PREFIX",
        reference="test a commit instead: a branch, tag:NAME, commit:SHA, or HEAD (default: the files on "
        "disk)",
    )
    parser.add_argument(
        "-o", "--output", choices=_FORMS, default="text",
        help="lines for people (text, the default), JSON, JUnit's XML, SARIF, or annotations of GitHub",
    )  # fmt: skip
    parser.add_argument(
        "--coverage", action="store_true", help="also list the variants and branches that no test reaches"
    )
    parser.add_argument(
        "--min-coverage", type=_percent, metavar="PERCENT",
        help="exit with 1 where tests reach less of all variants and branches",
    )  # fmt: skip
    add_watch_argument(parser, "the result again whenever a file changes")
    parser.set_defaults(run=run)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of percent from 0 to 100")
    return value


def run(arguments: argparse.Namespace) -> int:
    """0: all tests pass; 1: one fails, a definition is bad, or too little is covered; 2: wrong usage; 3: no
    source.
    """
    _name_layers(arguments)
    options = local_options(arguments)
    if not arguments.watch:
        return asyncio.run(_run_once(options, arguments))
    with exit_on(UNREACHABLE, Setback):
        on_disk = arguments.ref is None and working_tree_of(options.source) is not None
    if not on_disk:
        raise Exit("--watch reads the files of a folder; leave out --ref, and name a folder", USAGE)
    asyncio.run(_watch(options, arguments))
    return OK


def _name_layers(arguments: argparse.Namespace) -> None:
    """Read PATHs as `--path`; one alone that leads out of the current folder is a folder of its own, as for
    `lint`.
    """
    arguments.paths = [*arguments.layers, *arguments.paths]
    path = Path(*arguments.layers)
    if len(arguments.paths) == len(arguments.layers) == 1 and (path.is_absolute() or ".." in path.parts):
        folder = path.is_dir()
        arguments.source, arguments.paths = (str(path), []) if folder else (str(path.parent), [path.name])


async def _watch(options: LocalOptions, arguments: argparse.Namespace) -> None:
    from controller.local.commits import open_backend

    async with open_backend(replace(options, worktree=True)) as (source, _):
        async for _change in source.changes():
            await _run_once(options, arguments)


async def _run_once(options: LocalOptions, arguments: argparse.Namespace) -> int:
    with exit_on(UNREACHABLE, Setback):
        name, tree = await read_tree(options, arguments.ref)
    if name != WORKING_TREE:
        announce("test", name, "")
    made = compose_tree(tree, options)
    tests = read_tests(tree.files, options.paths, tree.skipped)
    report = run_flag_tests(
        made.tested, tests.cases, options.bucketing, skip=frozenset((*made.held, *made.missing))
    )
    if any(outcome.test.of_evaluator for outcome in report.failures):
        report = report.with_users(layers_of(tree, options))
    problems = [*failures(made.problems, lenient=options.lenient), *tests.problems]
    if not tests.cases and not problems:
        message = f"no *.flagtest.yaml is beside the definitions of {', '.join(options.paths)}"
        problems.append(Problem("", 0, 0, Severity.ERROR, "no-tests", message))
    if too_little := report.coverage.lacking(arguments.min_coverage):
        problems.append(Problem("", 0, 0, Severity.ERROR, "test-coverage", too_little))
    tested = _Tested(problems, report)
    print(_text(tested, arguments), end="", flush=True)
    return PROBLEM if problems or report.failures else OK


def _text(tested: _Tested, arguments: argparse.Namespace) -> str:
    failed = [outcome.problem() for outcome in tested.report.failures]
    if arguments.output == "sarif":
        return as_sarif([*tested.problems, *failed])
    if arguments.output == "github":
        return as_annotations([*tested.problems, *failed])
    record = test_run_record(tested.report, tested.problems)
    if arguments.output == "junit":
        return as_junit(record)
    if arguments.output == "json":
        return printable(json.dumps(asdict(record), indent=2, ensure_ascii=False)) + "\n"
    return printable("\n".join(_lines(tested, everything=arguments.coverage))) + "\n"


def _lines(tested: _Tested, *, everything: bool) -> list[str]:
    lines = [*map(str, tested.problems)]
    for outcome in tested.report.failures:
        lines += [str(outcome.problem()), *(f"  {step}" for step in outcome.trace)]
    coverage = tested.report.coverage
    if everything:
        gaps = [*coverage.unreached.items()]
        lines += [f"no test reaches {key}: {', '.join(parts)}" for key, parts in gaps[:_SHOWN]]
        lines += [f"… and parts of {len(gaps) - _SHOWN} more flags"] if len(gaps) > _SHOWN else []
    skipped = sum(outcome.skipped for outcome in tested.report.outcomes)
    counts = [format_count(len(tested.report.outcomes), "test"), f"{len(tested.report.failures)} failed"]
    counts += [f"{skipped} skipped, whose flags have problems of their own"] if skipped else []
    return [*lines, f"{', '.join(counts)}; {coverage}"]
