"""`flagstaff diff`: which flags a change adds, changes and removes, against a commit or a cluster."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from controller.cli.authoring.delivered_side import options_of_set, read_delivered
from controller.cli.authoring.flag_changes import FlagChanges, as_markdown, as_text, compare
from controller.cli.objects.rolled_out import rollouts_by_flag, rollouts_of_set
from controller.cli.shared.arguments import add_reading_arguments, local_options
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on
from controller.cli.shared.output import add_output_argument, document, draw, plain
from controller.cli.shared.problems import failures
from controller.flagsets.building.compose import FailurePolicy
from controller.local.compared import read_tree
from controller.local.worktree import compose_tree
from controller.runtime.reconciling.setbacks import Setback
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    import argparse

    from controller.cli.authoring.delivered_side import DeliveredSide
    from controller.flagsets.building.compose import Composition

_HEAD: Final = "HEAD"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "range", metavar="A[..B]", nargs="?", default=_HEAD,
        help="two commits, as Git names them, or one to compare the files on disk with (default HEAD)",
    )  # fmt: skip
    parser.add_argument(
        "--source", default=".", metavar="SOURCE", help="a repository (default: the current folder)"
    )
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a layer of the flag set, base first (default: the root folder; with --against-cluster those of "
        "the FlagSet)",
    )  # fmt: skip
    parser.add_argument(
        "--against-cluster", metavar="SET", help="compare with what this FlagSet of a cluster delivers"
    )
    add_reading_arguments(parser)
    parser.add_argument(
        "--failure-policy", choices=[policy.value for policy in FailurePolicy], default="PerFlag",
        help="what a bad flag holds back: itself (PerFlag, the default) or the whole set (Atomic)",
    )  # fmt: skip
    add_output_argument(parser, "text", "json", "yaml", "markdown")
    add_cluster_arguments(parser)
    parser.set_defaults(run=run, bucketing=Bucketing.V2.value, ref=None)


def run(options: argparse.Namespace) -> int:
    """0: no flag differs; 1: some do, or a definition is bad; 2 wrong usage; 3 no source, no cluster."""
    if options.against_cluster:
        changes, after = _against_cluster(options)
    else:
        changes, after = _between_commits(options)
    if options.output == "text":
        _print(changes)
    elif options.output == "markdown":
        print(as_markdown(changes), end="")
    else:
        print(document(plain([changes], FlagChanges)[0], options.output), end="")
    bad = failures(after.problems, lenient=options.lenient)
    if options.output == "text":
        for problem in bad:
            print(problem, file=sys.stderr)
    return PROBLEM if changes or bad else OK


def _print(changes: FlagChanges) -> None:
    from rich.text import Text

    for colour, line in as_text(changes):
        print(draw(Text(line, style=colour)), end="")


def _between_commits(options: argparse.Namespace) -> tuple[FlagChanges, Composition]:
    first, dots, second = options.range.partition("..")
    local = local_options(options)

    async def read() -> tuple[FlagChanges, Composition]:
        before_name, before_tree = await read_tree(local, first or _HEAD)
        after_name, after_tree = await read_tree(local, (second or _HEAD) if dots else None)
        # What was served once was accepted, whatever its warnings are.
        before = compose_tree(before_tree, replace(local, lenient=True)).flag_set
        after = compose_tree(after_tree, local, before)
        return compare((before_name, after_name), before, after), after

    with exit_on(UNREACHABLE, Setback):
        return asyncio.run(read())


def _against_cluster(options: argparse.Namespace) -> tuple[FlagChanges, Composition]:
    if ".." in options.range:
        raise Exit("--against-cluster compares one side: name no commit, or one", USAGE)
    side = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    local = options_of_set(side.flag_set, options, "diff")
    reference = None if options.range == _HEAD else options.range
    with exit_on(UNREACHABLE, Setback):
        name, tree = asyncio.run(read_tree(local, reference))
    before = side.flags or FlagSet()
    after = compose_tree(tree, local, side.flags, side.flag_set_id)
    changes = compare((f"FlagSet/{side.flag_set.name}", name), before, after)
    rollouts = rollouts_by_flag(rollouts_of_set(side.rollouts, side.names), before, after.flag_set)
    return replace(changes, in_steps=rollouts), after


async def _read(options: argparse.Namespace) -> DeliveredSide:
    # Imported here: it takes a second or two.
    from controller.cli.cluster.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await read_delivered(connection, options.against_cluster)
