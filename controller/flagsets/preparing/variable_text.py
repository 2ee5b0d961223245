"""Text with variables, read in Flux's grammar, and what an expression makes of a variable's value. Pure.

    text:       what is neither below; `$$` is `$`
    expression: ${NAME}  ${#NAME}  ${NAME OPERATOR [ARGUMENT]}
    operators:  :=d :-d =d -d   ^ ^^ , ,,   :n :n:m   #p ##p %p %%p   /a/b //a/b /#a/b /%a/b

d, n, m, p, a and b may hold expressions. p is a glob (`*`, `?`, `[a-z]`, `[^a]`); a and b are text, in which
`\\/` is a slash and `\\\\` a backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import re2

from controller.api.parsing import InvalidTextError
from controller.api.parsing.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME: Final = r"[_A-Za-z][_A-Za-z0-9]*"
_START: Final = re.compile(rf"(#?)({NAME})", re.ASCII)
_OPERATOR: Final = re.compile(r":=|:-|=|-|\^\^|\^|,,|,|##|#|%%|%|//|/#|/%|/|:(?![?+])")
_MARK: Final = re.compile(r"\$\$|\$\{")
_DEFAULTS: Final = frozenset({":=", ":-", "=", "-"})
PLAIN: Final = _DEFAULTS | {""}
"""Operators that leave a value as it is."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DEPTH: Final = 10
"""Expressions within expressions."""
_PATTERN: Final = 256
_STAR: Final = "*"
_NOTHING: Final = r"[^\x00-\x{10FFFF}]"


class BrokenError(ValueError):
    """The text is no expression, or an argument is not valid; the message contains no value."""


class TooLongError(ValueError):
    """The result would be longer than it may be."""


@dataclass(frozen=True, slots=True)
class VariableExpression:
    """`${…}`."""

    name: str
    operator: str = ""
    """Empty for the value as it is, `length` for `${#NAME}`."""
    arguments: tuple[Template, ...] = ()
    text: str = ""

    def default(self, value: str | None) -> Template | None:
        """The text for a missing value, or, with a colon, for an empty one; None: there is no default."""
        if self.operator not in _DEFAULTS:
            return None
        lacks = value is None or (self.operator.startswith(":") and not value)
        return self.arguments[0] if lacks else None


Template: TypeAlias = "tuple[str | VariableExpression, ...]"


def has_marks(text: str) -> bool:
    """Return whether substitution could change `text`."""
    return _MARK.search(text) is not None


def read_template(text: str) -> Template:
    """Raises BrokenError, which quotes the expression."""
    parts: list[str | VariableExpression] = []
    end = 0
    while mark := _MARK.search(text, end):
        parts.append(text[end : mark.start()])
        if mark[0] == "$$":
            parts.append("$")
            end = mark.end()
        else:
            reader = _Reader(text, mark.end())
            parts.append(reader.expression(mark.start()))
            end = reader.at
    return tuple(part for part in (*parts, text[end:]) if part != "")


