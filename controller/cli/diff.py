"""`flagstaff diff`: which flags a change adds, changes and removes, against a commit or a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from controller.api.fields import parse_spec
from controller.api.flagset import FlagSetSpec, Validation, target_name
from controller.cli.arguments import add_reading_arguments, local_options
from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.flag_changes import FlagChanges, as_markdown, as_text, compare
from controller.cli.flag_trace import rollouts_by_flag, rollouts_of_set
from controller.cli.output import add_output_argument, document, plain
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on
from controller.cli.problems import failures
from controller.flagsets.compose import Composition, FailurePolicy
from controller.flagsets.patches import Patch
from controller.local.commits import read_tree
from controller.local.worktree import compose_tree
from controller.runtime.setbacks import Setback
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    import argparse

    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection
    from controller.local.local_options import LocalOptions


@dataclass(frozen=True, slots=True)
class DeliveredSide:
    """A FlagSet, and what belongs to it."""

    flag_set: Resource
    flags: FlagSet | None
    """What it delivers; None: nothing yet."""
    rollouts: list[Resource] = field(default_factory=list)
    """All FlagRollouts of the namespace; none where the user may not read them."""

    @property
    def names(self) -> frozenset[str]:
        """The names by which FlagRollouts refer to it."""
        return frozenset({self.flag_set.name, target_name(self.flag_set)})

    @property
    def flag_set_id(self) -> str:
        """The `flagSetId` of flags that have none of their own."""
        return str(self.flag_set.spec.get("flagSetId") or f"{self.flag_set.namespace}/{self.flag_set.name}")


async def read_delivered(connection: ClusterConnection, name: str) -> DeliveredSide:
    """What the FlagSet `name` delivers. Raises Exit where there is none, Setback."""
    # Imported here: it takes a second or two.
    from controller.api.kinds import FEATURE_FLAG_CONFIGURATION, FLAG_ROLLOUT, FLAG_SET, FLAG_SHARD
    from controller.cli.object_rows import delivered_set

    flag_set = await connection.get(FLAG_SET, name)
    written = await connection.find(FEATURE_FLAG_CONFIGURATION, connection.namespace, target_name(flag_set))
    shards = {shard.key: shard for shard in await connection.resources(FLAG_SHARD)}
    try:
        rollouts = await connection.resources(FLAG_ROLLOUT)
    except Setback:
        # A Role for comparing may lack the kind.
        rollouts = []
    return DeliveredSide(
        flag_set, None if written is None else delivered_set(written, shards.get), rollouts
    )  # fmt: skip


async def read_promoted(connection: ClusterConnection, rollout: Resource) -> DeliveredSide:
    """What the FlagSet of a FlagRollout delivers to users in no cohort. Raises Exit, Setback."""
    from controller.api.kinds import FLAG_SHARD
    from controller.delivery.overrides import set_name
    from controller.delivery.rollout_state import rollout_state
    from controller.delivery.rollouts import promoted_set
    from evaluator.flags.diff import RuleCopier

    side = await read_delivered(connection, set_name(rollout))
    promoted = rollout_state(rollout).promoted
    shard = (
        await connection.find(FLAG_SHARD, connection.namespace, promoted.shard)
        if promoted is not None and promoted.shard is not None
        else None
    )
    if shard is None or side.flags is None:
        return side
    kept = promoted_set(shard)
    copier = RuleCopier(kept.evaluators, side.flags.evaluators)
    copied = {key: replace(flag, targeting=copier.copy(flag.targeting)) for key, flag in kept.flags.items()}
    flags = MappingProxyType({**side.flags.flags, **copied})
    return replace(side, flags=replace(side.flags, flags=flags))


def options_of_set(flag_set: Resource, options: argparse.Namespace, verb: str) -> LocalOptions:
    """The command line's options, and where it names none those of the FlagSet. Raises InvalidSpecError."""
    spec: Any = parse_spec(FlagSetSpec, flag_set)
    unread = [name for name in ("substituteFrom", "decryption") if flag_set.spec.get(name)]
    if unread and not (options.age_key or options.substitute):
        text = f"spec.{' and spec.'.join(unread)} of the FlagSet are not read; give --substitute or --age-key"
        print(f"flagstaff {verb}: {text}", file=sys.stderr)
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


_HEAD: Final = "HEAD"
_DIFFERS: Final = 2
"""The exit code of `--detailed-exitcode` where flags differ."""


def configure_diff(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--detailed-exitcode", action="store_true",
        help="exit with 0 where no flag differs, 2 where some do, and 1 for an error, as Terraform does",
    )  # fmt: skip
    add_output_argument(parser, "text", "json", "yaml", "markdown")
    add_cluster_arguments(parser)
    parser.set_defaults(run=run, bucketing=Bucketing.V2.value, ref=None)


def run(options: argparse.Namespace) -> int:
    """0: no flag differs; 1: some do, or a definition is bad; 2 wrong usage; 3 no source, no cluster. With
    --detailed-exitcode 0: no flag differs; 2: some do; 1: anything else.
    """
    if not options.detailed_exitcode:
        differs, bad = _show(options)
        return PROBLEM if differs or bad else OK
    with exit_on(PROBLEM, Exit):
        differs, bad = _show(options)
    return PROBLEM if bad else _DIFFERS if differs else OK


def _show(options: argparse.Namespace) -> tuple[bool, bool]:
    """Print the differences. (Whether there are any, whether a definition is bad). Raises Exit."""
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
    return bool(changes), bool(bad)


def _print(changes: FlagChanges) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for colour, line in as_text(changes):
        print(f"\x1b[{colour}m{line}\x1b[0m" if coloured and colour else line)


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
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await read_delivered(connection, options.against_cluster)
