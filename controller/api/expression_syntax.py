"""The text of an expression to its tree: what it may hold, and which names it may use. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import lark
from celpy.celparser import CELParseError, CELParser

from controller.api.parsing import InvalidTextError

LONGEST: Final = 1_024
"""Characters of an expression."""
_DEEPEST: Final = 150
"""Levels of the tree that an expression is read into: about 14 parentheses in each other."""
_SHOWN: Final = 200
_MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
_METHODS: Final = frozenset({"contains", "endsWith", "isSorted", "matches", "size", "startsWith"})
_FUNCTIONS: Final = frozenset({"double", "has", "int", "matches", "size", "string", "timestamp"})
_PLAIN: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "member"}
)
"""Nodes that mean what is below them where that is one."""
_QUOTES: Final = ('"""', "'''", '"', "'")
_REFUSED: Final = frozenset({"member_object", "dot_ident", "dot_ident_arg"})


class ExpressionError(Exception):
    """An expression cannot be used, or not with these values. The text says where, as `line:column: why`."""


@lru_cache(maxsize=1_024)
def parse(text: str, variables: frozenset[str]) -> lark.Tree[lark.Token]:
    """Return the tree of an expression that may use `variables`. Raises ExpressionError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"1:{LONGEST + 1}: it has more than {LONGEST} characters")
    _check_texts(text)
    try:
        tree: lark.Tree[lark.Token] = CELParser().parse(text)
    except CELParseError as error:
        # Where it ends too early there is no column.
        ended = error.column is None or error.column < 0
        place = f"{len(text.splitlines()) or 1}:{len(text.splitlines()[-1]) + 1 if text.strip() else 1}"
        why = "it ends too early" if ended else "this is not understood"
        raise ExpressionError(f"{place if ended else f'{error.line}:{error.column}'}: {why}") from None
    _check(tree, variables, 0)
    return _shorten(tree)


def require(text: str, variables: frozenset[str]) -> None:
    """Raise InvalidTextError for what is no expression over `variables`."""
    try:
        parse(text, variables)
    except ExpressionError as error:
        raise InvalidTextError(str(error)) from None


def _check_texts(text: str) -> None:
    """Raise ExpressionError for a text within quotes that does not end: where it has backslashes, the
    parser's patterns take for ever to find that out.
    """
    place = 0
    while place < len(text):
        if text.startswith("//", place):
            place = (text.find("\n", place) + 1) or len(text)
            continue
        quote = next((mark for mark in _QUOTES if text.startswith(mark, place)), "")
        end = place + max(1, len(quote))
        while quote and not text.startswith(quote, end):
            step = 2 if text.startswith("\\", end) else 1
            if end + step > len(text) or (len(quote) == 1 and "\n" in text[end : end + step]):
                line = text.count("\n", 0, place) + 1
                column = place - text.rfind("\n", 0, place)
                raise ExpressionError(f"{line}:{column}: the text that begins here does not end")
            end += step
        place = end + len(quote) if quote else end


def _check(tree: lark.Tree[lark.Token], names: frozenset[str], depth: int) -> None:
    """Raise ExpressionError for an unknown name, and for what is not supported."""
    if depth > _DEEPEST:
        raise _at(tree, "it is nested too deeply")
    if tree.data in _REFUSED:
        raise _at(tree, "messages and names that begin with a dot are not known")
    children = list(tree.children)
    if tree.data == "ident" and str(children[0]) not in names:
        raise _at(tree, f'"{children[0]}" is not known; there is {_comma_list(names)}')
    if tree.data == "ident_arg" and str(children[0]) not in _FUNCTIONS:
        raise _at(tree, f'there is no function "{children[0]}"; there is {_comma_list(_FUNCTIONS)}')
    if tree.data == "ident_arg" and str(children[0]) == "has" and not _is_selection(children[1:]):
        raise _at(tree, "has() takes a field, such as has(a.b)")
    if tree.data == "member_dot_arg":
        method = str(children[1])
        if method in _MACROS:
            name, body = _macro(tree)
            _check_children([children[0]], names, depth)
            return _check(body, names | {name}, depth + 1)
        if method not in _METHODS:
            raise _at(tree, f'there is no method "{method}"; there is {_comma_list(_METHODS | _MACROS)}')
    return _check_children(children, names, depth)


def _check_children(children: list[Any], names: frozenset[str], depth: int) -> None:
    for child in children:
        if isinstance(child, lark.Tree):
            _check(child, names, depth + 1)


def _shorten(tree: lark.Tree[lark.Token]) -> lark.Tree[lark.Token]:
    """Remove the nodes of operators that are not used: most of the tree, and of the time to walk it."""
    children = [_shorten(child) if isinstance(child, lark.Tree) else child for child in tree.children]
    if len(children) == 1 and isinstance(children[0], lark.Tree) and tree.data in _PLAIN:
        return children[0]
    return lark.Tree(tree.data, children, tree.meta)


def _macro(tree: lark.Tree[lark.Token]) -> tuple[str, lark.Tree[lark.Token]]:
    """The variable and the expression of a macro. Raises ExpressionError."""
    arguments = [
        part for child in tree.children[2:] if isinstance(child, lark.Tree) for part in child.children
    ]
    if len(arguments) == 2 and isinstance(arguments[1], lark.Tree):
        name = _only(arguments[0])
        if name.data == "ident":
            return str(name.children[0]), arguments[1]
    raise _at(tree, f"{tree.children[1]}() takes a name and an expression")


def _is_selection(arguments: list[Any]) -> bool:
    """Whether these are the arguments of a `has`."""
    children = arguments[0].children if arguments else []
    return len(children) == 1 and _only(children[0]).data == "member_dot"


def _only(tree: Any) -> lark.Tree[lark.Token]:
    """Descend through nodes that have only one child."""
    while isinstance(tree, lark.Tree) and len(tree.children) == 1 and isinstance(tree.children[0], lark.Tree):
        tree = tree.children[0]
    assert isinstance(tree, lark.Tree)  # noqa: S101 - for the type: the grammar has it so
    return tree


def _at(tree: lark.Tree[lark.Token], why: str) -> ExpressionError:
    return ExpressionError(f"{tree.meta.line}:{tree.meta.column}: {one_line_of(why)}")


def _comma_list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def one_line_of(what: object) -> str:
    """Return a text of users, or of an error, as one line."""
    return (
        "".join(character if character.isprintable() else " " for character in str(what)[:_SHOWN])
        or type(what).__name__
    )
