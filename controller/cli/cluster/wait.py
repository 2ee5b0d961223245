"""`flagstaff wait`: until evaluators serve a revision, with rollout/NAME to everybody."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

from controller.cli.shared.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.shared.ending import OK, PROBLEM, USAGE, Exit
from controller.cli.shared.output import add_output_argument
from controller.cli.shared.printing import printable
from controller.delivery.waiting import SHORTEST, WaitState, WaitTarget, is_revision
from evaluator.flags.syntax.text import visible

if TYPE_CHECKING:
    import argparse

_KINDS: Final = {
    "ffc": "FeatureFlagConfiguration",
    "featureflagconfiguration": "FeatureFlagConfiguration",
    "featureflagconfigurations": "FeatureFlagConfiguration",
    "flagset": "FlagSet",
    "flagsets": "FlagSet",
    "rollout": "FlagRollout",
    "flagrollout": "FlagRollout",
    "flagrollouts": "FlagRollout",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("what", metavar="KIND/NAME", help="ffc/NAME, flagset/NAME or rollout/NAME")
    parser.add_argument(
        "--revision", required=True, metavar="REV",
        help=f"main@sha1:…, a commit, or at least the first {SHORTEST} characters of one",
    )  # fmt: skip
    parser.add_argument(
        "--percent", type=float, default=100.0, metavar="P",
        help="how many of the evaluators are enough (default 100)",
    )  # fmt: skip
    parser.add_argument(
        "--allow-none", action="store_true",
        help="succeed if no evaluator is subscribed (default: fail)",
    )  # fmt: skip
    add_output_argument(parser, "text", "json")
    add_cluster_arguments(parser, timeout=60)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: served; 1: not in time, or it cannot be; 2: wrong usage; 3: no cluster in time; 130: interrupted."""
    kind, _, name = options.what.partition("/")
    if kind.lower() not in _KINDS or not name:
        raise Exit(f"{options.what!r}: write ffc/NAME, flagset/NAME or rollout/NAME", USAGE)
    if not is_revision(options.revision):
        raise Exit(
            f"--revision {options.revision!r}: write main@sha1:…, a commit, or at least its first "
            f"{SHORTEST} characters, in lower case",
            USAGE,
        )
    if not 0 < options.percent <= 100:
        raise Exit("--percent must be more than 0 and at most 100", USAGE)
    # Imported here: it takes a second or two, in which Ctrl-C is no error either.
    from controller.cli.cluster.cluster_view import WaitSubject, wait_served

    wanted = WaitTarget(options.revision, options.percent, options.allow_none)
    subject = WaitSubject(_KINDS[kind.lower()], name, wanted)
    ended = run_on_cluster(lambda: wait_served(scope_of(options), subject, options.timeout, _say))
    if options.output == "json":
        result = {"served": ended.done, "message": ended.message, "waitsFor": list(ended.waits_for)}
        print(printable(json.dumps(result, indent=2, ensure_ascii=False)))
        return OK if ended.done else PROBLEM
    if ended.done:
        print(visible(f"{options.what}: {ended.message}"))
        return OK
    late = "" if ended.over else f"not served within {options.timeout:g} s: "
    print(visible(f"{options.what}: {late}{ended.message}"), file=sys.stderr)
    for laggard in ended.waits_for:
        print(visible(f"  {laggard}"), file=sys.stderr)
    return PROBLEM


def _say(state: WaitState) -> None:
    # The final state is printed as the result.
    if not (state.done or state.over):
        print(visible(state.message), file=sys.stderr, flush=True)
