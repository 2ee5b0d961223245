"""The script `flagstaff`: a module for each verb or pair of verbs. Each parses arguments, calls
`app` or `local`, and picks an exit code.

Verbs are imported when they are asked for, so that the evaluator's image needs none of the controller's
libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import itertools
import os
import sys
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from controller.cli.printing import (
    INTERRUPTED,
    OK,
    PROBLEM,
    UNREACHABLE,
    USAGE,
    Exit,
    did_you_mean,
    printable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERB_GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Start": {
        "init": "write a repository to start from",
        "install": "apply or print the manifests of the usual installation",
        "check": "say whether a cluster and the installation in it are sound",
        "uninstall": "remove the processes and their rights, and keep all flags",
        "version": "print the version of this program, and of what a cluster runs",
        "completion": "print the script by which a shell completes verbs and options",
    },
    "Serve flags on this machine": {
        "up": "serve the flags of a Git repository or an artifact on this machine",
        "evaluator": "serve flags from files, HTTP, gRPC or object stores; takes flagd's options",
    },
    "Check, try, compare and publish definitions": {
        "lint": "check flag definitions",
        "test": "run the tests of flags that stand beside definitions",
        "eval": "evaluate one flag of a folder or repository, and say why",
        "manifest": "print the manifest of OpenFeature's CLI, which generates code of flags",
        "diff": "say which flags a change adds, changes and removes, against a commit or a cluster",
        "plan": "say what a change does to users: who gets another value, and how many",
        "add": "write a new flag into a file of definitions",
        "set": "change a flag or a shared list in its file, and say what that does",
        "rename": "give a flag another key, in its files, in rules that need it and in its tests",
        "archive": "take a flag out of its files, and keep its key from being used again",
        "fmt": "give files of definitions, tests and policies their canonical layout",
        "refs": "find where code refers to flags, and flags that no code or no definition has",
        "stale": "list old, constant, unused and expired flags, so that somebody decides which may go",
        "lsp": "help an editor with definitions: problems, completion, and who gets what of a flag",
        "schema": "print the JSON Schema of definitions, layers, kinds, or of what a verb prints",
        "push": "push a folder of definitions to a container registry",
        "promote": "move a tag of a registry to an artifact that was tested, by its digest",
    },
    "Ask an evaluator": {
        "flags": "list what a running evaluator serves",
        "explain": "evaluate one flag on a running evaluator, and say why",
    },
    "See a cluster": {
        "get": "list the sources, flag sets and flags of a cluster, and how they are",
        "describe": "show one object in words: conditions, problems, history, evaluators and Events",
        "tree": "show sources, their flag sets, and who does not serve these yet",
        "trace": "follow a flag of a cluster back to file, line, commit, author and pull request",
        "stats": "count the objects of each kind, and how they are",
        "history": "list the revisions that a flag set applied",
        "events": "show what happened to the flags of a cluster, and what happens now",
        "logs": "show what the controller, the proxy and admission log",
        "fleet": "show which revision each evaluator of a cluster serves",
        "page": "show the flags of a cluster, their delivery and what waits for a person, on a web page",
    },
    "Act on a cluster": {
        "create": "make a source or a flag set, or print its manifest",
        "delete": "delete objects, and say what follows",
        "reconcile": "fetch a source or rebuild a flag set now, and show each stage until it is served",
        "suspend": "keep the controller from acting on objects",
        "resume": "let the controller act on suspended objects again",
        "override": "set a flag by hand for a while, over what Git says",
        "rollout": "show and steer the rollout of a change, and plan one",
        "wait": "wait until all evaluators of a cluster serve a revision",
        "export": "print objects of a cluster as manifests",
        "test-alert": "have a FlagProvider of a cluster send a test message",
    },
    "Move over from elsewhere": {
        "import": "import flags of LaunchDarkly, Unleash, Flipt and others, exactly or not at all",
        "inject": "print manifests with the evaluators that their pods will get",
        "migrate": "move over from OpenFeature Operator: what becomes of each field, and the steps",
    },
    "Run the parts of an installation": {
        "controller": "run the Kubernetes controller",
        "admission": "inject evaluators into pods, and refuse bad flags, as the API server asks",
        "proxy": "serve a cluster's flag sets to evaluators; takes the place of flagd-proxy",
    },
}
"""Verbs with their summaries, in the groups of `--help` and docs/cli.md."""
VERBS: Final = {verb: summary for group in VERB_GROUPS.values() for verb, summary in group.items()}
_MODULES: Final = {
    "archive": "controller.cli.archive_flag",
    "evaluator": "evaluator.cli",
    "resume": "controller.cli.suspend",
    "manifest": "controller.cli.eval",
    "explain": "controller.cli.flags",
    "uninstall": "controller.cli.install",
    "test-alert": "controller.cli.alerting",
    "export": "controller.cli.export_manifests",
    "import": "controller.cli.import_flags",
    **dict.fromkeys(("controller", "admission", "proxy", "page"), "controller.cli.processes"),
}
"""Where a verb is found that has no module of its name."""

_SCRIPT: Final = "flagstaff"


def module_of(verb: str) -> str:
    """The module that declares and runs `verb`."""
    return _MODULES.get(verb, f"controller.cli.{verb}")


def configure(verb: str, parser: argparse.ArgumentParser) -> None:
    """Import the module of `verb`, and have it add its arguments."""
    getattr(importlib.import_module(module_of(verb)), f"configure_{verb.replace('-', '_')}")(parser)


def sentence(summary: str) -> str:
    """A verb's summary as a sentence."""
    return f"{summary[:1].upper()}{summary[1:]}."


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors do not print every option, and suggest what may have been meant."""

    words: ClassVar[Sequence[str]] = ()
    """All arguments of the script."""

    def format_help(self) -> str:
        """Return the help; that of the script lists the verbs by groups."""
        if self.prog != _SCRIPT:
            return super().format_help()
        lines = [f"usage: {_SCRIPT} VERB ...", "", str(self.description)]
        for title, verbs in VERB_GROUPS.items():
            lines += ["", f"{title}:", *(f"  {verb:<12} {summary}" for verb, summary in verbs.items())]
        return "\n".join([*lines, "", f"{_SCRIPT} VERB --help lists the options of a verb.", ""])

    def error(self, message: str) -> NoReturn:
        """Exit with 2. A misspelt option is named first: its value may be the word that is missing."""
        own = itertools.takewhile(lambda word: word != "--", self.words)
        options = [word.partition("=")[0] for word in own if word.startswith("--")]
        known = self._options()
        misspelt = [word for word in options if not any(option.startswith(word) for option in known)]
        if misspelt:
            self.refuse(misspelt)
        self._end(message)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Exit with 2 for words that are neither options nor arguments of this verb."""
        options = self._options()
        hints = (did_you_mean(word.partition("=")[0], options) for word in words if word.startswith("-"))
        self._end(f"unrecognized arguments: {' '.join(words)}{next(filter(None, hints), '')}")

    def _options(self) -> list[str]:
        return [text for parser in (self, *_parsers_below(self)) for text in parser._option_string_actions]

    def _end(self, message: str) -> NoReturn:
        said = printable(message.removeprefix("argument ").replace("\n", " "))
        # Of `diff` and `plan`, 2 says that flags differ.
        code = PROBLEM if "--detailed-exitcode" in self.words else USAGE
        self.exit(code, f"{self.prog}: {said}\ntry: {self.prog} --help\n")


