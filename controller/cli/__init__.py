"""The script `flagstaff`: one module a verb, in folders by who runs it. Each parses arguments, calls
`app` or `local`, and picks an exit code.

Verbs are imported when they are asked for, so that the evaluator's image needs none of the controller's
libraries.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from controller.cli.shared.ending import INTERRUPTED, PROBLEM, USAGE, Exit
from controller.cli.shared.printing import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS: Final = {
    "up": "serve the flags of a Git repository or an artifact on this machine",
    "lint": "check flag definitions",
    "eval": "evaluate one flag of a folder or repository, and say why",
    "push": "push a folder of definitions to a container registry",
    "pull": "write the files of an artifact in a container registry",
    "sign": "sign a folder of definitions that is put into a bucket",
    "evaluator": "serve flags from files, HTTP, gRPC or object stores; takes flagd's options",
    "controller": "run the Kubernetes controller",
    "proxy": "serve a cluster's flag sets to evaluators; takes the place of flagd-proxy",
    "inject": "print manifests with the evaluators that their pods will get",
    "migrate": "move over from OpenFeature Operator: what becomes of each field, and the steps",
    "wait": "wait until all evaluators of a cluster serve a revision",
    "fleet": "show which revision each evaluator of a cluster serves",
    "events": "show what happened to the flags of a cluster, and what happens now",
    "test-alert": "have a FlagProvider of a cluster send a test message",
    "flags": "list what a running evaluator serves",
    "explain": "evaluate one flag on a running evaluator, and say why",
}
_FOLDERS: Final = {
    "authoring": ("lint", "eval", "push", "pull", "sign", "flags", "explain"),
    "cluster": ("inject", "migrate", "wait", "fleet", "events"),
    "serving": ("up", "controller", "proxy"),
}
_MODULES: Final = {
    "evaluator": "evaluator.cli",
    "test-alert": "controller.cli.cluster.alerting",
    **{verb: f"controller.cli.{folder}.{verb}" for folder, verbs in _FOLDERS.items() for verb in verbs},
}


def module_of(verb: str) -> str:
    """The module that declares and runs `verb`."""
    return _MODULES[verb]


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors do not print every option."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}\ntry: {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; 0: done, 1: problems, 2: wrong usage, 3: source or server not reachable, 130: stopped."""
    parser = _Parser(prog="flagstaff", description="GitOps feature flags for OpenFeature.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    arguments = sys.argv[1:] if argv is None else list(argv)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    # What modules make stays: collecting it while they load is a seventh of the start.
    gc.disable()
    for verb, summary in VERBS.items():
        sub = verbs.add_parser(verb, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if verb == asked:
            importlib.import_module(module_of(verb)).configure(sub)
    gc.enable()
    options = parser.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(f"flagstaff {version('flagstaff')}")
        return 0
    if options.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except Exit as ended:
        print(f"flagstaff {options.verb}: {printable(str(ended))}", file=sys.stderr)
        return ended.code
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
