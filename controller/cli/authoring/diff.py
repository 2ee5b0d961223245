"""`flagstaff diff`: which flags a change adds, changes and removes, against a commit or a cluster."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.cli.authoring.flag_changes import FlagChanges, as_markdown, as_text, compare
from controller.cli.shared.arguments import add_reading_arguments, local_options
from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, PROBLEM, UNREACHABLE, USAGE, Exit, ending
from controller.cli.shared.output import add_output_argument, document, drawing, plain
from controller.cli.shared.problems import failures
from controller.flagsets.building.compose import FailurePolicy
from controller.flagsets.preparing.patches import Patch
from controller.local.compared import read_tree
from controller.local.worktree import compose_tree
from controller.runtime.reconciling.setbacks import Setback
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    import argparse

    from controller.api.objects.meta import Resource
    from controller.flagsets.building.compose import Composition
    from controller.local.local_options import LocalOptions

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
        print(drawing(Text(line, style=colour)), end="")


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

    with ending(UNREACHABLE, Setback):
        return asyncio.run(read())


def _against_cluster(options: argparse.Namespace) -> tuple[FlagChanges, Composition]:
    if ".." in options.range:
        raise Exit("--against-cluster compares one side: name no commit, or one", USAGE)
    flag_set, before = run_on_cluster(lambda: _read_delivered(options), doing="reading the cluster")
    local = _options_of(flag_set, options)
    reference = None if options.range == _HEAD else options.range
    with ending(UNREACHABLE, Setback):
        name, tree = asyncio.run(read_tree(local, reference))
    flag_set_id = str(flag_set.spec.get("flagSetId") or f"{flag_set.namespace}/{flag_set.name}")
    after = compose_tree(tree, local, before, flag_set_id)
    names = (f"FlagSet/{flag_set.name}", name)
    return compare(names, before or FlagSet(), after), after


async def _read_delivered(options: argparse.Namespace) -> tuple[Resource, FlagSet | None]:
    """The FlagSet, and what it delivers."""
    # Imported here: it takes a second or two.
    from controller.api.flagset import target_name
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_SET, FLAG_SHARD
    from controller.cli.cluster.connection import connected
    from controller.cli.objects.object_rows import delivered_set

    async with connected(scope_of(options)) as connection:
        flag_set = await connection.get(FLAG_SET, options.against_cluster)
        written = await connection.find(
            FEATURE_FLAG_CONFIGURATION, connection.namespace, target_name(flag_set)
        )
        shards = {shard.key: shard for shard in await connection.resources(FLAG_SHARD)}
    return flag_set, None if written is None else delivered_set(written, shards.get)


def _options_of(flag_set: Resource, options: argparse.Namespace) -> LocalOptions:
    """The command line's options, and where it names none those of the FlagSet."""
    from controller.api.flagset import FlagSetSpec, Validation
    from controller.api.objects.parsed_spec import parse_spec

    spec: Any = parse_spec(FlagSetSpec, flag_set)
    unread = [name for name in ("substituteFrom", "decryption") if flag_set.spec.get(name)]
    if unread and not (options.age_key or options.substitute):
        text = f"spec.{' and spec.'.join(unread)} of the FlagSet are not read; give --substitute or --age-key"
        print(f"flagstaff diff: {text}", file=sys.stderr)
    local = local_options(options)
    patches = [Patch(f"spec.patches[{index}]", entry.patch) for index, entry in enumerate(spec.patches)]
    return replace(
        local,
        paths=tuple(options.paths) or tuple(spec.paths),
        patches=local.patches or tuple(patches),
        substitute=local.substitute if local.substitute is not None else spec.substitute,
        lenient=local.lenient or spec.validation is Validation.LENIENT,
        policy=FailurePolicy(spec.failure_policy),
        bucketing=Bucketing(spec.bucketing),
    )
