"""`flagstaff stale`: facts by which a team decides which flags may go."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.authoring.flag_life import Fact, FactName, FlagLife, FlagUse, LifeLimits, facts_of, life_of
from controller.cli.arguments import add_build_arguments
from controller.cli.definitions import SOURCE_HELP, read_definitions
from controller.cli.flag_requests import add_request_arguments, days, requests_by_flag
from controller.cli.output import Column, add_output_argument, document, table
from controller.cli.printing import OK, PROBLEM, UNREACHABLE, Exit, exit_on, printable
from controller.flagsets.constant_parts import constant_result
from controller.local.code_search import read_options, search
from controller.local.flag_commits import MOST_COMMITS, FlagCommits
from controller.local.worktree import working_tree_of
from controller.runtime.clock import now
from controller.runtime.setbacks import Setback
from evaluator.host.times import timestamp

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from controller.local.local_options import LocalOptions
    from evaluator.flags.model import FlagSet

_DEFAULTS: Final = LifeLimits()


@dataclass(frozen=True, slots=True)
class StaleFlag:
    """A flag with at least one fact."""

    key: str
    life: FlagLife
    facts: Sequence[Fact]
    use: FlagUse


def configure_stale(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(parser, **SOURCE_HELP)
    limits = {
        "--older-than": (_DEFAULTS.age, "old", "was added so many days ago"),
        "--unchanged-for": (_DEFAULTS.unchanged, "unchanged", "no commit changed it for so many days"),
        "--constant-for": (
            _DEFAULTS.constant,
            "constant",
            "gives everybody the same, unchanged for so many days",
        ),
    }
    for option, (limit, fact, words) in limits.items():
        parser.add_argument(
            option, metavar="DAYS", type=days, default=limit,
            help=f"a flag is {fact} if it {words} (default {limit.days})",
        )  # fmt: skip
    parser.add_argument(
        "--code", metavar="DIR", type=Path, action="append", default=[],
        help="a folder of code: a flag is unreferenced if no code refers to it; may be repeated",
    )  # fmt: skip
    add_request_arguments(parser, "a flag is unrequested if nobody asked for it in --requests-in days")
    parser.add_argument(
        "--fail-on", metavar="FACT", action="append", choices=[*FactName], default=[],
        help=f"exit with 1 if a flag has this fact: {', '.join(FactName)}; may be repeated",
    )  # fmt: skip
    add_output_argument(parser, "table", "json", "markdown")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 printed; 1 a flag has a fact of --fail-on; 2 wrong usage; 3 a source, folder or server that cannot
    be read.
    """
    options, composition = read_definitions(arguments)
    flag_set = composition.flag_set
    with exit_on(UNREACHABLE, Setback):
        uses = _uses(arguments, options, flag_set)
    limits = LifeLimits(arguments.older_than, arguments.unchanged_for, arguments.constant_for)
    stale = stale_flags(flag_set, uses, now(), limits)
    print(_FORMS[arguments.output](stale), end="")
    wanted = set(arguments.fail_on)
    return PROBLEM if any(fact.name in wanted for flag in stale for fact in flag.facts) else OK


def stale_flags(
    flag_set: FlagSet, uses: Mapping[str, FlagUse], moment: datetime, limits: LifeLimits
) -> list[StaleFlag]:
    """The flags that have facts, those with the most first."""
    stale = []
    for key, flag in flag_set.flags.items():
        metadata = flag.metadata_under(flag_set.metadata)
        constant = constant_result(flag.targeting, flag_set.evaluators)
        use = uses.get(key, FlagUse())
        if facts := list(facts_of(flag, metadata, constant, use, moment, limits)):
            stale.append(StaleFlag(key, life_of(metadata), facts, use))
    return sorted(stale, key=lambda flag: (-len(flag.facts), flag.key))


