"""Parses JSON; places of parts are looked up only on request.

Python's own scanner returns neither places nor repeated keys, so a second, slower pass finds them, only for
documents with problems.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from evaluator.flags.problems import Finding, Part, Severity, UnreadableError
from evaluator.flags.text import Bounds, Lines, quote, read_integer, read_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evaluator.flags.model import Json, Path

# Possessive, and also ended by the text's end, so that an unclosed string costs one pass, not one per quote.
_STRING: Final = r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)'
_TEXT: Final = re.compile(_STRING, re.DOTALL)
_PIECE: Final = re.compile(rf'(?:[^"]*+{_STRING}){{500}}+', re.DOTALL)
"""500 strings: to take them out holds other threads for a tenth of a millisecond, unless they are long."""
_BRACKETS: Final = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_SCALAR: Final = re.compile(_STRING + r"|[^\s,\]}]+", re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F]|(?P<lone>\\u[dD][89a-fA-F])|\\.")
_LONE: Final = re.compile("[\ud800-\udfff]")
_TO_ROUND: Final = bytes.maketrans(b"[]{}", b"()()")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class JsonPlaces:
    """Start offset of each part of a valid JSON text. Containers are read on first use, and kept."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tables: dict[int, dict[str | int, tuple[int, int]]] = {}

    @cached_property
    def _ends(self) -> dict[int, int]:
        """Map the start of each container to the offset behind it."""
        ends: dict[int, int] = {}
        opened: list[int] = []
        for match in _BRACKETS.finditer(self._text):
            mark = match[0]
            if mark in "[{":
                opened.append(match.start())
            elif mark in "]}":
                ends[opened.pop()] = match.end()
        return ends

    def locate(self, path: Path, *, key: bool = False) -> int:
        """Return the offset of the value at `path` (or of its key); if missing, of its nearest ancestor."""
        offset = self._skip(0)
        for index, step in enumerate(path):
            offsets = self._lookup(offset).get(step)
            if offsets is None:
                return offset
            last = index == len(path) - 1
            offset = offsets[0] if key and last else offsets[1]
        return offset

    def walk(self) -> Iterator[tuple[Path, list[tuple[str | int, int, int]]]]:
        """Yield every container: its path and its members as (key, offset of key, offset of value)."""
        pending: list[tuple[Path, int]] = [((), self._skip(0))]
        while pending:
            path, offset = pending.pop()
            members = self._read(offset)
            yield path, members
            pending += [((*path, step), at) for step, _, at in members if self._text[at] in "[{"]

    def literal(self, offset: int) -> str:
        """Return the scalar that starts at `offset`, as written."""
        match = _SCALAR.match(self._text, offset)
        return match[0] if match else ""

    def _lookup(self, offset: int) -> dict[str | int, tuple[int, int]]:
        table = self._tables.get(offset)
        if table is None:
            table = {step: (key, value) for step, key, value in self._read(offset)}
            self._tables[offset] = table
        return table

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self._text, offset)
        return match.end() if match else offset

    def _read(self, start: int) -> list[tuple[str | int, int, int]]:
        text = self._text
        members: list[tuple[str | int, int, int]] = []
        if text[start] not in "[{":
            return []
        mapping = text[start] == "{"
        offset = self._skip(start + 1)
        while text[offset] not in "]}":
            step: str | int = len(members)
            key = offset
            if mapping:
                word = self.literal(offset)
                step = json.loads(word) if "\\" in word else word[1:-1]
                offset = self._skip(self._skip(offset + len(word)) + 1)
            members.append((step, key, offset))
            offset = self._skip(self._ends.get(offset) or offset + len(self.literal(offset)))
            if text[offset] == ",":
                offset = self._skip(offset + 1)
        return members


def read_json(text: str, bounds: Bounds) -> list[Part]:
    """Return the text's one document. Raises UnreadableError if there is no value."""
    _check_size(text, bounds)
    places = JsonPlaces(text)
    reader = _Reader()
    value = reader.read(text)
    problems = tuple(_findings(places, Lines(text), reader)) if reader.suspicious else ()
    return [Part(value, problems, places)]


class _Reader:
    """Parser hooks that note whether there are problems; their places take another pass over the text."""

    def __init__(self) -> None:
        self.repeated = False
        self.unusable: set[str] = set()

    @property
    def suspicious(self) -> bool:
        return self.repeated or bool(self.unusable)

    def read(self, text: str) -> Json:
        try:
            value = json.loads(
                text,
                object_pairs_hook=self._mapping,
                parse_float=self._note_unusable(read_number),
                parse_int=self._note_unusable(read_integer),
                parse_constant=self.unusable.add,
            )
        except json.JSONDecodeError as error:
            raise _unreadable(error, text) from None
        if _SURROGATE.search(text):
            _refuse_lone_surrogates(value, text)
        return value

    def _mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            self.repeated = True
        return mapping

    def _note_unusable(
        self, read: Callable[[str], int | float | None]
    ) -> Callable[[str], int | float | None]:
        def number(literal: str) -> int | float | None:
            value = read(literal)
            if value is None:
                self.unusable.add(literal)
            return value

        return number


