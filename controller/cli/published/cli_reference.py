"""The reference of the command line, docs/reference/cli.md, written from the verbs' own declarations."""

from __future__ import annotations

import argparse
import importlib
from typing import TYPE_CHECKING, Final

from controller.cli import VERBS, module_of, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD: Final = """\
# Command line reference

Written by `make reference` from the program. [cli.md](../cli.md) is the guide.
"""


def reference() -> str:
    """The page in Markdown."""
    return "\n".join([_HEAD, *(line for verb in VERBS for line in _verb(verb))])


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb, as the script has it."""
    parser = argparse.ArgumentParser(prog=f"flagstaff {verb}", description=sentence(VERBS[verb]))
    importlib.import_module(module_of(verb)).configure(parser)
    return parser


def verbs_below(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield each verb that can be run, with its words and its parser."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, parser
    for action in below:
        for word, nested in action.choices.items():
            yield from verbs_below(nested, f"{name} {word}")


def _verb(verb: str) -> Iterator[str]:
    parser = parser_of(verb)
    yield f"## {parser.prog}\n"
    yield f"{parser.description}\n"
    yield from _parts(parser)


def _parts(parser: argparse.ArgumentParser) -> Iterator[str]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield f"    {_usage(parser)}\n"
        rows = [row for action in parser._actions if (row := _row(action))]
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])
    for action in below:
        for choice in action._choices_actions:
            nested = action.choices[choice.dest]
            yield f"### {nested.prog}\n"
            yield f"{sentence(choice.help or '')}\n"
            yield from _parts(nested)


def _usage(parser: argparse.ArgumentParser) -> str:
    """The words in their order. argparse's own usage differs between versions of Python."""
    positional = [action for action in parser._actions if not action.option_strings]
    repeated = {"*": "[{} ...]", "+": "{} [{} ...]", "?": "[{}]"}
    words = [
        repeated.get(str(action.nargs), "{}").replace("{}", str(action.metavar or action.dest))
        for action in positional
    ]
    return " ".join([parser.prog, *words, "[OPTIONS]"])


def _row(action: argparse.Action) -> str:
    if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
        return ""
    value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    alone = action.nargs == 0 or not action.option_strings
    names = action.option_strings or [str(value)]
    shown = ", ".join(f"`{name}`" if alone else f"`{name} {value}`" for name in names)
    text = (action.help or "").replace("%%", "%")
    return f"| {_escape_cell(shown)} | {_escape_cell(text)} |"


def _escape_cell(cell: str) -> str:
    """A cell whose bars part no cells."""
    return cell.replace("|", "\\|")
