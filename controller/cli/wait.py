"""`flagstaff wait`: until evaluators serve a revision, with `--for everybody` to every user."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from controller.cli import clusters
from controller.cli.output import add_output_argument
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, printable
from controller.cli.remote import remote
from controller.delivery.actions import Who, in_cluster
from controller.delivery.digests import SHORTEST, is_revision
from controller.delivery.reach import Reached, ReachTarget
from controller.delivery.set_state import Reach
from evaluator.flags.text import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from controller.cli.cluster_view import Waited, WaitSubject
    from controller.delivery.set_state import SetState

_KINDS: Final = ("FeatureFlagConfiguration", "FlagSet", "FlagRollout")
_POLL_SECONDS: Final = 0.5
"""Seconds between two questions to a `flagstaff up`."""


def configure_wait(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    clusters.add_objects_arguments(parser, "configuration, set or rollout")
    parser.add_argument(
        "--revision", required=True, metavar="REV",
        help=f"main@sha1:…, a commit, or at least the first {SHORTEST} characters of one",
    )  # fmt: skip
    parser.add_argument(
        "--for", dest="users", choices=["evaluators", "everybody"], default="evaluators",
        help="until evaluators serve it, with rollouts at their steps (default), or until every user gets "
        "all of its flags; rollout/NAME waits for everybody, of that rollout's flags",
    )  # fmt: skip
    parser.add_argument(
        "--percent", type=float, default=100.0, metavar="P",
        help="how many of the evaluators are enough (default 100)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-none", action="store_true",
        help="succeed if no evaluator is subscribed (default: fail)",
    )  # fmt: skip
    parser.add_argument(
        "--to", metavar="ADDRESS",
        help="ask the management port, host:port, of a `flagstaff up`, whose set is flagset/flags, and no "
        "cluster",
    )  # fmt: skip
    add_output_argument(parser, "text", "json")
    clusters.add_cluster_arguments(parser, timeout=60, several=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: served; 1: not in time, or it cannot be; 2: wrong usage; 3: no cluster in time; 130: interrupted."""
    word, name = clusters.named_object(options)
    if not is_revision(options.revision):
        raise Exit(
            f"--revision {options.revision!r}: write main@sha1:…, a commit, or at least its first "
            f"{SHORTEST} characters, in lower case",
            USAGE,
        )
    if not 0 < options.percent <= 100:
        raise Exit("--percent must be more than 0 and at most 100", USAGE)
    wanted = ReachTarget(
        options.revision, options.percent, options.allow_none, everybody=options.users == "everybody"
    )
    subject = subject_of(word, name, wanted)
    if options.to:
        ended = Ended([("", _wait_at(options.to, subject, options.timeout))], OK)
    else:
        ended = wait_in_clusters(options, subject)
    if options.output == "json":
        results = [_result(context, outcome) for context, outcome in ended.outcomes]
        # Of one cluster, the object itself.
        result = results if len(clusters.scopes_of(options)) > 1 else results[0]
        print(printable(json.dumps(result, indent=2, ensure_ascii=False)))
    codes = [ended.code]
    for context, outcome in ended.outcomes:
        code, lines = answer(outcome, subject.wanted, options.timeout)
        codes.append(code)
        if options.output == "text":
            stream = sys.stdout if code == OK else sys.stderr
            head = f"{context}: {word}/{name}: {lines[0]}" if context else f"{word}/{name}: {lines[0]}"
            print("\n".join(map(visible, (head, *lines[1:]))), file=stream)
    return max(codes)


def _result(context: str, outcome: Waited) -> dict[str, Any]:
    reached = outcome.reached
    return {
        **({"cluster": context} if context else {}),
        "served": reached.done,
        "reached": reached.level.name.lower().replace("_", "-"),
        "message": reached.message,
        "waitsFor": list(reached.laggards),
    }


@dataclass(frozen=True, slots=True)
class Ended:
    """How waits in one or several clusters ended."""

    outcomes: Sequence[tuple[str, Waited]]
    """By context; it is empty where there is one cluster."""
    code: int
    """The exit code of clusters that could not be read."""


def subject_of(word: str, name: str, wanted: ReachTarget) -> WaitSubject:
    """The object that `word` and `name` name; a rollout is waited for until every user gets its flags. Raises
    Exit for a kind that cannot be waited for.
    """
    from controller.cli.object_rows import type_named

    kind = type_named(word).kind
    if kind not in _KINDS:
        raise Exit(f"{word}/{name}: wait for a {', a '.join(_KINDS[:-1])} or a {_KINDS[-1]}", USAGE)
    # Imported here: it takes a second or two, in which Ctrl-C is no error either.
    from controller.cli.cluster_view import WaitSubject

    if kind == "FlagRollout":
        wanted = replace(wanted, everybody=True, rollout=name)
    return WaitSubject(kind, name, wanted)


def wait_in_clusters(options: argparse.Namespace, subject: WaitSubject) -> Ended:
    """How far the revision has come in each cluster of the options, once it is there or their `--timeout` is
    over. Raises Exit.
    """
    from controller.cli.cluster_view import wait_served

    scopes = clusters.scopes_of(options)

    async def wait(scope: clusters.ClusterScope) -> Waited:
        context = scope.context if len(scopes) > 1 else ""
        return await wait_served(scope, subject, options.timeout, partial(_say, context or ""))

    if len(scopes) == 1:
        return Ended([("", clusters.run_on_cluster(lambda: wait(scopes[0])))], OK)
    reader = clusters.SeveralClusters(scopes, wait)
    outcomes = clusters.run_on_cluster(reader.read_all)
    return Ended(outcomes, reader.code)


def _wait_at(address: str, subject: WaitSubject, seconds: float) -> Waited:
    """The same by what a `flagstaff up` says. Raises Exit where it is not there, or serves no such set."""
    from controller.cli.cluster_view import Waited

    process = remote(address, "process of `flagstaff up`")
    query = urlencode({"object": f"{subject.kind}/{subject.name}", **asdict(subject.wanted)})
    ends, said = time.monotonic() + seconds, None
    while True:
        reply = process.get(f"/reach?{query}")
        reached = Reached(
            Reach[reply["level"]], reply["message"], reply["done"], reply["blocked"], tuple(reply["laggards"])
        )
        if reached.done or reached.blocked or time.monotonic() >= ends:
            return Waited(reached)
        if reached != said:
            _say("", reached)
            said = reached
        time.sleep(_POLL_SECONDS)


def answer(ended: Waited, wanted: ReachTarget, seconds: float) -> tuple[int, list[str]]:
    """(the exit code, the lines to print) of a wait that ended, after so many seconds at most."""
    reached, state = ended.reached, ended.state
    if reached.done:
        partly = state is not None and state.withheld and not wanted.everybody
        more = "; --for everybody waits for all users" if partly else ""
        return OK, [f"{reached.message}{more}"]
    late = "" if reached.blocked else f"not served within {seconds:g} s: "
    rest = (f"  {line}" for line in (*reached.laggards, *_commands(state)))
    return PROBLEM, [f"{late}{reached.message}", *rest]


def _commands(state: SetState | None) -> list[str]:
    """What lets it go on, where it waits for a person."""
    waits = () if state is None else state.waits
    commands = (in_cluster(wait.actions[0]) for wait in waits if wait.who is Who.PERSON and wait.actions)
    return [f"to go on: {command}" for command in commands if command]


def _say(context: str, reached: Reached) -> None:
    # The final state is printed as the result.
    if not (reached.done or reached.blocked):
        text = f"{context}: {reached.message}" if context else reached.message
        print(visible(text), file=sys.stderr, flush=True)