def _findings(places: JsonPlaces, lines: Lines, reader: _Reader) -> Iterator[Finding]:
    for path, members in places.walk():
        seen: dict[str | int, int] = {}
        for step, key, value in members:
            if step in seen:
                line, column = lines.place(seen[step])
                yield duplicate_key((*path, step), step, (line, column), key)
            else:
                seen[step] = key
            if reader.unusable and places.literal(value) in reader.unusable:
                yield unusable_number((*path, step), places.literal(value), value)


def duplicate_key(path: Path, key: object, first: tuple[int, int], offset: int) -> Finding:
    """Return the problem of a repeated key in one mapping: either value may be intended."""
    message = (
        f"the key {quote(key)} is used twice, first on line {first[0]}, column {first[1]}; "
        "keep one of the two"
    )
    return Finding(path, Severity.ERROR, "duplicate-key", message, offset=offset)


def unusable_number(path: Path, literal: str, offset: int) -> Finding:
    """Return the problem of a number that JSON lacks or that no 64-bit float holds."""
    message = f"{quote(literal)[1:-1]} is not a finite 64-bit float; write another number, or text in quotes"
    return Finding(path, Severity.ERROR, "unusable-number", message, offset=offset)


def _check_size(text: str, bounds: Bounds) -> None:
    """Check depth and size before anything recursive reads the text: remove innermost brackets in turn."""
    bare = _without_texts(text)
    if bare.count(",") + bare.count("[") + bare.count("{") > bounds.nodes:
        raise too_many_nodes(bounds)
    nested = bare.encode().translate(_TO_ROUND, _NOT_BRACKETS)
    for _ in range(bounds.depth):
        peeled = nested.replace(b"()", b"")
        if len(peeled) == len(nested):
            break
        nested = peeled
    # Brackets remain: too deep, or broken, which the parser reports.
    if nested:
        _refuse_depth(text, bounds)


def _without_texts(text: str) -> str:
    """The text without its strings. In pieces, between which other threads run: one call for 2 MB would hold
    them for 20 ms.
    """
    pieces, end = [], 0
    while piece := _PIECE.match(text, end):
        pieces.append(_TEXT.sub("", piece[0]))
        end = piece.end()
    return "".join((*pieces, _TEXT.sub("", text[end:])))


def _refuse_depth(text: str, bounds: Bounds) -> None:
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += (match[0] in "[{") - (match[0] in "]}")
        if depth > bounds.depth:
            raise too_deep(bounds, match.start())


def too_deep(bounds: Bounds, offset: int) -> UnreadableError:
    """Return the error of nesting past the bound."""
    return UnreadableError(
        "too-deep", f"this is nested more than {bounds.depth} levels deep; flatten it", offset
    )


def too_many_nodes(bounds: Bounds) -> UnreadableError:
    """Return the error of a document with more values than the bound."""
    return UnreadableError(
        "too-large", f"the document holds more than {bounds.nodes} values; split it into several flag sets"
    )


def _unreadable(error: json.JSONDecodeError, text: str) -> UnreadableError:
    if error.msg.startswith("Extra data"):
        words = "a second value starts here; a document is one JSON value, so remove the rest"
    elif error.msg.startswith("Unterminated string"):
        words = "a text starts here and has no closing quote; is the file cut off?"
    elif error.msg.startswith("Invalid control character"):
        words = "a line break or control character stands in a text here; close the text, or write it as \\n"
    elif error.pos >= len(text.rstrip()) and (opened := _find_unclosed(text)) is not None:
        words = f"`{text[opened]}` is opened here and not closed; is the file cut off?"
        return UnreadableError("broken-json", words, opened)
    else:
        words = f"the JSON is broken here: {error.msg[:1].lower()}{error.msg[1:]}"
    return UnreadableError("broken-json", words, error.pos)


def _find_unclosed(text: str) -> int | None:
    """Return the offset of the last unclosed bracket."""
    opened: list[int] = []
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            opened.append(match.start())
        elif match[0] in "]}" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _refuse_lone_surrogates(value: Json, text: str) -> None:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending += [*part, *part.values()]
        elif isinstance(part, list):
            pending += part
        elif isinstance(part, str) and _LONE.search(part):
            lone = next((escape.start() for escape in _ESCAPE.finditer(text) if escape["lone"]), None)
            message = "this \\u escape is half of a character; write both halves, or the character itself"
            raise UnreadableError("lone-surrogate", message, lone)
