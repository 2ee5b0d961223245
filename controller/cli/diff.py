"""`flagstaff diff`: which flags a change adds, changes and removes, against a commit or a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api.fields import parse_spec
from controller.api.flagset import FlagSetSpec, Validation, delivers_elsewhere, target_name
from controller.authoring.plans import rollouts_by_flag
from controller.cli.arguments import add_reading_arguments, local_options
from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.flag_changes import FlagChanges, as_markdown, as_text, compare
from controller.cli.output import add_output_argument, document, plain
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on
from controller.cli.problems import failures
from controller.delivery.rollouts import rollouts_of_set
from controller.flagsets.compose import Composition, FailurePolicy
from controller.flagsets.patches import Patch
from controller.local.commits import read_tree
from controller.local.worktree import compose_tree
from controller.runtime.setbacks import Setback
from evaluator.flags.model import Bucketing, FlagSet

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from controller.api.flagrollout import FlagRolloutSpec
    from controller.api.kind import ResourceType
    from controller.api.meta import Resource
    from controller.cli.connection import ClusterConnection
    from controller.local.local_options import LocalOptions
    from controller.local.worktree import WorkingTree


@dataclass(frozen=True, slots=True)
class DeliveredSide:
    """A FlagSet, and what belongs to it."""

    flag_set: Resource
    flags: FlagSet | None
    """What it delivers; None: nothing yet."""
    rollouts: list[Resource] = field(default_factory=list)
    """All FlagRollouts of the namespace; none where the user may not read them."""
    overrides: list[Resource] = field(default_factory=list)
    """All FlagOverrides of the namespace, likewise."""

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
    from controller.api.kinds import (
        FEATURE_FLAG_CONFIGURATION,
        FLAG_OVERRIDE,
        FLAG_ROLLOUT,
        FLAG_SET,
        FLAG_SHARD,
    )
    from controller.cli.object_rows import delivered_set

    flag_set = await connection.get(FLAG_SET, name)
    if delivers_elsewhere(flag_set):
        raise Exit(
            f"FlagSet {name} writes to another cluster (spec.kubeConfig); compare with a commit", USAGE
        )
    written = await connection.find(FEATURE_FLAG_CONFIGURATION, connection.namespace, target_name(flag_set))
    shards = {shard.key: shard for shard in await connection.resources(FLAG_SHARD)}
    rollouts, overrides = [await _read_allowed(connection, kind) for kind in (FLAG_ROLLOUT, FLAG_OVERRIDE)]
    delivered = None if written is None else delivered_set(written, shards.get)
    return DeliveredSide(flag_set, delivered, rollouts, overrides)


async def _read_allowed(connection: ClusterConnection, kind: ResourceType) -> list[Resource]:
    """All objects of a kind; none where a Role for comparing lacks the kind."""
    try:
        return await connection.resources(kind)
    except Setback:
        return []


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
    add_comparison_arguments(parser)
    add_output_argument(parser, "text", "json", "yaml", "markdown")
    parser.set_defaults(run=run)


def add_comparison_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is compared with what."""
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
    add_cluster_arguments(parser)
    parser.set_defaults(bucketing=Bucketing.V2.value, ref=None)


def run(options: argparse.Namespace) -> int:
    """Exit as `exit_with` says."""
    return exit_with(options, _show)


def exit_with(options: argparse.Namespace, show: Callable[[argparse.Namespace], Shown]) -> int:
    """0: no flag differs; 1: some do, or a definition is bad; 2 wrong usage; 3 no source, no cluster. With
    --detailed-exitcode 0: no flag differs; 2: some do; 1: anything else.
    """
    if not options.detailed_exitcode:
        shown = show(options)
        return PROBLEM if shown.differs or shown.bad else OK
    with exit_on(PROBLEM, Exit):
        shown = show(options)
    return PROBLEM if shown.bad else _DIFFERS if shown.differs else OK


class Shown(NamedTuple):
    """What a comparison found."""

    differs: bool
    """Whether any flag differs."""
    bad: bool
    """Whether a definition is bad."""


def _show(options: argparse.Namespace) -> Shown:
    """Print the differences. Raises Exit."""
    compared = read_compared(options, "diff")
    changes = replace(
        compare(compared.names, compared.before, compared.after), in_steps=compared.rollouts_by_flag
    )
    if options.output == "text":
        _print(changes)
    elif options.output == "markdown":
        print(as_markdown(changes), end="")
    else:
        print(document(plain([changes], FlagChanges)[0], options.output), end="")
    return Shown(bool(changes), compared.print_bad(options))


def _print(changes: FlagChanges) -> None:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for colour, line in as_text(changes):
        print(f"\x1b[{colour}m{line}\x1b[0m" if coloured and colour else line)


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides of a comparison."""

    names: tuple[str, str]
    before: FlagSet
    after: Composition
    tree: WorkingTree
    """The files of the second side."""
    local: LocalOptions
    """How they were read."""
    delivered: DeliveredSide | None = None
    """The first side, where it is that of a cluster."""

    @property
    def rollouts(self) -> list[tuple[Resource, FlagRolloutSpec]]:
        """The FlagRollouts of the flag set, the oldest first; none without a cluster."""
        side = self.delivered
        return [] if side is None else rollouts_of_set(side.rollouts, side.names)

    @property
    def rollouts_by_flag(self) -> dict[str, str]:
        """The names of the FlagRollouts that roll the change out, by flag."""
        known = [(rollout.name, spec.flags) for rollout, spec in self.rollouts]
        return rollouts_by_flag(known, self.before, self.after.flag_set)

    def print_bad(self, options: argparse.Namespace) -> bool:
        """Whether a definition of the second side is bad; beside a text, says so on standard error."""
        bad = failures(self.after.problems, lenient=options.lenient)
        for problem in bad if options.output == "text" else ():
            print(problem, file=sys.stderr)
        return bool(bad)


def read_compared(options: argparse.Namespace, verb: str) -> Compared:
    """Both sides that the command line names. Raises Exit."""
    return _against_cluster(options, verb) if options.against_cluster else _between_commits(options)


def _between_commits(options: argparse.Namespace) -> Compared:
    first, dots, second = options.range.partition("..")
    local = local_options(options)

    async def read() -> Compared:
        before_name, before_tree = await read_tree(local, first or _HEAD)
        after_name, after_tree = await read_tree(local, (second or _HEAD) if dots else None)
        # What was served once was accepted, whatever its warnings are.
        before = compose_tree(before_tree, replace(local, lenient=True)).flag_set
        after = compose_tree(after_tree, local, before)
        return Compared((before_name, after_name), before, after, after_tree, local)

    with exit_on(UNREACHABLE, Setback):
        return asyncio.run(read())


def _against_cluster(options: argparse.Namespace, verb: str) -> Compared:
    if ".." in options.range:
        raise Exit("--against-cluster compares one side: name no commit, or one", USAGE)
    side = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    local = options_of_set(side.flag_set, options, verb)
    reference = None if options.range == _HEAD else options.range
    with exit_on(UNREACHABLE, Setback):
        name, tree = asyncio.run(read_tree(local, reference))
    after = compose_tree(tree, local, side.flags, side.flag_set_id)
    names = f"FlagSet/{side.flag_set.name}", name
    return Compared(names, side.flags or FlagSet(), after, tree, local, side)


async def _read(options: argparse.Namespace) -> DeliveredSide:
    # Imported here: it takes a second or two.
    from controller.cli.connection import open_connection

    async with open_connection(scope_of(options)) as connection:
        return await read_delivered(connection, options.against_cluster)
