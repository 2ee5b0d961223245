"""Reads queries of GO Feature Flag: its own language, or JsonLogic in a text. Pure.

Sources: thomaspoignant/go-feature-flag, modules/core/flag/rule.go, and the parser that it uses, nikunjy/rules
v1.5.0. That parser reads as much of a text as it understands, and is silent about the rest; a text that is
not wholly in its language is refused here. `and` and `or` bind alike there. The user's `key` is always a
text, and `anonymous` always a boolean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.importers.conditions import NEVER
from controller.importers.model import (
    TARGETING_KEY,
    All,
    Always,
    AnyOf,
    Condition,
    IsText,
    Not,
    Number,
    OneOf,
    Present,
    Relation,
    Rule,
    SemanticVersion,
    Text,
    TextPart,
)
from controller.importers.reading import ImportReading, NoExactForm
from evaluator.flags.known_operators import DEPTH, OPERATORS
from evaluator.flags.text import quote
from evaluator.targeting.values import nests_deeper

if TYPE_CHECKING:
    from evaluator.flags.model import Json

_MOST_CHARACTERS: Final = 10_000
_DEEPEST: Final = 20
"""Most parentheses within each other."""
_KEYS: Final = ("key", TARGETING_KEY)
_ANONYMOUS: Final = "anonymous"
_WORDS: Final = r"not|and|or|pr|true|false|null|in|eq|ne|gt|lt|ge|le|co|sw|ew"
_NAME: Final = (
    rf"(?!(?:{_WORDS}|(?:NOT|IN|EQ|NE|GT|LT|GE|LE|CO|SW|EW))(?![-_:0-9A-Za-z]))[A-Za-z][-_:0-9A-Za-z]*"
)
_INT: Final = r"(?:0|[1-9][0-9]*)"
_DOUBLE: Final = rf"-?{_INT}\.[0-9]+(?:[Ee][+-]?{_INT})?"
_TEXT: Final = r'"(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|[^"\\])*"'
_COMPARISON: Final = re.compile(
    rf"(?P<path>{_NAME}(?:\.{_NAME})*) (?:pr(?![-_:0-9A-Za-z])|"
    rf"(?P<operator>eq|EQ|==|ne|NE|!=|gt|GT|>|lt|LT|<|ge|GE|>=|le|LE|<=|co|CO|sw|SW|ew|EW|in|IN) "
    rf"(?:(?P<boolean>true|false)|(?P<null>null)|(?P<version>{_INT}\.{_INT}\.{_INT})|(?P<text>{_TEXT})"
    rf"|(?P<double>{_DOUBLE})|(?P<long>-?{_INT})|\[(?P<list>"
    rf"{_TEXT}(?:, *{_TEXT})*|{_DOUBLE}(?:, *{_DOUBLE})*|{_INT}(?:, *{_INT})*)\]))"
)
_OPEN: Final = re.compile(r"(not|NOT)? ?\( ?")
_CLOSE: Final = re.compile(r" ?\)")
_JOIN: Final = re.compile(r" (and|or|AND|OR) ")
_ALIASES: Final = {"==": "eq", "!=": "ne", ">": "gt", "<": "lt", ">=": "ge", "<=": "le"}
_RELATIONS: Final = {
    "eq": Relation.EQUAL,
    "ne": Relation.UNEQUAL,
    "lt": Relation.LESS,
    "le": Relation.AT_MOST,
    "gt": Relation.MORE,
    "ge": Relation.AT_LEAST,
}
_PARTS: Final = {"co": TextPart.ANYWHERE, "sw": TextPart.START, "ew": TextPart.END}
_LOOPS: Final = ("map", "filter", "reduce", "all", "some", "none")
_OURS: Final = ("fractional", "sem_ver", "starts_with", "ends_with", "flag", "$ref")
_MOST_WHOLE: Final = 2**53


def parse_query(query: str, place: str, reading: ImportReading) -> Condition:
    """Whether a user fulfils the query. Raises NoExactForm."""
    text = query.strip()
    if text.startswith("{"):
        return _json_logic(text, place)
    if "\n" in text:
        message = "has several lines, which GO Feature Flag joins without a space; write it in one line"
        raise NoExactForm(place, message)
    if len(text) > _MOST_CHARACTERS:
        raise NoExactForm(place, f"is longer than {_MOST_CHARACTERS} characters")
    parser = _Parser(text, place, reading)
    condition = parser.query(0)
    if parser.at < len(text):
        raise parser.unreadable()
    parser.check_nested()
    return condition


@dataclass(slots=True)
class _Parser:
    text: str
    place: str
    reading: ImportReading
    at: int = 0
    comparisons: int = 0
    loose: bool = False
    """Whether a nested attribute is compared in a way that depends on more than its value."""
    nested: list[str] = field(default_factory=list)

    def query(self, depth: int) -> Condition:
        """Comparisons that are joined from left to right."""
        join: type[All | AnyOf] = All
        parts = [self._operand(depth)]
        while match := _JOIN.match(self.text, self.at):
            if match[1].isupper():
                message = (
                    f"GO Feature Flag ignores what follows {match[1]} in capitals; write {match[1].lower()}"
                )
                raise NoExactForm(self.place, message)
            self.at = match.end()
            kind = All if match[1] == "and" else AnyOf
            if kind is not join and len(parts) > 1:
                parts = [join(tuple(parts))]
            join = kind
            parts.append(self._operand(depth))
        return join(tuple(parts))

    def _operand(self, depth: int) -> Condition:
        if match := _OPEN.match(self.text, self.at):
            self.at = match.end()
            if depth == _DEEPEST:
                raise NoExactForm(self.place, f"has more than {_DEEPEST} parentheses within each other")
            inner = self.query(depth + 1)
            end = _CLOSE.match(self.text, self.at)
            if end is None:
                raise self.unreadable()
            self.at = end.end()
            self.loose = self.loose or match[1] is not None
            return Not(inner) if match[1] else inner
        if match := _COMPARISON.match(self.text, self.at):
            self.at = match.end()
            return self._comparison(match)
        raise self.unreadable()

    def unreadable(self) -> NoExactForm:
        rest = self.text[self.at : self.at + 20]
        message = f"is no query from {quote(rest)} on; between words there has to be one space"
        return NoExactForm(self.place, message)

    def check_nested(self) -> None:
        """A nested attribute of which nothing is there has, there, the value that was compared before it."""
        if self.nested and (self.loose or self.comparisons > 1):
            message = (
                f"where the attribute around {self.nested[0]} is missing or no object, GO Feature Flag "
                "compares another value, or is false as a whole"
            )
            self.reading.approximate("nested-attributes", self.place, message)

    def _comparison(self, match: re.Match[str]) -> Condition:
        path = match["path"]
        self.comparisons += 1
        if "." in path:
            self.nested.append(path)
        attribute = TARGETING_KEY if path in _KEYS else path
        operator = _ALIASES.get(match["operator"] or "pr", (match["operator"] or "pr").lower())
        kind = match.lastgroup
        if operator == "pr" or kind == "null":
            return self._presence(attribute, operator)
        condition = None
        if kind == "boolean" and operator in ("eq", "ne"):
            condition = self._boolean(attribute, (match["boolean"] == "true") is (operator == "eq"))
        elif kind == "list" and operator == "in":
            condition = self._list(attribute, match["list"])
        elif kind == "text":
            condition = self._text(attribute, operator, match["text"][1:-1])
        elif operator in _RELATIONS and kind == "version":
            condition = SemanticVersion(attribute, _RELATIONS[operator], match["version"], whole=True)
        elif operator in _RELATIONS and kind in ("double", "long"):
            condition = self._number(attribute, operator, match[kind])
        if condition is None:
            message = f"{quote(match[0])} is never true in GO Feature Flag; take it out"
            raise NoExactForm(self.place, message)
        return NEVER if attribute == _ANONYMOUS and kind != "boolean" else condition

    def _presence(self, attribute: str, operator: str) -> Condition:
        present = Always() if attribute in (TARGETING_KEY, _ANONYMOUS) else Present(attribute)
        if operator in ("pr", "ne"):
            return present
        if operator != "eq":
            raise NoExactForm(self.place, f"GO Feature Flag does not compare by {operator} with null")
        self.loose = True
        return Not(present)

    def _boolean(self, attribute: str, value: bool) -> Condition:
        if attribute == _ANONYMOUS and not value:
            return Not(OneOf(attribute, (True,)))
        return OneOf(attribute, (value,))

    def _list(self, attribute: str, text: str) -> Condition:
        """Lists have values of one type; `in` alone regards the case of letters."""
        if text.startswith('"'):
            values: tuple[Any, ...] = tuple(item[1:-1] for item in re.findall(_TEXT, text))
            return self._of_user(attribute, OneOf(attribute, values), missing="" in values)
        numbers = [self._in_range(float(item)) for item in text.split(",")]
        # A whole number within an object is a fraction to it.
        self.loose = self.loose or "." not in text
        return OneOf(attribute, tuple(int(item) if item == int(item) else item for item in numbers))

    def _text(self, attribute: str, operator: str, text: str) -> Condition | None:
        """Texts keep the backslashes that the language needs."""
        if operator not in ("eq", "ne", *_PARTS):
            if operator == "in":
                return None
            raise NoExactForm(
                self.place, f"compares texts by {operator}, which rules here cannot; list values"
            )
        if text.lower() != text.upper():
            message = f"GO Feature Flag finds {quote(text)} also in other cases of its letters"
            self.reading.approximate("case-sensitive", self.place, message)
        if operator in _PARTS:
            part = Text(attribute, _PARTS[operator], (text,)) if text else IsText(attribute)
            return self._of_user(attribute, part, missing=not text)
        equal = self._of_user(attribute, OneOf(attribute, (text,)), missing=not text)
        if operator == "eq":
            return equal
        return Not(equal) if attribute == TARGETING_KEY else All((IsText(attribute), Not(equal)))

    def _of_user(self, attribute: str, condition: Condition, *, missing: bool) -> Condition:
        """The condition, where a user's key that is missing is an empty text."""
        if attribute == TARGETING_KEY and missing:
            return AnyOf((Not(Present(attribute)), condition))
        return condition

    def _number(self, attribute: str, operator: str, text: str) -> Condition:
        """A whole number in the query makes the user's number whole, toward 0."""
        number = self._in_range(float(text))
        if "." in text:
            return Number(attribute, _RELATIONS[operator], int(number) if number == int(number) else number)
        whole = int(number)

        def at_least(bound: int) -> Condition:
            return Number(
                attribute, *((Relation.AT_LEAST, bound) if bound > 0 else (Relation.MORE, bound - 1))
            )

        def at_most(bound: int) -> Condition:
            return Number(
                attribute, *((Relation.AT_MOST, bound) if bound < 0 else (Relation.LESS, bound + 1))
            )

        conditions = {
            "ge": at_least(whole),
            "gt": at_least(whole + 1),
            "le": at_most(whole),
            "lt": at_most(whole - 1),
            "eq": All((at_least(whole), at_most(whole))),
            "ne": AnyOf((at_most(whole - 1), at_least(whole + 1))),
        }
        return conditions[operator]

    def _in_range(self, number: float) -> float:
        if abs(number) >= _MOST_WHOLE:
            raise NoExactForm(self.place, "compares with too large a number")
        return number


