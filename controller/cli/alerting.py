"""`flagstaff test-alert`: has a FlagProvider send a test message, and prints the result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from controller.cli.clusters import add_cluster_arguments, run_on_cluster, scope_of
from controller.cli.printing import OK, PROBLEM, USAGE, Exit, printable

if TYPE_CHECKING:
    import argparse


_KINDS: Final = frozenset({"provider", "flagprovider", "flagproviders", "fprov"})


def configure_test_alert(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("what", metavar="provider/NAME", help="the FlagProvider")
    add_cluster_arguments(parser, timeout=30)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: delivered; 1: not in time, or it cannot be; 2: wrong usage; 3: no cluster; 130: interrupted."""
    kind, _, name = options.what.partition("/")
    if kind.lower() not in _KINDS or not name:
        raise Exit(f"{options.what!r}: write provider/NAME", USAGE)
    # Imported here: it takes a second or two.
    from controller.cli.sample_message import send_test

    outcome = run_on_cluster(
        lambda: send_test(scope_of(options), name, options.timeout),
        verb="asked",
        doing="waiting for the delivery",
    )
    late = "" if outcome.over else f"not delivered within {options.timeout:g} s: "
    text = printable(f"{options.what}: {late}{outcome.message}")
    print(text, file=sys.stdout if outcome.delivered else sys.stderr)
    return OK if outcome.delivered else PROBLEM
