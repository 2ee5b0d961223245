r"""Variables in values of definitions, in Flux's grammar: `${NAME}`, `${NAME:=default}`, `$$`. Pure.

    text:       what is neither below; `$$` is `$`
    expression: ${NAME}  ${#NAME}  ${NAME OPERATOR [ARGUMENT]}
    operators:  :=d :-d =d -d   ^ ^^ , ,,   :n :n:m   #p ##p %p %%p   /a/b //a/b /#a/b /%a/b

d, n, m, p, a and b may hold expressions. p is a glob (`*`, `?`, `[a-z]`, `[^a]`); a and b are text, in which
`\/` is a slash and `\\` a backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import re2

from controller.api.parsing import InvalidTextError, compile_pattern
from controller.flagsets.preparation import Allowance, Prepared
from evaluator.flags.model import EMPTY, Json, Path
from evaluator.flags.problems import Document, Finding, Severity
from evaluator.flags.text import DEFAULT, quote, read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


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


UNKNOWN: Final = "unknown-variable"
BROKEN: Final = "broken-variable"
TOO_LARGE: Final = "variables-too-large"
PLACE: Final = "variable-place"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_WORDS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Variables:
    """What may be replaced, and by what."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    secret: frozenset[str] = frozenset()
    """Names whose values come from Secrets."""

    def __call__(self, document: Document, allowance: Allowance) -> Prepared:
        """Replace them in the values of a document. Implements `Step`."""
        walk = _Walk(self, allowance)
        try:
            value = walk.value(document.value, ())
        except _ExceededError as error:
            # No flag of it can be used: the rest still has its variables.
            value = {"flags": {}}
            walk.findings.append(Finding((), Severity.ERROR, TOO_LARGE, str(error)))
        findings = (*document.findings, *walk.findings)
        return Prepared(replace(document, value=value, findings=findings), tuple(walk.secrets))


class _ExceededError(Exception):
    """The allowance is used up."""


class _Walk:
    def __init__(self, variables: Variables, allowance: Allowance) -> None:
        self._variables = variables
        self._allowance = allowance
        self.findings: list[Finding] = []
        self.secrets: list[Path] = []

    def value(self, value: Json, path: Path) -> Json:
        """The value with its variables replaced; the very same where it has none."""
        if isinstance(value, str):
            return self._text(value, path) if has_marks(value) else value
        if isinstance(value, dict):
            members = {key: self.value(member, (*path, key)) for key, member in value.items()}
            return members if any(members[key] is not value[key] for key in members) else value
        if isinstance(value, list):
            items = [self.value(item, (*path, index)) for index, item in enumerate(value)]
            return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
        return value

    def _text(self, text: str, path: Path) -> Json:
        before = len(self.findings)
        if len(path) == 3 and path[0] == "flags" and isinstance(path[1], int) and path[2] == "key":
            self._find(PLACE, "a flag's key takes no variable; write the key", path)
            return text
        try:
            template = read_template(text)
        except BrokenError as error:
            message = (
                f"{quote(str(error))} is not ${{NAME}}, ${{NAME:=default}} or another form of Flux's; "
                "correct it, or write $${ for the text ${"
            )
            self._find(BROKEN, message, path)
            return text
        made = self._render(template, path)
        if len(self.findings) > before:
            return text
        return _scalar(made) if len(template) == 1 and isinstance(template[0], VariableExpression) else made

    def _render(self, template: Template, path: Path) -> str:
        return "".join(part if isinstance(part, str) else self._value_of(part, path) for part in template)

    def _value_of(self, expression: VariableExpression, path: Path) -> str:
        name = expression.name
        text = self._variables.values.get(name)
        default = expression.default(text)
        if default is not None:
            return self._render(default, path)
        if text is None:
            message = (
                f"the variable {name} has no value; add it to `substitute`, or write ${{{name}:=default}}, "
                f"or $${{ for the text"
            )
            self._find(UNKNOWN, message, path)
            return ""
        if name in self._variables.secret:
            self.secrets.append(path)
        self._pay(len(text))
        if expression.operator in PLAIN:
            return text
        arguments = [self._render(argument, path) for argument in expression.arguments]
        if expression.operator[0] in "#%":
            self._pay(work_of(arguments[0], text))
        try:
            made = transform(text, expression.operator, arguments, len(text) + self._allowance.characters)
        except TooLongError:
            raise _allowance_error() from None
        except BrokenError as error:
            self._find(BROKEN, f"{quote(expression.text)}: {error}", path)
            return ""
        self._pay(max(0, len(made) - len(text)))
        return made

    def _pay(self, characters: int) -> None:
        self._allowance.characters -= characters
        if self._allowance.characters < 0:
            raise _allowance_error()

    def _find(self, code: str, message: str, path: Path) -> None:
        self._allowance.findings -= 1
        if self._allowance.findings < 0:
            raise _ExceededError(
                f"{DEFAULT.problems} or more variables cannot be replaced; correct the first ones"
            )
        self.findings.append(Finding(path, Severity.ERROR, code, message))


def _allowance_error() -> _ExceededError:
    return _ExceededError(
        f"the variables' values, and the work of their patterns, come to more than "
        f"{DEFAULT.document_bytes} characters in all files"
    )


def _scalar(text: str) -> Json:
    """The scalar that `text` is in JSON; text in double quotes stays text, whatever it looks like."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text) and (number := read_number(text)) is not None:
        return number
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
