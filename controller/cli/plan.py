"""`flagstaff plan`: what a change of definitions does to users, against a commit or a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.authoring.change_tests import covering_tests
from controller.authoring.plan_words import FORGES
from controller.authoring.plans import Beside, plan_flags
from controller.authoring.policies import Circumstances
from controller.authoring.shares import SAMPLES
from controller.cli.arguments import add_policies_argument, policy_files
from controller.cli.change_plan import ChangePlan, as_findings, as_markdown, as_text, calendar_of
from controller.cli.clusters import run_on_cluster, scope_of
from controller.cli.diff import Compared, Shown, add_comparison_arguments, exit_with, read_compared
from controller.cli.flag_requests import add_request_arguments, requests_by_flag, requests_text
from controller.cli.output import DOCUMENTS, add_output_argument, document, draw, plain
from controller.cli.plan_rollout import read_contexts, read_rollouts
from controller.cli.printing import UNREACHABLE, USAGE, exit_on
from controller.flagsets.compose import unmet_policies
from controller.flagsets.layers import places_in, read_own_policies, read_tests
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.flags.problems import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from controller.authoring.plans import FlagPlan
    from controller.cli.diff import DeliveredSide
    from controller.rollouts.rollout_plan import RolloutPlan
    from evaluator.flags.model import FlagSet, Json
    from evaluator.flags.problems import Problem

_MOST_CONTEXTS: Final = 1_000_000
_STYLES: Final = {"+": "green", "-": "red", "~": "yellow"}


def configure_plan(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_comparison_arguments(parser)
    parser.add_argument(
        "--contexts", type=Path, metavar="FILE",
        help="evaluation contexts of real users, a JSON object a line, for the rules whose shares no "
        f"arithmetic gives; without it {SAMPLES:,} are made of what the rules compare",
    )  # fmt: skip
    parser.add_argument(
        "--rollout", metavar="FILE",
        help="a manifest with a FlagRollout, whose steps are planned too, as rollout plan does; "
        "--against-cluster reads those of the FlagSet",
    )  # fmt: skip
    parser.add_argument(
        "--code", type=Path, metavar="DIR", help="count what the code in this folder refers to, as refs does"
    )
    add_request_arguments(parser, "say who asked for each flag in --requests-in days")
    parser.add_argument(
        "--name", metavar="NAME",
        help="of Markdown: the name of the flag set, in the hidden line by which a comment is found and "
        "replaced (default: SET, or the paths)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=_limit, default=FORGES["github"], metavar="BYTES",
        help=f"of Markdown: the longest comment, as a number or as {', '.join(FORGES)} (default github)",
    )  # fmt: skip
    add_policies_argument(parser)
    add_output_argument(parser, "text", *DOCUMENTS, "markdown", "sarif")
    parser.set_defaults(run=run)


def _limit(text: str) -> int:
    limit = FORGES.get(text) or (int(text) if text.isdecimal() else 0)
    if limit < 1_000:
        names = ", ".join(FORGES)
        raise argparse.ArgumentTypeError(f"{text!r} is no limit; write at least 1000 bytes, or {names}")
    return limit


def run(options: argparse.Namespace) -> int:
    """Exit as `diff` does."""
    return exit_with(options, _show)


def _show(options: argparse.Namespace) -> Shown:
    contexts = [] if options.contexts is None else read_contexts(options.contexts, _MOST_CONTEXTS)
    compared = read_compared(options, "plan")
    before, after, at = compared.before, compared.after.flag_set, now()
    flags = plan_flags(
        before,
        after,
        int(at.timestamp()),
        Beside(contexts, compared.rollouts_by_flag, _overrides(compared, at.timestamp())),
    )
    flags = _with_tests(flags, compared)
    unmet = _unmet(options, compared, flags, at)
    if unmet:
        problems = tuple(sorted({*compared.after.problems, *unmet}))
        compared = replace(compared, after=replace(compared.after, problems=problems))
    rollouts = tuple(_rollouts(options, compared, contexts)) if flags else ()
    plan = ChangePlan(
        *compared.names,
        len(contexts) or SAMPLES,
        _with_requests(flags if options.code is None else _with_references(flags, options.code), options),
        rollouts,
        calendar_of(after, flags, rollouts, at),
        tuple(str(problem) for problem in compared.after.problems),
    )
    _print(plan, options, compared, unmet)
    return Shown(bool(flags), compared.print_bad(options))


def _unmet(
    options: argparse.Namespace, compared: Compared, flags: tuple[FlagPlan, ...], at: datetime
) -> list[Problem]:
    """What is wrong with the policies, and what the change does not meet."""
    tree, paths = compared.tree, compared.local.paths
    policies = read_own_policies(tree.files, paths, tree.skipped, policy_files(options))
    around = Circumstances(
        at,
        tree.author,
        tree.signer,
        before=compared.before,
        environments=paths,
        places=_places(compared) if policies.policies else {},
    )
    return unmet_policies(compared.after.flag_set, policies, around, flags)


def _print(
    plan: ChangePlan, options: argparse.Namespace, compared: Compared, unmet: Sequence[Problem]
) -> None:
    if options.output == "markdown":
        name = options.name or options.against_cluster or "/".join(options.paths) or "flags"
        print(as_markdown(plan, name, options.limit), end="")
    elif options.output == "sarif":
        print(as_findings(plan, _places(compared), compared.local.paths[0], unmet), end="")
    elif options.output in DOCUMENTS:
        print(document(plain([plan], ChangePlan)[0], options.output), end="")
    else:
        from rich.text import Text

        for line in as_text(plan):
            print(draw(Text(line, style=_STYLES.get(line[:1], ""))), end="")
        for problem in unmet:
            if problem.severity is Severity.NOTE:
                print(problem, file=sys.stderr)


def _overrides(compared: Compared, at: float) -> dict[str, str]:
    """The names of the FlagOverrides of the flag set that are in force, by flag."""
    from controller.delivery.overrides import in_force, set_name

    side = compared.delivered
    if side is None:
        return {}
    own = [override for override in side.overrides if set_name(override) in side.names]
    return {override.flag: override.name for override in reversed(in_force(own, at))}


def _rollouts(
    options: argparse.Namespace, compared: Compared, contexts: Sequence[Mapping[str, Json]]
) -> Iterator[RolloutPlan]:
    """What each FlagRollout of the command line or of the cluster's flag set does with the change."""
    from controller.api.fields import InvalidSpecError, parse_spec
    from controller.api.flagrollout import FlagRolloutSpec
    from controller.delivery.changed_flags import numbered_users
    from controller.rollouts.rollout_plan import PlannedChange
    from controller.rollouts.rollout_plan import plan as plan_rollout

    users = contexts or [*numbered_users(SAMPLES)]
    after = compared.names[1], compared.after.flag_set
    served: dict[str, FlagSet | None] = {}
    with exit_on(USAGE, InvalidSpecError):
        known = list(compared.rollouts)
        if options.rollout is not None:
            files = read_rollouts(options.rollout)
            known = [(found, parse_spec(FlagRolloutSpec, found)) for found in files]
        elif known:
            sides = run_on_cluster(lambda: _promoted(options, compared), doing="reading the cluster")
            served = {name: side.flags for name, side in sides.items()}
        for rollout, spec in known:
            before = served.get(rollout.name) or compared.before
            yield plan_rollout(rollout, spec, PlannedChange((compared.names[0], before), after), users, now())