def _json_logic(text: str, place: str) -> Condition:
    try:
        rule = orjson.loads(text)
    except ValueError:
        raise NoExactForm(place, "is neither a query nor JSON") from None
    if nests_deeper(rule, 2 * DEPTH):
        raise NoExactForm(place, "is nested too deep")
    return Rule(_Translation(place).outer(rule))


@dataclass(frozen=True, slots=True)
class _Translation:
    """Rules for the same engine, with what GO Feature Flag adds to a context by other names."""

    place: str

    def outer(self, rule: Json) -> Json:
        """The rule where `var` reads the context."""
        if isinstance(rule, list):
            return [self.outer(item) for item in rule]
        if not isinstance(rule, dict):
            return rule
        operator, arguments = self._operation(rule)
        parts = arguments if isinstance(arguments, list) else [arguments]
        if operator == "var":
            return self._variable(parts)
        if operator in ("missing", "missing_some"):
            raise NoExactForm(self.place, f"asks by {operator}, for which a user's key is never missing")
        if operator in _LOOPS:
            translated = [
                self._within(part) if number == 1 else self.outer(part) for number, part in enumerate(parts)
            ]
            return {operator: translated}
        return {operator: self.outer(arguments)}

    def _within(self, rule: Json) -> Json:
        """The rule of a loop, where `var` reads an item."""
        if isinstance(rule, list):
            return [self._within(item) for item in rule]
        if not isinstance(rule, dict):
            return rule
        operator, arguments = self._operation(rule)
        return {operator: self._within(arguments)}

    def _operation(self, rule: dict[str, Json]) -> tuple[str, Any]:
        operator = next(iter(rule), "")
        if len(rule) != 1 or operator not in OPERATORS or operator in _OURS:
            raise NoExactForm(self.place, f"has {quote(operator)}, which is no operator of JsonLogic")
        return operator, rule[operator]

    def _variable(self, parts: list[Any]) -> Json:
        name = parts[0] if parts else ""
        if name in _KEYS:
            return {"var": [TARGETING_KEY, ""]}
        if name == _ANONYMOUS:
            return {"===": [{"var": _ANONYMOUS}, True]}
        if not isinstance(name, str) or not name or name.startswith("$"):
            raise NoExactForm(self.place, "reads the whole context, or a variable that it computes")
        return {"var": [name, *map(self.outer, parts[1:])] if len(parts) > 1 else name}