def _parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        for nested in action.choices.values() if isinstance(action.choices, dict) else ():
            if isinstance(nested, argparse.ArgumentParser):
                yield nested
                yield from _parsers_below(nested)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the arguments of every verb whose packages are installed. Imports all of these."""
    parser, verbs = _parsers()
    for name, verb in verbs.items():
        with contextlib.suppress(ModuleNotFoundError):
            configure(name, verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; 0: done, 1: problems, 2: wrong usage, 3: source or server not reachable, 130: stopped."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader has closed the pipe, as `head` does; Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except Exit as ended:
        print(f"flagstaff {_verb(arguments)}: {printable(str(ended))}", file=sys.stderr)
        return ended.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        from evaluator.host.build_version import missing_package

        print(f"flagstaff {_verb(arguments)}: {missing_package(error)}", file=sys.stderr)
        return UNREACHABLE


def _run(arguments: Sequence[str]) -> int:
    parser, verbs = _parsers()
    _Parser.words = arguments
    verb = _verb(arguments)
    if verb and verb not in VERBS:
        parser.error(f"there is no verb {verb!r}{did_you_mean(verb, VERBS)}")
    # What modules make stays: collecting it while they load is a seventh of the start.
    gc.disable()
    if verb:
        configure(verb, verbs[verb])
    gc.enable()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        (verbs[verb] if verb else parser).refuse(unknown)
    if options.version:
        from evaluator.host.build_version import describe_build

        print(describe_build())
        return OK
    if options.verb is None:
        parser.print_help(sys.stderr)
        return USAGE
    code: int = options.run(options)
    sys.stdout.flush()
    return code


def _parsers() -> tuple[_Parser, Mapping[str, _Parser]]:
    """The parser, and those of its verbs, which have no arguments yet."""
    parser = _Parser(prog=_SCRIPT, description="GitOps feature flags for OpenFeature.")
    parser.add_argument("--version", action="store_true", help="print version, commit and date, and exit")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    return parser, {
        name: verbs.add_parser(name, help=summary, description=sentence(summary))
        for name, summary in VERBS.items()
    }


def _verb(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")