async def _promoted(options: argparse.Namespace, compared: Compared) -> dict[str, DeliveredSide]:
    """What users in no cohort of each FlagRollout get, by the FlagRollouts' names."""
    from controller.cli.connection import open_connection
    from controller.cli.diff import read_promoted

    async with open_connection(scope_of(options)) as connection:
        return {rollout.name: await read_promoted(connection, rollout) for rollout, _ in compared.rollouts}


def _with_tests(flags: tuple[FlagPlan, ...], compared: Compared) -> tuple[FlagPlan, ...]:
    """The flags with what the tests of the second side say about each."""
    made, tree = compared.after, compared.tree
    tests = read_tests(tree.files, compared.local.paths, tree.skipped).cases
    keys = [flag.key for flag in flags]
    found = covering_tests(compared.before, made.tested, keys, tests, (*made.held, *made.missing))
    return tuple(replace(flag, tests=found.get(flag.key)) for flag in flags)


def _with_references(flags: tuple[FlagPlan, ...], code: Path) -> tuple[FlagPlan, ...]:
    """The flags with how often a folder of code refers to each. Raises Exit."""
    from controller.local.code_search import read_options, search

    with exit_on(UNREACHABLE, Setback, OSError):
        found = search(code, [flag.key for flag in flags], read_options(code)).references
    return tuple(replace(flag, references=len(found.get(flag.key, ()))) for flag in flags)


def _with_requests(flags: tuple[FlagPlan, ...], options: argparse.Namespace) -> tuple[FlagPlan, ...]:
    """The flags with who asked for each, where there is a Prometheus. Raises Exit."""
    if options.prometheus is None or not flags:
        return flags
    days = options.requests_in.days
    found = requests_by_flag(options.prometheus, days)
    return tuple(replace(flag, requests=requests_text(found.get(flag.key, {}), days)) for flag in flags)


def _places(compared: Compared) -> dict[str, tuple[str, int]]:
    """File and line of each flag's definition in the highest layer that has one."""
    tree = compared.tree
    return places_in(tree.files, compared.local.paths, tree.skipped)