class _Reader:
    """Reads one expression, whose `${` was read, and those in it."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._first = at - 2
        self._depth = 0
        self.at = at

    def expression(self, start: int) -> VariableExpression:
        self._depth += 1
        match = _START.match(self._text, self.at)
        if match is None or self._depth > _DEPTH:
            raise self._broken_error()
        self.at = match.end()
        operator = "length" if match[1] else ""
        arguments: tuple[Template, ...] = ()
        if not match[1] and (operator_match := _OPERATOR.match(self._text, self.at)):
            operator, self.at = operator_match[0], operator_match.end()
            arguments = self._arguments(operator)
        self._expect("}")
        self._depth -= 1
        return VariableExpression(match[2], operator, arguments, self._text[start : self.at])

    def _arguments(self, operator: str) -> tuple[Template, ...]:
        if operator[0] in "^,":
            return ()
        if operator[0] == "/":
            pattern = self._argument("/}", escapes=True)
            self._expect("/")
            return pattern, self._argument("}", escapes=True)
        if operator != ":":
            return (self._argument("}"),)
        offset = self._argument(":}")
        if self._text[self.at : self.at + 1] != ":":
            return (offset,)
        self.at += 1
        return offset, self._argument("}")

    def _argument(self, ends: str, *, escapes: bool = False) -> Template:
        """Up to one of `ends`, which is not read."""
        parts: list[str | VariableExpression] = []
        text = self._text
        while (char := text[self.at : self.at + 1]) not in ends:
            pair = text[self.at : self.at + 2]
            self.at += 1
            if pair == "${":
                self.at += 1
                parts.append(self.expression(self.at - 2))
            elif escapes and pair in {"\\/", "\\\\", "$$"}:
                self.at += 1
                parts.append(pair[1])
            elif char == "{":
                # In Flux the next } ends the expression, which is never meant.
                raise self._broken_error()
            else:
                parts.append(char)
        return tuple(parts)

    def _expect(self, char: str) -> None:
        if self._text[self.at : self.at + 1] != char:
            raise self._broken_error()
        self.at += 1

    def _broken_error(self) -> BrokenError:
        end = self._text.find("}", self.at)
        return BrokenError(self._text[self._first : end + 1 if end >= 0 else None])


def transform(value: str, operator: str, arguments: Sequence[str], most: int) -> str:
    """Apply an operator to a value. Raises BrokenError; TooLongError for more than `most` characters."""
    if operator == "length":
        return str(len(value))
    if operator[0] in "^,":
        turn = _upper if operator[0] == "^" else _lower
        return turn(value) if len(operator) > 1 else turn(value[:1]) + value[1:]
    if operator == ":":
        return _part(value, *map(_integer, arguments))
    if operator[0] in "#%":
        return _strip(value, arguments[0], operator)
    return _replace(value, operator, (arguments[0], arguments[1]), most)


def work_of(pattern: str, value: str) -> int:
    """What a search for a glob takes, as characters that take about as long to be written."""
    return len(pattern) * (64 + len(value) // 16)


def _upper(text: str) -> str:
    """Letter by letter: none becomes two."""
    return text.upper() if text.isascii() else _letters(text, str.upper)


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else _letters(text, str.lower)


def _letters(text: str, turn: Callable[[str], str]) -> str:
    return "".join(turned if len(turned := turn(char)) == 1 else char for char in text)


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BrokenError("an offset and a length are whole numbers")
    return int(text)


def _part(value: str, offset: int, length: int | None = None) -> str:
    """Count as Go and bash do: a negative offset or length counts from the end."""
    start = offset if offset >= 0 else max(0, len(value) + offset)
    if length is None:
        return value[start:]
    return value[start : max(start, len(value) + length if length < 0 else start + length)]


def _replace(value: str, operator: str, pair: tuple[str, str], most: int) -> str:
    old, new = pair
    if not old:
        return value
    count = {
        "/": lambda: min(1, value.count(old)),
        "//": lambda: value.count(old),
        "/#": lambda: int(value.startswith(old)),
        "/%": lambda: int(value.endswith(old)),
    }[operator]()
    if len(value) + count * (len(new) - len(old)) > most:
        raise TooLongError
    if not count:
        return value
    if operator == "/%":
        return value.removesuffix(old) + new
    return value.replace(old, new, -1 if operator == "//" else 1)


def _strip(value: str, pattern: str, operator: str) -> str:
    """Remove the shortest (`#`, `%`) or longest non-empty beginning or end that the glob matches."""
    longest, from_end = len(operator) > 1, operator[0] == "%"
    tokens = _tokens(pattern)
    if from_end:
        value, tokens = value[::-1], tokens[::-1]
    if tokens and set(tokens) == {_STAR} and not longest:
        tokens = ["."]
    star = ".*" if longest else ".*?"
    expression = "".join(star if token == _STAR else token for token in tokens)
    try:
        match = compile_pattern(f"(?s){expression}").match(value)
    except (InvalidTextError, UnicodeEncodeError):
        raise BrokenError("a pattern cannot be read") from None
    rest = value[match.end() :] if match is not None else value
    return rest[::-1] if from_end else rest


def _tokens(pattern: str) -> list[str]:
    """The glob's parts: a star, or as a regular expression what one character must be. Raises BrokenError."""
    if len(pattern) > _PATTERN:
        raise BrokenError(f"a pattern has no more than {_PATTERN} characters")
    tokens: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            token, at = _class(pattern, at + 1)
        elif char == "\\":
            token, at = re2.escape(_escape(pattern, at)), at + 2
        else:
            token, at = {"*": _STAR, "?": "."}.get(char) or re2.escape(char), at + 1
        tokens.append(token)
    return tokens


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The class whose `[` was read, and where it ends."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while pattern[at : at + 1] != "]" or not ranges:
        low, at = _class_member(pattern, at)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _class_member(pattern, at + 1)
        ranges.append((low, high))
    # One that ends before it begins has no characters.
    made = "".join(f"{re2.escape(low)}-{re2.escape(high)}" for low, high in ranges if low <= high)
    if not made:
        return "." if negated else _NOTHING, at + 1
    return f"[{'^' if negated else ''}{made}]", at + 1


def _class_member(pattern: str, at: int) -> tuple[str, int]:
    char = pattern[at : at + 1]
    if char == "\\":
        return _escape(pattern, at), at + 2
    if char in {"", "-", "]"}:
        raise BrokenError("a pattern has a [ without its ], or nothing within them")
    return char, at + 1


def _escape(pattern: str, at: int) -> str:
    """The character after the backslash at `at`."""
    if at + 1 == len(pattern):
        raise BrokenError("a pattern ends with a backslash")
    return pattern[at + 1]
