"""The script `flagstaff`: one module a verb, each of which parses arguments, calls wiring and picks an exit code.

Verbs are imported when they are asked for, so that the evaluator's image needs none of the controller's libraries.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = {
    "up": "serve the flags of a Git repository, commit by commit",
    "lint": "check flag definitions",
    "eval": "answer one flag, with the reason why",
    "evaluator": "serve flags from files, HTTP, gRPC or object stores, in flagd's place",
    "controller": "run the controller of a cluster: sources, flag sets, artifact server, webhooks",
    "proxy": "serve a cluster's flag sets to evaluators, in flagd-proxy's place",
    "wait": "wait until evaluators serve a revision",
    "fleet": "show which evaluator serves what",
    "flags": "list what a running evaluator serves",
    "explain": "show how a running evaluator comes to an answer",
}
_ELSEWHERE: Final = {"evaluator": "evaluator.cli"}


def module_of(verb: str) -> str:
    """The module that declares and runs `verb`."""
    return _ELSEWHERE.get(verb, f"controller.cli.{verb}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 problems found, 2 wrong usage, 3 no source."""
    parser = argparse.ArgumentParser(
        prog="flagstaff", description="GitOps feature flags for OpenFeature."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    arguments = sys.argv[1:] if argv is None else list(argv)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary, description=summary.capitalize() + ".")
        if verb == asked:
            importlib.import_module(module_of(verb)).configure(sub)
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"flagstaff {version('flagstaff')}")
        return 0
    if options.verb is None:
        parser.print_help(sys.stderr)
        return 2
    code: int = options.run(options)
    return code
