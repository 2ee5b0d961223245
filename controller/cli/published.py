"""`python -m controller.cli.published` writes the files that are made from the program.

Among them is the reference of conditions and reasons, docs/reference/conditions.md, read from the modules
that set them.

These are parsed and not imported: a reason stands where its fact is known, as an argument of a setback or an
Event, and nowhere else.
"""

from __future__ import annotations

import argparse
import ast
import re
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api.kinds import KINDS
from controller.cli import VERBS, configure, sentence
from controller.cli.json_schemas import json_schemas
from controller.cli.output import document
from controller.cli.shared_resources import with_table, written_between
from controller.delivery.object_bounds import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.kind import Kind


BEGIN: Final = "<!-- bounds of objects, written by `make crds` -->"
END: Final = "<!-- end of the bounds of objects -->"


def with_bounds(page: str) -> str:
    """Return a page with the bounds. Raises ValueError where it has no place for them."""
    head = "| objects | of each | at most | reason beyond |\n|---|---|---|---|\n"
    rows = (
        f"| {', '.join(bound.kinds)} | {bound.group} | {bound.most} | "
        f"{f'`{bound.reason}`' if bound.reason else 'none'} |\n"
        for bound in BOUNDS
    )
    return written_between(page, BEGIN, END, head + "".join(rows))


_CLI_HEAD: Final = """\
# Command line reference

Written by `make reference` from the program. [cli.md](../cli.md) is the guide.
"""


def reference() -> str:
    """The page in Markdown."""
    return "\n".join([_CLI_HEAD, *(line for verb in VERBS for line in _verb(verb))])


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of a verb, as the script has it."""
    parser = argparse.ArgumentParser(prog=f"flagstaff {verb}", description=sentence(VERBS[verb]))
    configure(verb, parser)
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


CONTROLLER: Final = Path(__file__).parents[1]
_CONDITIONS: Final = "api/status.py"
_ALL: Final = "Every kind"
_OTHERS: Final = {
    "Workloads with flags": "pods/carried_flags pods/marked_workloads pods/set_writer",
    "Pods": "pods/certificates pods/changes pods/evaluator_container pods/judging pods/known_objects "
    "pods/pod_injection pods/refusals pods/webhooks",
    _ALL: "api runtime kube",
}
"""The packages and modules that work for what is no kind of ours."""
_NEXT: Final = {
    "Stalled": "waits for a change", "InvalidTextError": "waits for a change",
    "Waiting": "waits for what is missing", "Passing": "waits for what is missing", "Failed": "retries",
    "Unverified": "retries", "Occurrence": "Event", "_occurrence": "Event", "Condition": "condition",
    "Gate": "is held", "Incompatibility": "is held", "RollbackCause": "rolls back",
}  # fmt: skip
"""What the controller does next, by the call that names the reason."""
_PLACES: Final = {"Condition": 2, "InvalidTextError": 1, "Gate": 1, "_occurrence": 1}
"""Where the reason stands among the arguments, unless it is the first."""
_REASON: Final = re.compile(r"[A-Z][a-z]+(?:[A-Z]+[a-z]*)*|[A-Z]{2,}[a-z]\w+")
_REASONS_HEAD: Final = """\
# Conditions and reasons

