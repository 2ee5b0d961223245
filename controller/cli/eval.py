"""`flagstaff eval`: one answer from a repository, without serving it, and why. `flagstaff manifest`: its
flags for OpenFeature's CLI, which generates code of them.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from controller.cli.arguments import add_build_arguments
from controller.cli.context import add_context_arguments, read_context
from controller.cli.definitions import SOURCE_HELP, read_definitions
from controller.cli.printing import OK, PROBLEM, add_steps_argument, did_you_mean, format_answer
from controller.cli.problems import failures
from controller.runtime.clock import now
from evaluator.flags.openfeature_manifest import LeftOut, ManifestFlag, as_file, manifest_flag
from evaluator.resolving.explain import answer, explain
from evaluator.resolving.resolution import ErrorCode
from evaluator.resolving.resolve import compile_flag_set, resolve

if TYPE_CHECKING:
    import argparse


def configure_eval(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(parser, **SOURCE_HELP)
    parser.add_argument("key", metavar="KEY", help="the flag's key")
    add_context_arguments(parser)
    parser.add_argument("--explain", action="store_true", help="also print how the answer came about")
    add_steps_argument(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one answer as JSON; exit with 0, 1 if it is an error, 2 for wrong usage, 3 without a source."""
    context = read_context(arguments)
    options, composition = read_definitions(arguments)
    flags = compile_flag_set(composition.flag_set, bucketing=options.bucketing)
    moment = int(now().timestamp())
    if arguments.explain:
        explanation = explain(flags, arguments.key, None, context, moment)
        resolution = explanation.resolution
        steps = [str(step) for step in explanation.steps]
        print(format_answer(answer(arguments.key, resolution), steps, as_json=arguments.output == "json"))
    else:
        resolution = resolve(flags, arguments.key, None, context, moment)
        print(format_answer(answer(arguments.key, resolution)))
    if resolution.error_code == ErrorCode.FLAG_NOT_FOUND:
        if arguments.key in composition.missing:
            words = f"the flag {arguments.key!r} is not served; correct what is said of it above"
        else:
            hint = did_you_mean(arguments.key, composition.flag_set.flags)
            words = f"there is no flag {arguments.key!r}{hint}"
        print(f"flagstaff eval: {words}", file=sys.stderr)
    return PROBLEM if resolution.error_code else OK


def configure_manifest(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_build_arguments(parser, **SOURCE_HELP)
    parser.set_defaults(run=run_manifest)


def run_manifest(arguments: argparse.Namespace) -> int:
    """Print the manifest as JSON; exit with 0, 1 where a definition is bad, 3 without a source."""
    options, composition = read_definitions(arguments)
    entries = [manifest_flag(flag) for flag in composition.flag_set.flags.values()]
    manifest = as_file(entry for entry in entries if isinstance(entry, ManifestFlag))
    print(json.dumps(manifest, ensure_ascii=False, indent=2))
    for entry in entries:
        if isinstance(entry, LeftOut):
            print(f"flagstaff manifest: left out {entry.key}: {entry.reason}", file=sys.stderr)
    return PROBLEM if failures(composition.problems, lenient=options.lenient) else OK