def _uses(arguments: argparse.Namespace, options: LocalOptions, flag_set: FlagSet) -> dict[str, FlagUse]:
    created, changed = _changes(options)
    references = _references(arguments.code, flag_set) if arguments.code else None
    requests = None
    if arguments.prometheus is not None:
        requests = requests_by_flag(arguments.prometheus, arguments.requests_in.days)
    return {
        key: FlagUse(
            created.get(key),
            changed.get(key),
            None if requests is None else sum(requests.get(key, {}).values()),
            None if references is None else references.get(key, 0),
        )
        for key in flag_set.flags
    }


def _changes(options: LocalOptions) -> tuple[dict[str, datetime], dict[str, datetime]]:
    """The time of the commit that added each flag, and of the newest that changed it, as far as the
    repository on this machine tells.
    """
    import pygit2

    created: dict[str, datetime] = {}
    changed: dict[str, datetime] = {}
    folder = working_tree_of(options.source)
    if folder is None:
        _remark(f"{options.source} is not on this machine, so that ages are not known; clone it")
        return created, changed
    try:
        for number, commit in enumerate(FlagCommits(folder, options).read("", lambda _: False)):
            if number == MOST_COMMITS:
                _remark(
                    f"only the newest {MOST_COMMITS} commits that change flags are read; ages may be higher"
                )
                break
            if (at := commit.change.at) is not None:
                created |= dict.fromkeys(commit.lines, at)
                changed = {**dict.fromkeys(commit.lines, at), **changed}
    except (KeyError, ValueError, pygit2.GitError):
        _remark(f"{folder} has no commits that can be read, so that ages are not known")
    return created, changed


def _references(folders: Sequence[Path], flag_set: FlagSet) -> dict[str, int]:
    counts: dict[str, int] = {}
    for folder in folders:
        if not folder.is_dir():
            raise Exit(f"--code: {folder} is no folder", UNREACHABLE)
        found = search(folder, flag_set.flags, read_options(folder))
        for key, places in found.references.items():
            counts[key] = counts.get(key, 0) + len(places)
    return counts


def _remark(text: str) -> None:
    print(f"flagstaff stale: {text}", file=sys.stderr)


_COLUMNS: Final = (
    Column("FLAG", lambda flag: flag.key),
    Column("OWNER", lambda flag: flag.life.owner or "-"),
    Column("TYPE", lambda flag: flag.life.type or "-"),
    Column("TICKET", lambda flag: flag.life.ticket or "-"),
    Column("FACTS", lambda flag: "; ".join(fact.words for fact in flag.facts)),
)


def as_table(stale: Sequence[StaleFlag]) -> str:
    """A line for each flag."""
    return table(_COLUMNS, stale, rows="flag has a fact")


def as_json(stale: Sequence[StaleFlag]) -> str:
    """A list of objects."""
    return document([_plain(flag) for flag in stale], "json")


def _plain(flag: StaleFlag) -> dict[str, Any]:
    use = flag.use
    fields: dict[str, Any] = {
        "owner": flag.life.owner or None,
        "type": flag.life.type or None,
        "ticket": flag.life.ticket or None,
        "permanent": flag.life.permanent or None,
        "created": use.created and timestamp(use.created),
        "changed": use.changed and timestamp(use.changed),
        "requests": use.requests,
        "references": use.references,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return {"key": flag.key, "facts": [fact._asdict() for fact in flag.facts], **known}


def as_markdown(stale: Sequence[StaleFlag]) -> str:
    """A table for an issue or a comment."""
    if not stale:
        return ""
    lines = ["| flag | owner | ticket | facts |", "| --- | --- | --- | --- |"]
    for flag in stale:
        facts = "; ".join(fact.words for fact in flag.facts)
        cells = (f"`{flag.key}`", flag.life.owner, flag.life.ticket, facts)
        lines.append(f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |")
    return "".join(f"{printable(line)}\n" for line in lines)


_FORMS: Final = {"table": as_table, "json": as_json, "markdown": as_markdown}
