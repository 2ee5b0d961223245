"""`flagstaff rollout plan`: what a FlagRollout would do with a change of flags."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.output import DOCUMENTS, Column, add_output_argument, document, plain, table
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, USAGE, Exit, exit_on, printable, short
from evaluator.host.times import duration_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from controller.api.meta import Resource
    from controller.cli.diff import DeliveredSide
    from controller.rollouts.rollout_plan import AtOnce, PlannedChange, RolloutPlan


_MOST_KEYS: Final = 10
_REASONS: Final[dict[AtOnce, str]] = {
    "Added": "new",
    "Removed": "removed",
    "Disabled": "disabled",
    "NotSelected": "not in spec.flags",
    "SameAnswers": "metadata alone",
}
_STEPS: Final = (
    Column("STEP", lambda step: step.number),
    Column("USERS", lambda step: step.users),
    Column("EARLIEST", lambda step: step.earliest or "never: no window opens"),
    Column("LASTS", lambda step: duration_text(step.lasts) if step.lasts else "-"),
    Column("SAMPLES", lambda step: str(step.samples or "-")),
    Column("APPROVAL", lambda step: "required" if step.approval else "-"),
    Column("MOVED", lambda step: f"{step.moved:.2f}%"),
)
_FLAGS: Final = (
    Column("FLAG", lambda flag: flag.key),
    Column("MOVED", lambda flag: f"{flag.moved:.2f}%"),
    Column("NEEDED", lambda flag: f"{flag.needed:.2f}%"),
)


def as_text(plan: RolloutPlan) -> str:
    """The plan as lines."""
    return "\n".join(_sections(plan))


def _sections(plan: RolloutPlan) -> Iterator[str]:
    lines = [f"FlagRollout {plan.rollout}: {short(plan.before)} → {short(plan.after)}: {_summary(plan)}"]
    lines += [f"cannot be rolled out: {key}: {reason}" for key, reason in plan.misfits.items()]
    for reason, words in _REASONS.items():
        keys = [key for key, why in plan.at_once.items() if why == reason]
        if keys:
            more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
            lines.append(f"at once, {words}: {', '.join(keys[:_MOST_KEYS])}{more}")
    lines += [f"note: {note}" for note in plan.notes]
    yield "".join(f"{printable(line)}\n" for line in lines)
    if plan.steps:
        yield table(_STEPS, plan.steps)
        yield table(_FLAGS, plan.flags)
        yield f"of {plan.users} users; NEEDED is the least that any definition with the same shares moves\n"


def _summary(plan: RolloutPlan) -> str:
    if plan.misfits:
        return "the change is held; everybody keeps what is served now"
    if not plan.flags:
        return "nothing is rolled out"
    flags, steps = f"{len(plan.flags)} flag{'s' if len(plan.flags) > 1 else ''}", len(plan.steps) - 1
    return f"{flags} in {steps} steps" if steps else f"{flags}, promoted at once"


_HEAD: Final = "HEAD"
_USERS: Final = 10_000
_FILES: Final = (".yaml", ".yml", ".json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    # Imported here: other verbs about rollouts read no definitions.
    from controller.cli.arguments import add_reading_arguments
    from evaluator.flags.model import Bucketing

    parser.add_argument(
        "rollout", metavar="FLAGROLLOUT",
        help="a file with its manifest (*.yaml or *.json), or the name of one in the cluster, whose flag set "
        "is then the first side of the comparison, and whose status says what was promoted lately",
    )  # fmt: skip
    parser.add_argument(
        "range", metavar="A[..B]", nargs="?", default=_HEAD,
        help="two commits, as Git names them, or one to compare the files on disk with (default HEAD); of a "
        "FLAGROLLOUT in the cluster the commit to be compared with it (default: the files on disk)",
    )  # fmt: skip
    parser.add_argument(
        "--source", default=".", metavar="SOURCE", help="a repository (default: the current folder)"
    )
    parser.add_argument("--before", metavar="DIR", help="compare with the files of this folder, not with A")
    parser.add_argument(
        "--path", action="append", default=[], metavar="P", dest="paths",
        help="a layer of the flag set, base first (default: the root folder, or those of the FlagSet)",
    )  # fmt: skip
    add_reading_arguments(parser)
    parser.add_argument(
        "--users", type=_count, default=_USERS, metavar="N",
        help=f"how many users to evaluate the flags for (default {_USERS})",
    )  # fmt: skip
    parser.add_argument(
        "--users-from", type=Path, metavar="FILE",
        help="evaluation contexts of real users, a JSON object a line, instead of N users with a targeting "
        "key and nothing else",
    )  # fmt: skip
    add_output_argument(parser, "text", *DOCUMENTS)
    add_cluster_arguments(parser)
    parser.set_defaults(run=run, bucketing=Bucketing.V2.value, failure_policy="PerFlag", ref=None)


def run(options: argparse.Namespace) -> int:
    """0 planned; 1 the change cannot be rolled out, or a definition is bad; 2 wrong usage; 3 no source, no
    cluster.
    """
    from controller.rollouts.rollout_plan import RolloutPlan

    plans = _plans(options)
    if options.output in DOCUMENTS:
        print(document(plain(plans, RolloutPlan), options.output), end="")
    else:
        print("\n".join(map(as_text, plans)), end="")
    return PROBLEM if any(plan.misfits for plan in plans) else OK


def _plans(options: argparse.Namespace) -> list[RolloutPlan]:
    from controller.api.fields import InvalidSpecError, parse_spec
    from controller.api.flagrollout import FlagRolloutSpec
    from controller.delivery.changed_flags import numbered_users
    from controller.rollouts.rollout_plan import plan
    from controller.runtime.clock import now

    in_file = options.rollout.endswith(_FILES)
    rollouts, change = _read_from_file(options) if in_file else _read_from_cluster(options)
    contexts = (
        [*numbered_users(options.users)]
        if options.users_from is None
        else read_contexts(options.users_from, options.users)
    )
    with exit_on(USAGE, InvalidSpecError):
        return [
            plan(rollout, parse_spec(FlagRolloutSpec, rollout), change, contexts, now())
            for rollout in rollouts
        ]


def _read_from_file(options: argparse.Namespace) -> tuple[list[Resource], PlannedChange]:
    from controller.cli.arguments import local_options
    from controller.local.commits import read_tree
    from controller.local.worktree import compose_tree
    from controller.rollouts.rollout_plan import PlannedChange
    from controller.runtime.setbacks import Setback

    rollouts = read_rollouts(options.rollout)
    first, dots, second = options.range.partition("..")
    local = local_options(options)
    earlier = local if options.before is None else replace(local, source=options.before)

    async def read() -> PlannedChange:
        before_name, before_tree = await read_tree(earlier, None if options.before else first or _HEAD)
        after_name, after_tree = await read_tree(local, (second or _HEAD) if dots else None)
        # The earlier definitions are served already, so their warnings were accepted.
        before = compose_tree(before_tree, replace(earlier, lenient=True)).flag_set
        after = compose_tree(after_tree, local, before)
        _require_good(after.problems, lenient=local.lenient)
        return PlannedChange((options.before or before_name, before), (after_name, after.flag_set))

    with exit_on(UNREACHABLE, Setback):
        return rollouts, asyncio.run(read())


def read_rollouts(file: str) -> list[Resource]:
    """The FlagRollouts in a file of manifests. Raises Exit where there is none."""
    from controller.api.flagrollout import KIND
    from controller.api.meta import Resource
    from controller.cli.manifests import read_manifests

    manifests = [manifest for manifest in read_manifests([file]) if manifest.is_object]
    rollouts = [Resource.of(manifest.body) for manifest in manifests if manifest.body["kind"] == KIND]
    if not rollouts:
        raise Exit(f"{file}: it has no FlagRollout", USAGE)
    return rollouts


def _read_from_cluster(options: argparse.Namespace) -> tuple[list[Resource], PlannedChange]:
    from controller.cli.diff import options_of_set
    from controller.local.commits import read_tree
    from controller.local.worktree import compose_tree
    from controller.rollouts.rollout_plan import PlannedChange
    from controller.runtime.setbacks import Setback
    from evaluator.flags.model import FlagSet

    if ".." in options.range or options.before:
        raise Exit("a FlagRollout of the cluster is compared with one side: name no commit, or one", USAGE)
    rollout, side = run_on_cluster(lambda: _read(options), doing="reading the cluster")
    local = options_of_set(side.flag_set, options, "rollout plan")
    with exit_on(UNREACHABLE, Setback):
        name, tree = asyncio.run(read_tree(local, None if options.range == _HEAD else options.range))
    after = compose_tree(tree, local, side.flags, side.flag_set_id)
    _require_good(after.problems, lenient=local.lenient)
    return [rollout], PlannedChange(
        (f"FlagSet/{side.flag_set.name}", side.flags or FlagSet()), (name, after.flag_set)
    )


async def _read(options: argparse.Namespace) -> tuple[Resource, DeliveredSide]:
    from controller.api.kinds import FLAG_ROLLOUT
    from controller.cli.connection import open_connection
    from controller.cli.diff import read_promoted

    async with open_connection(scope_of(options)) as connection:
        rollout = await connection.get(FLAG_ROLLOUT, options.rollout)
        return rollout, await read_promoted(connection, rollout)


def _require_good(problems: Sequence[Any], *, lenient: bool) -> None:
    from controller.cli.problems import failures

    if bad := failures(problems, lenient=lenient):
        raise Exit(
            "\n".join(["definitions are bad, so the change would not be served whole:", *map(str, bad)]),
            PROBLEM,
        )


def read_contexts(file: Path, most: int) -> list[dict[str, Any]]:
    """The evaluation contexts of a file, as many as `most`. Raises Exit."""
    contexts: list[dict[str, Any]] = []
    with exit_on(USAGE, OSError), file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if len(contexts) == most:
                break
            try:
                context = json.loads(line)
            except ValueError as error:
                raise Exit(f"{file}:{number}: not JSON: {error}", USAGE) from None
            if not isinstance(context, dict):
                raise Exit(f"{file}:{number}: an evaluation context is a JSON object", USAGE)
            contexts.append(context)
    if not contexts:
        raise Exit(f"{file}: it has no contexts", USAGE)
    return contexts


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        import argparse

        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000000")
    return int(text)