Written by `make reference` from the code. The pages of the [kinds](../README.md#reference) say
more.

## Conditions

`Ready` sums up an object's state; `Reconciling` and `Stalled` are there only while they are True.

| condition | |
|---|---|
"""
_REASONS: Final = """
## Reasons

A reason stands in conditions and Events. After a failure, the controller `retries`, `waits for what
is missing`, or `waits for a change` of yours (`Stalled`). A rollout `is held` at its step, or
`rolls back`. In messages, `…` stands for names and values.
"""


class Reason(NamedTuple):
    """A reason as one call names it."""

    kind: str
    name: str
    next: str
    message: str


def reason_reference(kinds: Iterable[Kind] = KINDS, folder: Path = CONTROLLER) -> str:
    """The page in Markdown, about `kinds` whose modules are in `folder`."""
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in condition_types())
    named: dict[str, dict[str, list[Reason]]] = {}
    for reason in sorted(reasons(kinds, folder), key=lambda one: (one.kind == _ALL, one)):
        named.setdefault(reason.kind, {}).setdefault(reason.name, []).append(reason)
    return _REASONS_HEAD + rows + _REASONS + "".join(_table(kind, calls) for kind, calls in named.items())


def _table(kind: str, named: Mapping[str, list[Reason]]) -> str:
    lines = [f"\n### {kind}\n", "| reason | where, and what comes next | such as |", "|---|---|---|"]
    for name, calls in named.items():
        where = ", ".join(dict.fromkeys(call.next for call in calls))
        lines.append(f"| `{name}` | {where} | {max((call.message for call in calls), key=len)} |")
    return "\n".join(lines) + "\n"


def condition_types() -> Iterator[tuple[str, str]]:
    """Each type of condition, with the docstring of its constant, in the order of the module."""
    body = ast.parse((CONTROLLER / _CONDITIONS).read_text(encoding="utf-8")).body
    for constant, text in pairwise(body):
        match constant, text:
            case (
                ast.AnnAssign(value=ast.Constant(value=str(name))),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                yield name, " ".join(meaning.split())


def reasons(kinds: Iterable[Kind] = KINDS, folder: Path = CONTROLLER) -> Iterator[Reason]:
    """Each call that names a reason, of every module in `folder` that works for a kind."""
    worked_on: dict[str, list[str]] = {}
    for record in kinds:
        for place in record.modules.split():
            worked_on.setdefault(place, []).append(record.kind)
    of_place = {place: ", ".join(names) for place, names in worked_on.items()}
    of_place |= {place: what for what, places in _OTHERS.items() for place in places.split()}
    trees = {
        path.relative_to(folder): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }
    constants = {path: _constants(tree) for path, tree in trees.items()}
    for path, tree in trees.items():
        kind = of_place.get(path.with_suffix("").as_posix()) or of_place.get(path.parts[0])
        known = dict(constants[path])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("controller."):
                origin = Path(*node.module.split(".")[1:]).with_suffix(".py")
                given = constants.get(origin, {})
                known |= {one.asname or one.name: given[one.name] for one in node.names if one.name in given}
        if kind:
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _in_function(function, known, kind)


def _in_function(
    function: ast.FunctionDef | ast.AsyncFunctionDef, known: Mapping[str, ast.expr], kind: str
) -> Iterator[Reason]:
    """Messages are written beside the call, or into a variable before it."""
    texts: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                texts.setdefault(name, []).append((node.lineno, value))
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            before = {
                name: written[-1]
                for name, lines in texts.items()
                if (
                    written := [text for line, text in sorted(lines, key=itemgetter(0)) if line < node.lineno]
                )
            }
            yield from _reasons_in_call(node, known, before, kind)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What the module's constants are, and what each of its functions may return."""
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                constants[name] = value
            case ast.FunctionDef(name=name):
                returns = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
                constants[name] = ast.BoolOp(ast.Or(), [value for value in returns if value is not None])
    return constants


def _values(node: ast.expr | None, known: Mapping[str, ast.expr]) -> Iterator[str]:
    """Each text that an expression may be, as far as the variables that it names are known."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            # Each variable once: it may be set from itself.
            rest = {other: value for other, value in known.items() if other != name}
            yield from _values(known.get(name), rest)
        case ast.IfExp(body=first, orelse=second):
            yield from (*_values(first, known), *_values(second, known))
        case ast.BoolOp(values=parts) | ast.Dict(values=parts):
            for part in parts:
                yield from _values(part, known)
        case ast.Subscript(value=inner) | ast.Call(func=ast.Attribute(value=inner, attr="get")):
            mapping = known.get(inner.id) if isinstance(inner, ast.Name) else inner
            if isinstance(mapping, ast.Dict):
                yield from _values(mapping, known)


def _reasons_in_call(
    call: ast.Call, constants: Mapping[str, ast.expr], before: Mapping[str, ast.expr], kind: str
) -> Iterator[Reason]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    place = _PLACES.get(name, 0)
    if name not in _NEXT or len(call.args) < 2 or len(call.args) <= place:
        return
    said = call.args[0 if name == "InvalidTextError" else place + 1 :]
    text = said[0] if said else None
    message = _text(before.get(text.id) if isinstance(text, ast.Name) else text)
    for value in _values(call.args[place], {**constants, **before}):
        if _REASON.fullmatch(value):
            yield Reason(kind, value, _NEXT[name], message)


def _text(node: ast.expr | None) -> str:
    """A message with `…` for what is filled in; empty for one that is made elsewhere."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    else:
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    text = re.sub(r"[\s…]*…[\s…]*…", "…", " ".join(text.split())) if set(text) - set("…: ;,") else ""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


ROOT: Final = Path(__file__).parents[2]
PROMISES: Final = "docs/reference/security-promises.md"


def published_files() -> Mapping[str, str]:
    """The content of each file by its path from the root of the repository."""
    schemas = {f"schemas/{name}.json": document(schema, "json") for name, schema in json_schemas().items()}
    pages = {"docs/reference/cli.md": reference(), "docs/reference/conditions.md": reason_reference()}
    promises = with_bounds(with_table((ROOT / PROMISES).read_text(encoding="utf-8")))
    return {**pages, PROMISES: promises, **schemas}


def main() -> None:
    """Write each file anew."""
    for name, content in published_files().items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
